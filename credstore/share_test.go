package credstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
)

// A failure is everybody's until its not-before, whichever store asks.
func TestABackOffIsSharedBetweenStores(t *testing.T) {
	for name, tt := range map[string]struct {
		failure credstore.Failure
		want    error
		least   time.Duration
		most    time.Duration
	}{
		"temporary":                {credstore.Failure{Class: credstore.ClassTemporary, Status: 500}, credstore.ErrTemporary, time.Second, 2 * time.Second},
		"slow down":                {credstore.Failure{Class: credstore.ClassTemporary, Status: 429, RetryAfter: 7 * time.Second}, credstore.ErrTemporary, 7 * time.Second, 8 * time.Second},
		"an absurd wait":           {credstore.Failure{Class: credstore.ClassTemporary, Status: 429, RetryAfter: 86400 * time.Second}, credstore.ErrTemporary, 300 * time.Second, 301 * time.Second},
		"a wrong request":          {credstore.Failure{Class: credstore.ClassRequest, Status: 400, Code: "invalid_scope"}, credstore.ErrRequest, time.Second, 2 * time.Second},
		"a client that is unknown": {credstore.Failure{Class: credstore.ClassClientDead, Status: 401, Code: "invalid_client"}, credstore.ErrRequest, time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := stateDir(t)
				putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour)), other: oidc("R9", "A9", in(-time.Hour))})
				a := &authority{answer: failing(tt.failure)}
				one, two := open(t, credstore.Config{Dir: dir}), open(t, credstore.Config{Dir: dir})
				first, second := sourceOf(t, one, box, a), sourceOf(t, two, box, a)
				mustRefuse(t, first, credstore.Request{}, tt.want)
				end := time.Now().Add(tt.least)
				mustRefuse(t, second, credstore.Request{}, tt.want)
				mustRefuse(t, first, credstore.Request{Refresh: true}, tt.want)
				time.Sleep(time.Until(end) - time.Millisecond)
				mustRefuse(t, second, credstore.Request{}, tt.want)
				mustHaveSent(t, a, "R0")
				entries, err := two.List()
				if err != nil || tt.least > 2*time.Second && (entries[0].NotBefore.IsZero() || entries[0].LastOutcome.Class != credstore.ClassTemporary) {
					t.Errorf("the wait is not listed: %v %v", entries, err)
				}
				// Another target does not wait with it.
				b := &authority{}
				mustGive(t, sourceOf(t, two, other, b), credstore.Request{}, "A-new-1")
				time.Sleep(tt.most - tt.least + time.Millisecond)
				a.mu.Lock()
				a.answer = nil
				a.mu.Unlock()
				mustGive(t, second, credstore.Request{}, "A-new-2")
				mustGive(t, first, credstore.Request{}, "A-new-2")
				mustHaveSent(t, a, "R0", "R0")
				if s := sessionOf(t, dir, box); s["notBefore"] != nil || s["failures"] != nil {
					t.Errorf("the success left %v and %v", s["notBefore"], s["failures"])
				}
			})
		})
	}
}

func TestTheBackOffDoublesToAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{answer: failing(credstore.Failure{Class: credstore.ClassTemporary})}
		src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
		var waits []time.Duration
		for range 9 {
			mustRefuse(t, src, credstore.Request{}, credstore.ErrTemporary)
			at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(sessionOf(t, dir, box)["notBefore"]))
			if err != nil {
				t.Fatal(err)
			}
			waits = append(waits, time.Until(at))
			time.Sleep(time.Until(at))
		}
		for i, wait := range waits {
			middle := min(time.Second<<i, time.Minute)
			if wait < middle*3/4 || wait > middle*5/4 || wait < time.Second {
				t.Errorf("wait %d is %s: %s", i, wait, waits)
			}
		}
		if n := len(a.sent()); n != 9 {
			t.Errorf("%d were sent", n)
		}
	})
}

// waiting starts a call that finds the lock busy and waits behind it.
func waiting(t *testing.T, dir string, a *authority, req credstore.Request, cfg credstore.Config) (wait func() (string, error)) {
	t.Helper()
	staged := make(chan struct{})
	var once sync.Once
	cfg.Dir = dir
	cfg.Stage = func(text string) {
		if strings.HasPrefix(text, "waiting for another") {
			once.Do(func() { close(staged) })
		}
	}
	src := sourceOf(t, open(t, cfg), box, a)
	type result struct {
		token string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		token, err := get(src, req)
		done <- result{token, err}
	}()
	<-staged
	return func() (string, error) { r := <-done; return r.token, r.err }
}

