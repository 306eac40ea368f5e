//go:build linux

package etcd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/etcdstore"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
	"github.com/spendonce/spendonce/tests/etcd/lan"
)

const box = "box"

// fleet is hosts that share one target.
type fleet struct {
	cluster  *cluster.Cluster
	identity string
}

func startFleet(t *testing.T, o cluster.Options) *fleet {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(path, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fleet{cluster.Start(t, o), path}
}

func (f *fleet) store(t *testing.T, from *lan.Host, change func(*credstore.Config)) *credstore.Store {
	t.Helper()
	tls, err := f.cluster.TLS.Config()
	if err != nil {
		t.Fatal(err)
	}
	in, err := etcdstore.Open(etcdstore.Config{
		Endpoints: f.cluster.Endpoints(), Prefix: f.cluster.Prefix, TLS: tls,
		Dial: func(ctx context.Context, address string) (net.Conn, error) { return from.Dial(ctx, "tcp", address) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	by := keys.Config{Key: "age:" + f.identity}
	cfg := credstore.Config{
		Dir: t.TempDir(), Warn: func(text string) { t.Log("warned:", text) },
		Shared: &credstore.SharedTargets{Names: []string{box}, In: in, Keys: &keys.Keys{Config: func() (keys.Config, error) { return by, nil }}},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := credstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// server counts what was sent to it and rotates.
type server struct {
	mu    sync.Mutex
	sent  []string
	n     atomic.Int64
	delay time.Duration
}

func (s *server) exchange(_ context.Context, g credstore.Grant) (credstore.Tokens, error) {
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, g.RefreshToken.Reveal())
	n := s.n.Add(1)
	return credstore.Tokens{
		AccessToken: credstore.NewSecret(name("at", n)), RefreshToken: credstore.NewSecret(name("rt", n)),
		ExpiresAt: time.Now().Add(time.Hour), Lifetime: time.Hour,
	}, nil
}

func name(what string, n int64) string { return what + "-" + string(rune('0'+n)) }

func signIn(t *testing.T, s *credstore.Store, expires time.Time) {
	t.Helper()
	_, err := s.Login(t.Context(), box, credstore.SignedIn{
		URL: "https://mcp.example.com", Pin: credstore.Pin{Issuer: "https://login.example.com", TokenEndpoint: "https://login.example.com/token", ClientID: "c"},
		Tokens: credstore.Tokens{AccessToken: credstore.NewSecret("at-0"), RefreshToken: credstore.NewSecret("rt-0"), ExpiresAt: expires, Lifetime: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestManyStoresOnThreeHostsRefreshOnce(t *testing.T) {
	f := startFleet(t, cluster.Options{Programs: 3})
	signIn(t, f.store(t, f.cluster.Programs[0], nil), time.Now().Add(-time.Minute))
	s := &server{delay: 50 * time.Millisecond}
	var wg sync.WaitGroup
	start := time.Now()
	for i := range 96 {
		store := f.store(t, f.cluster.Programs[i%3], nil)
		wg.Go(func() {
			src, err := store.Source(credstore.SourceConfig{Target: box, Exchange: s.exchange})
			if err != nil {
				t.Error(err)
				return
			}
			got, err := src.Get(t.Context(), credstore.Request{})
			if err != nil || got.AccessToken.Reveal() != "at-1" {
				t.Errorf("got %q, %v", got.AccessToken.Reveal(), err)
			}
		})
	}
	wg.Wait()
	t.Log("took", time.Since(start))
	if len(s.sent) != 1 || s.sent[0] != "rt-0" {
		t.Errorf("sent %q", s.sent)
	}
	if _, err := f.store(t, f.cluster.Programs[0], nil).Remove(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	src, _ := f.store(t, f.cluster.Programs[1], nil).Source(credstore.SourceConfig{Target: box, Exchange: s.exchange})
	if _, err := src.Get(t.Context(), credstore.Request{}); !errors.Is(err, credstore.ErrNoCredential) {
		t.Errorf("after logout: %v", err)
	}
}

func TestAMemberThatHangsIsPassedOver(t *testing.T) {
	f := startFleet(t, cluster.Options{Programs: 1})
	store := f.store(t, f.cluster.Programs[0], nil)
	signIn(t, store, time.Now().Add(-time.Minute))
	s := &server{}
	src, err := store.Source(credstore.SourceConfig{Target: box, Exchange: s.exchange})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * cluster.Size { // it is connected to all of them then
		if _, err := src.Holds(credstore.NewSecret("none")); err != nil {
			t.Fatal(err)
		}
	}
	leader := f.cluster.Leader(t)
	for _, m := range f.cluster.Members {
		if m != leader {
			m.Pause()
			defer m.Resume()
			break
		}
	}
	if got, err := src.Get(t.Context(), credstore.Request{}); err != nil || got.AccessToken.Reveal() != "at-1" {
		t.Fatalf("got %q, %v", got.AccessToken.Reveal(), err)
	}
	if len(s.sent) != 1 {
		t.Errorf("sent %q", s.sent)
	}
}
