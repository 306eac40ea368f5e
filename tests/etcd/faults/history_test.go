//go:build linux

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/spendoncetest/canary"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// issuer is an authorization server without a network, as strict as any.
type issuer struct {
	mu     sync.Mutex
	parent map[string]string // access token -> the refresh token it came for
	pair   map[string]string // access token -> the refresh token that came with it
	spent  map[string]bool
	double int
	all    []canary.Value
}

func newIssuer() *issuer {
	return &issuer{parent: map[string]string{}, pair: map[string]string{}, spent: map[string]bool{}}
}

// issue is called with the issuer locked.
func (s *issuer) issue(parent string) credstore.Tokens {
	at, rt := canary.New("access token"), canary.New("refresh token")
	s.all = append(s.all, at, rt)
	s.parent[at.Secret.Reveal()], s.pair[at.Secret.Reveal()] = parent, rt.Secret.Reveal()
	return credstore.Tokens{AccessToken: at.Secret, RefreshToken: rt.Secret, ExpiresAt: time.Now().Add(time.Hour), Lifetime: time.Hour}
}

func (s *issuer) login() credstore.SignedIn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return credstore.SignedIn{
		URL: "https://rs.example", Pin: credstore.Pin{TokenEndpoint: "https://as.example/token", ClientID: "c"}, Tokens: s.issue(""),
	}
}

func (s *issuer) exchange(_ context.Context, g credstore.Grant) (credstore.Tokens, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := g.RefreshToken.Reveal()
	if s.spent[sent] {
		s.double++
		return credstore.Tokens{}, &credstore.Failure{Class: credstore.ClassRefused, Code: "invalid_grant"}
	}
	s.spent[sent] = true
	return s.issue(sent), nil
}

// What clients do, and what they see of it.
type (
	input struct {
		op    string
		token string // put, or rejected
	}
	output struct {
		token string // "" with nothing stored
		err   bool   // it is not known what was done
	}
	// recorded is the one record.
	recorded struct{ static, access, refresh string }
)

// model says what may follow. The issuer has ended its work.
func (s *issuer) model() porcupine.Model {
	children := map[string][]string{}
	for at, rt := range s.parent {
		children[rt] = append(children[rt], at)
	}
	step := func(now recorded, in input, out output) []recorded {
		put := recorded{}
		switch in.op {
		case "login":
			put = recorded{access: in.token, refresh: s.pair[in.token]}
		case "static":
			put = recorded{static: in.token}
		case "remove":
			if out.token == "none" {
				if now == put {
					return []recorded{now}
				}
				return nil
			}
			if !out.err && now == put {
				return nil
			}
		case "get":
			if out.err {
				all := []recorded{now}
				for _, at := range children[now.refresh] {
					if now.refresh != "" {
						all = append(all, recorded{access: at, refresh: s.pair[at]})
					}
				}
				return all
			}
			var all []recorded
			if out.token == now.static+now.access && (out.token == "" || out.token != in.token) {
				all = append(all, now)
			}
			if now.refresh != "" && s.parent[out.token] == now.refresh {
				all = append(all, recorded{access: out.token, refresh: s.pair[out.token]})
			}
			return all
		}
		if out.err {
			return []recorded{now, put}
		}
		return []recorded{put}
	}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{recorded{}} },
		Step: func(state, in, out any) []any {
			var all []any
			for _, next := range step(state.(recorded), in.(input), out.(output)) {
				all = append(all, next)
			}
			return all
		},
	}
	return m.ToModel()
}

func TestEveryHistoryOfARecordIsLinearizable(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Programs: hostsOf})
	for round := range soaked(20, 2) {
		f := &fleet{t: t, cluster: c, prefix: fmt.Sprintf("%s%d/", c.Prefix, round), hosts: c.Programs, dir: t.TempDir(), stale: stale}
		f.makeIdentity()
		history(t, f, newIssuer(), soaked(60, 25), true)
	}
}

// Without TLS, whoever is on the wire sees all that etcd is told.
func TestNoTokenIsOnAWireInPlain(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Programs: 2, Plain: true, Loopback: true, Record: true})
	f := &fleet{t: t, cluster: c, prefix: c.Prefix, hosts: c.Programs, dir: t.TempDir(), stale: stale}
	f.makeIdentity()
	s := newIssuer()
	history(t, f, s, 4, false)
	seen := canary.Search(t, []canary.Value{canary.Of("a key", f.prefix+"targets/"+box+"/value")}, canary.Places{Outputs: c.LAN.Recorded()})
	if len(seen) == 0 {
		t.Error("the wire was not listened to")
	}
	canary.Absent(t, s.all, c.Places())
}