// whileRefreshing runs during while an exchange is under way, and then lets
// the answer come.
func whileRefreshing(t *testing.T, dir string, a *authority, req credstore.Request, during func()) (string, error) {
	t.Helper()
	then := a.answer
	if then == nil {
		then = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil }
	}
	answer, arrived, proceed := held(then)
	a.answer = answer
	src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
	var token string
	var err error
	done := make(chan struct{})
	go func() { defer close(done); token, err = get(src, req) }()
	<-arrived
	during()
	close(proceed)
	<-done
	return token, err
}

// Whoever waited takes the result of the exchange that ended meanwhile,
// whatever it was.
func TestWhoeverWaitedTakesTheResult(t *testing.T) {
	success := func(lifetime time.Duration) *authority { return &authority{lifetime: lifetime} }
	failure := func(f credstore.Failure) *authority { return &authority{answer: failing(f)} }
	for name, tt := range map[string]struct {
		a      *authority
		record record
		req    credstore.Request
		want   string
		err    error
	}{
		"a fresh token":            {a: success(0), want: "A-new-1"},
		"one expired at receipt":   {a: success(-time.Nanosecond), want: "A-new-1"},
		"one shorter than asked":   {a: success(10 * time.Minute), req: credstore.Request{MinValid: time.Hour}, err: credstore.ErrMinValid},
		"one for the rejected":     {a: success(0), record: oidc("R0", "A0", in(time.Hour)), req: credstore.Request{Rejected: secret.New("A0")}, want: "A-new-1"},
		"a refusal":                {a: failure(credstore.Failure{Class: credstore.ClassRefused}), err: credstore.ErrLoginRequired},
		"a wrong request":          {a: failure(credstore.Failure{Class: credstore.ClassRequest}), err: credstore.ErrRequest},
		"a temporary failure":      {a: failure(credstore.Failure{Class: credstore.ClassTemporary}), err: credstore.ErrTemporary},
		"a client that is unknown": {a: failure(credstore.Failure{Class: credstore.ClassClientDead}), err: credstore.ErrRequest},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			if tt.record == nil {
				tt.record = oidc("R0", "A0", in(-time.Hour))
			}
			putStore(t, dir, map[string]record{box: tt.record})
			var results []func() (string, error)
			token, err := whileRefreshing(t, dir, tt.a, tt.req, func() {
				for range 3 {
					results = append(results, waiting(t, dir, tt.a, tt.req, credstore.Config{}))
				}
			})
			if token != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("the sender got %q, %v", token, err)
			}
			for _, result := range results {
				if token, err := result(); token != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("a waiter got %q, %v", token, err)
				}
			}
			mustHaveSent(t, tt.a, "R0")
		})
	}
}

// A waiter that does not run for longer than the back-off still takes the
// outcome of the exchange that ended while it waited.
func TestAWaiterThatWakesAfterTheBackOffStillTakesTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{answer: failing(credstore.Failure{Class: credstore.ClassTemporary, Text: "busy"})}
		var asleep atomic.Bool
		awake := make(chan struct{})
		var result func() (string, error)
		_, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
			result = waiting(t, dir, a, credstore.Request{}, credstore.Config{Disk: durable.Disk{Hook: func(_ durable.Step, do func() error) error {
				if asleep.Load() {
					<-awake
				}
				return do()
			}}})
			asleep.Store(true)
		})
		if !errors.Is(err, credstore.ErrTemporary) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		close(awake)
		if token, err := result(); token != "" || !errors.Is(err, credstore.ErrTemporary) {
			t.Errorf("got %q, %v", token, err)
		}
		mustHaveSent(t, a, "R0")
	})
}

// invalid_grant speaks of the bytes that were sent, not of the record.
func TestARefusalOfATokenThatIsNoLongerStoredIsNoLogout(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{answer: failing(credstore.Failure{Class: credstore.ClassRefused, Status: 400, Code: "invalid_grant"})}
	token, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
		putStore(t, dir, map[string]record{box: oidc("R2", "A2", in(time.Hour))})
	})
	if token != "A2" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
	mustHaveSent(t, a, "R0")
	if r := storeOf(t, dir)[box]; r["refreshToken"] != "R2" {
		t.Error("the record of the winner has changed")
	}
	if strings.Contains(bytesOf(t, filepath.Join(dir, "sessions/box.json")), "loginRequired") {
		t.Error("the refusal was noted for the winner's token")
	}
}

func TestALogoutDuringTheRefreshStays(t *testing.T) {
	for name, answer := range map[string]func(context.Context, int, credstore.Grant) (credstore.Tokens, error){
		"success": nil,
		"refusal": failing(credstore.Failure{Class: credstore.ClassRefused}),
		"failure": failing(credstore.Failure{Class: credstore.ClassTemporary}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour)), other: {"kind": "static", "token": "S"}})
			putSession(t, dir, box, session{"loginId": "L0"})
			a := &authority{answer: answer}
			token, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
				if err := onlyError(open(t, credstore.Config{Dir: dir}).Remove(t.Context(), box)); err != nil {
					t.Error(err)
				}
			})
			if name == "success" && (token != "A-new-1" || err != nil) || name != "success" && !errors.Is(err, credstore.ErrNoCredential) {
				t.Errorf("got %q, %v", token, err)
			}
			if r := storeOf(t, dir); r[box] != nil || r[other]["token"] != "S" {
				t.Error("the record came back, or its neighbour went")
			}
			if slices.Contains(namesIn(t, dir), "sessions/box.json") {
				t.Error("the session file came back")
			}
			mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrNoCredential)
			mustHaveSent(t, a, "R0")
		})
	}
}

func TestALoginDuringTheRefreshStays(t *testing.T) {
	for name, answer := range map[string]func(context.Context, int, credstore.Grant) (credstore.Tokens, error){
		"success": nil,
		"refusal": failing(credstore.Failure{Class: credstore.ClassRefused}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			a := &authority{answer: answer}
			token, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
				if err := onlyError(open(t, credstore.Config{Dir: dir}).Login(t.Context(), box, signedIn("R-login", "A-login"))); err != nil {
					t.Error(err)
				}
			})
			want := "A-new-1"
			if name == "refusal" {
				want = "A-login"
			}
			if token != want || err != nil {
				t.Errorf("got %q, %v", token, err)
			}
			r, s := storeOf(t, dir)[box], sessionOf(t, dir, box)
			if r["refreshToken"] != "R-login" || r["accessJwt"] != "A-login" || s["lastOutcome"] != nil || s["loginRequired"] != nil {
				t.Error("the login was touched")
			}
			mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, "A-login")
			mustHaveSent(t, a, "R0")
		})
	}
}

func signedIn(refresh, access string) credstore.SignedIn {
	pin, _ := pinned()
	pin.Pin.Issuer = "https://as.example"
	return credstore.SignedIn{URL: pin.URL, Pin: pin.Pin, Tokens: credstore.Tokens{
		AccessToken: secret.New(access), RefreshToken: secret.New(refresh), ExpiresAt: in(time.Hour), Lifetime: time.Hour,
		Scope: []string{"read", "write"},
	}}
}

func TestAStaticTokenInThePlaceOfARefreshedOneStays(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	token, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
		if err := open(t, credstore.Config{Dir: dir}).SetStatic(t.Context(), box, secret.New("S")); err != nil {
			t.Error(err)
		}
	})
	if token != "A-new-1" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, "S")
}

// Whoever writes one record leaves the others as they are at that moment.
func TestAWriteBesideARotationLosesNothing(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	_, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
		beside := open(t, credstore.Config{Dir: dir})
		if err := beside.SetStatic(t.Context(), other, secret.New("S")); err != nil {
			t.Error(err)
		}
		if err := onlyError(beside.Login(t.Context(), "third", signedIn("R3", "A3"))); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// And the other way round: one that has read before the rotation.
	late := open(t, credstore.Config{Dir: dir})
	if _, err := late.List(); err != nil {
		t.Fatal(err)
	}
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{Refresh: true}, "A-new-2")
	if err := onlyError(late.Remove(t.Context(), other)); err != nil {
		t.Error(err)
	}
	r := storeOf(t, dir)
	if r[box]["refreshToken"] != "R-new-2" || r["third"]["refreshToken"] != "R3" || len(r) != 2 {
		t.Error("a record was lost or came back")
	}
	mustHaveSent(t, a, "R0", "R-new-1")
}