func TestAValueIsPutInThePlaceOfItsVersionOnly(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Programs: 1})
	in := (&fleet{t: t, cluster: c, prefix: c.Prefix}).shared(c.Programs[0])
	must(t, in.Put(t.Context(), box, 0, []byte("first"), nil))
	first, err := in.Get(t.Context(), box)
	must(t, err)
	must(t, in.Put(t.Context(), box, first.Version, []byte("second"), nil))
	for _, version := range []int64{0, first.Version} {
		for _, b := range [][]byte{[]byte("third"), nil} {
			if err := in.Put(t.Context(), box, version, b, nil); !errors.Is(err, credstore.ErrMoved) {
				t.Errorf("at the version %d of another value: %v", version, err)
			}
		}
	}
	if now, err := in.Get(t.Context(), box); err != nil || string(now.Bytes) != "second" {
		t.Errorf("it is %q, %v", now.Bytes, err)
	}
}

// history lets clients on all hosts loose, and holds what they saw against
// the model.
func history(t *testing.T, f *fleet, s *issuer, ops int, faults bool) {
	t.Helper()
	const clients = 6
	start := time.Now()
	var mu sync.Mutex
	var done []porcupine.Operation
	var all sync.WaitGroup
	for client := range clients {
		in := f.shared(f.hosts[client%len(f.hosts)])
		all.Go(func() {
			for range ops {
				// A store of its own, as in a process of its own: it goes by no
				// earlier reading.
				store := f.storeOn(in, func(c *credstore.Config) { c.MaxForced = 1 << 20 })
				op := porcupine.Operation{ClientId: client, Call: int64(time.Since(start))}
				i, o := s.act(t, store)
				op.Input, op.Output, op.Return = i, o, int64(time.Since(start))
				if o.err { // it may come to pass at any time from now on
					op.Return = int64(time.Hour) + op.Call
				}
				mu.Lock()
				done = append(done, op)
				mu.Unlock()
				_ = store.Close(t.Context())
			}
		})
	}
	stop := make(chan struct{})
	var nemesis sync.WaitGroup
	if faults {
		nemesis.Go(func() { harm(t, f, stop) })
	}
	all.Wait()
	close(stop)
	nemesis.Wait()
	unknown := 0
	for _, op := range done {
		if op.Output.(output).err {
			unknown++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	verdict := porcupine.CheckOperationsTimeout(s.model(), done, time.Minute)
	t.Logf("%d operations in %s, %d of unknown outcome, %d exchanges, %d double spends: %s in %s",
		len(done), began.Sub(start).Round(time.Millisecond), unknown, len(s.spent), s.double, verdict, time.Since(began).Round(time.Millisecond))
	if verdict == porcupine.Illegal || s.double != 0 {
		t.Errorf("the history is %s, with %d double spends", verdict, s.double)
	}
	if unknown > len(done)/2 {
		t.Errorf("%d of %d operations failed", unknown, len(done))
	}
}

// act does one thing.
func (s *issuer) act(t *testing.T, store *credstore.Store) (input, output) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch n := rand.N(20); {
	case n < 3:
		in := s.login()
		_, err := store.Login(ctx, box, in)
		return input{"login", in.Tokens.AccessToken.Reveal()}, output{err: err != nil}
	case n < 4:
		_, err := store.Remove(ctx, box)
		if errors.Is(err, credstore.ErrNoCredential) {
			return input{op: "remove"}, output{token: "none"}
		}
		return input{op: "remove"}, output{err: err != nil}
	case n < 5:
		s.mu.Lock()
		v := canary.New("static token")
		s.all = append(s.all, v)
		s.mu.Unlock()
		return input{"static", v.Secret.Reveal()}, output{err: store.SetStatic(ctx, box, v.Secret) != nil}
	default:
		src, err := store.Source(credstore.SourceConfig{Target: box, Exchange: s.exchange})
		if err != nil {
			t.Error(err)
		}
		req := credstore.Request{}
		if n >= 9 { // it has a token that is then refused
			if had, err := src.Get(ctx, req); err == nil {
				req.Rejected = had.AccessToken
			}
		}
		got, err := src.Get(ctx, req)
		if errors.Is(err, credstore.ErrNoCredential) {
			return input{"get", req.Rejected.Reveal()}, output{}
		}
		return input{"get", req.Rejected.Reveal()}, output{token: got.AccessToken.Reveal(), err: err != nil}
	}
}

// harm kills the leader, and cuts machines off for a moment, until it is told
// to stop; it leaves everything whole.
func harm(t *testing.T, f *fleet, stop <-chan struct{}) {
	pause := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	for pause(300 * time.Millisecond) {
		host := f.hosts[rand.N(len(f.hosts))]
		host.Cut()
		pause(stale / 10)
		host.Join()
		if !pause(300 * time.Millisecond) {
			return
		}
		leader := f.cluster.Leader(t)
		leader.Kill()
		pause(stale / 4)
		leader.Restart(t)
	}
}