// The resource server refuses whatever the authorization server issues: after
// five sends within a minute nobody sends any more.
func TestForcedRefreshesAreBraked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(time.Hour))})
		a := &authority{}
		rejected := "A0"
		for i := range 5 {
			src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
			want := fmt.Sprintf("A-new-%d", i+1)
			mustGive(t, src, credstore.Request{Rejected: secret.New(rejected)}, want)
			rejected = want
			time.Sleep(time.Second)
		}
		src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
		mustRefuse(t, src, credstore.Request{Rejected: secret.New(rejected)}, credstore.ErrRejected)
		mustRefuse(t, src, credstore.Request{Refresh: true}, credstore.ErrRejected)
		mustGive(t, src, credstore.Request{}, rejected) // who has not seen it rejected
		if n := len(a.sent()); n != 5 {
			t.Errorf("%d were sent", n)
		}
		// The first of the five leaves the window after a minute.
		time.Sleep(55 * time.Second)
		mustGive(t, src, credstore.Request{Rejected: secret.New(rejected)}, "A-new-6")
		mustRefuse(t, src, credstore.Request{Rejected: secret.New("A-new-6")}, credstore.ErrRejected)
	})
}

// An expired token that was rejected, too, is no forced send.
func TestTheBrakeCountsOnlyWhatARejectionForced(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(time.Hour))})
	a := &authority{lifetime: -time.Nanosecond}
	s := open(t, credstore.Config{Dir: dir, MaxForced: 2})
	src := sourceOf(t, s, box, a)
	mustGive(t, src, credstore.Request{Rejected: secret.New("A0")}, "A-new-1")
	for i := 1; i < 6; i++ {
		mustGive(t, src, credstore.Request{Rejected: secret.New(fmt.Sprintf("A-new-%d", i))}, fmt.Sprintf("A-new-%d", i+1))
	}
	if forced := sessionOf(t, dir, box)["forced"].([]any); len(forced) != 1 {
		t.Errorf("%d sends are noted as forced", len(forced))
	}
}

func TestTenHoldersOfOneRejectedTokenMakeOneExchange(t *testing.T) {
	for _, stores := range []int{1, 10} {
		t.Run(fmt.Sprint(stores), func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(time.Hour))})
			a := &authority{}
			var all []*credstore.Store
			for range stores {
				all = append(all, open(t, credstore.Config{Dir: dir}))
			}
			start := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 10 {
				src := sourceOf(t, all[i%stores], box, a)
				mustGive(t, src, credstore.Request{}, "A0")
				wg.Go(func() {
					<-start
					mustGive(t, src, credstore.Request{Rejected: secret.New("A0")}, "A-new-1")
				})
			}
			close(start)
			wg.Wait()
			mustHaveSent(t, a, "R0")
			// Who comes later with the same news adopts, too.
			mustGive(t, sourceOf(t, all[0], box, a), credstore.Request{Rejected: secret.New("A0")}, "A-new-1")
			mustHaveSent(t, a, "R0")
		})
	}
}

// What the answer leaves out is kept, through any number of refreshes.
func TestWhatTheAnswerLeavesOutIsKept(t *testing.T) {
	dir := stateDir(t)
	s := open(t, credstore.Config{Dir: dir})
	in := signedIn("R0", "A0")
	in.Tokens.Org = "acme"
	if err := onlyError(s.Login(t.Context(), box, in)); err != nil {
		t.Fatal(err)
	}
	a := &authority{}
	a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		tokens := a.rotated(n)
		if n < 4 {
			tokens.RefreshToken = secret.Secret{}
		} else {
			tokens.Scope, tokens.Org = []string{"read"}, "other"
		}
		return tokens, nil
	}
	src := sourceOf(t, s, box, a)
	for i := 1; i < 4; i++ {
		mustGive(t, src, credstore.Request{Refresh: true}, fmt.Sprintf("A-new-%d", i))
		r, pin := storeOf(t, dir)[box], sessionOf(t, dir, box)["pin"].(map[string]any)
		if r["refreshToken"] != "R0" || r["org"] != "acme" || fmt.Sprint(pin["scope"]) != "[read write]" {
			t.Errorf("after refresh %d something was lost", i)
		}
	}
	mustGive(t, src, credstore.Request{Refresh: true}, "A-new-4")
	r, pin := storeOf(t, dir)[box], sessionOf(t, dir, box)["pin"].(map[string]any)
	if r["refreshToken"] != "R-new-4" || r["org"] != "other" || fmt.Sprint(pin["scope"]) != "[read]" {
		t.Error("a later replacement does not win")
	}
	mustHaveSent(t, a, "R0", "R0", "R0", "R0")
	if id := sessionOf(t, dir, box)["loginId"]; id == "" || id == nil {
		t.Error("the login id was lost")
	}
}
