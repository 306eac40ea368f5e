package credstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

// byClient is a session file that the client's own secret renews.
func byClient() session {
	return session{"loginId": "L0", "pin": map[string]any{
		"tokenEndpoint": "https://as.example/token", "clientId": "cid", "clientSecret": "cs", "grant": "client_credentials", "scope": []string{"read"},
	}}
}

// withoutRefreshToken is what a server gives to client credentials.
func withoutRefreshToken(a *authority) func(context.Context, int, credstore.Grant) (credstore.Tokens, error) {
	return func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		t := a.rotated(n)
		t.RefreshToken = secret.Secret{}
		return t, nil
	}
}

func TestTheClientsOwnSecretRenewsASessionWithoutARefreshToken(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("", "A0", in(-time.Second))})
	putSession(t, dir, box, byClient())
	a := &authority{}
	a.answer = withoutRefreshToken(a)
	s := open(t, credstore.Config{Dir: dir})
	src := sourceOf(t, s, box, a)
	for n := range 3 {
		want := []string{"A-new-1", "A-new-2", "A-new-3"}[n]
		mustGive(t, src, credstore.Request{Refresh: true}, want)
	}
	if got := storeOf(t, dir)[box]; got["refreshToken"] != "" || got["accessJwt"] != "A-new-3" {
		t.Errorf("the store holds %v", got)
	}
	for _, g := range a.grants() {
		if g.Pin.Grant != credstore.ClientCredentials || !g.RefreshToken.Empty() || len(g.Scope) != 1 {
			t.Errorf("the grant was %q with scope %q", g.Pin.Grant, g.Scope)
		}
	}
	entries, err := s.List()
	if err != nil || len(entries) != 1 || !entries[0].Refreshable {
		t.Errorf("the list says %+v, %v", entries, err)
	}
}

func TestAClientThatAsksAtOnceFromManyPlacesAsksOnce(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("", "A0", in(-time.Second))})
	putSession(t, dir, box, byClient())
	a := &authority{}
	a.answer = withoutRefreshToken(a)
	var wg sync.WaitGroup
	for range 8 {
		src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
		wg.Go(func() { mustGive(t, src, credstore.Request{}, "A-new-1") })
	}
	wg.Wait()
	mustHaveSent(t, a, "")
}

func TestALostAnswerCostsAClientCredentialsSessionNothing(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("", "A0", in(-time.Second))})
	putSession(t, dir, box, byClient())
	a := &authority{answer: failing(credstore.Failure{Class: credstore.ClassTemporary, Broken: true, Text: "gone"})}
	mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrTemporary)
	s := sessionOf(t, dir, box)
	s["notBefore"] = stamp(in(-time.Second))
	put(t, sessionPath(dir, box), sessionRole(box), s)
	a.mu.Lock()
	a.answer = withoutRefreshToken(a)
	a.mu.Unlock()
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, "A-new-3")
}

func TestALoginDuringARenewalByTheClientIsNotOverwritten(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("", "A0", in(-time.Second))})
	putSession(t, dir, box, byClient())
	a := &authority{}
	answer, arrived, proceed := held(withoutRefreshToken(a))
	a.answer = answer
	s := open(t, credstore.Config{Dir: dir})
	src := sourceOf(t, s, box, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = get(src, credstore.Request{})
	}()
	<-arrived
	_, err := s.Login(context.Background(), box, credstore.SignedIn{
		Pin: credstore.Pin{TokenEndpoint: "https://as.example/token", ClientID: "other", Grant: credstore.ClientCredentials}, Tokens: credstore.Tokens{AccessToken: secret.New("A-other"), ExpiresAt: in(time.Hour)},
	})
	if err != nil {
		t.Error(err)
	}
	close(proceed)
	<-done
	if got := storeOf(t, dir)[box]["accessJwt"]; got != "A-other" {
		t.Errorf("the store holds %v, not the token of the login", got)
	}
}

// forgotten is a session whose dynamic client the server has forgotten.
func forgotten(t *testing.T, registered bool) string {
	t.Helper()
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Second))})
	putSession(t, dir, box, session{"loginId": "L0", "pin": map[string]any{
		"tokenEndpoint": "https://as.example/token", "clientId": "old", "registered": registered, "scope": []string{"read"},
	}})
	return dir
}

// knowing answers only a client of this id, and counts registrations.
func knowing(a *authority, id string) (credstore.Register, func() int) {
	dead := failing(credstore.Failure{Class: credstore.ClassClientDead, Status: 401, Code: "invalid_client", Unprocessed: true})
	a.answer = func(ctx context.Context, n int, g credstore.Grant) (credstore.Tokens, error) {
		if g.Pin.ClientID != id {
			return dead(ctx, n, g)
		}
		return a.rotated(n), nil
	}
	count := 0
	return func(_ context.Context, p credstore.Pin) (credstore.Pin, error) {
		count++
		p.ClientID, p.ClientSecret = "new", secret.New("new-secret")
		return p, nil
	}, func() int { return count }
}

func TestAForgottenClientIsRegisteredAgainAndTheSessionGoesOn(t *testing.T) {
	dir := forgotten(t, true)
	a := &authority{}
	register, count := knowing(a, "new")
	src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{Target: box, Exchange: a.exchange, Register: register})
	mustGive(t, src, credstore.Request{}, "A-new-2")
	mustHaveSent(t, a, "R0", "R0")
	pin, _ := sessionOf(t, dir, box)["pin"].(map[string]any)
	if count() != 1 || pin["clientId"] != "new" || pin["clientSecret"] != "new-secret" || pin["registered"] != true {
		t.Errorf("%d registrations; the pin is %v", count(), pin)
	}
	mustGive(t, src, credstore.Request{Refresh: true}, "A-new-3")
	if count() != 1 {
		t.Errorf("%d registrations", count())
	}
}

func TestAServerThatForgetsEveryClientIsAskedForOneMoreOnly(t *testing.T) {
	dir := forgotten(t, true)
	a := &authority{}
	register, count := knowing(a, "nobody")
	for range 3 {
		src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{Target: box, Exchange: a.exchange, Register: register})
		mustRefuse(t, src, credstore.Request{}, credstore.ErrRequest)
		s := sessionOf(t, dir, box)
		s["notBefore"] = stamp(in(-time.Second))
		put(t, sessionPath(dir, box), sessionRole(box), s)
	}
	if count() != 1 {
		t.Errorf("%d registrations", count())
	}
	if got := storeOf(t, dir)[box]["refreshToken"]; got != "R0" {
		t.Errorf("the store holds the refresh token %v", got)
	}
}

func TestAClientThatSomebodyElseRegisteredIsNotRegisteredAgain(t *testing.T) {
	dir := forgotten(t, false)
	a := &authority{}
	register, count := knowing(a, "new")
	src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{Target: box, Exchange: a.exchange, Register: register})
	mustRefuse(t, src, credstore.Request{}, credstore.ErrRequest)
	if count() != 0 {
		t.Errorf("%d registrations", count())
	}
}

func TestARegistrationThatFailsKeepsTheSession(t *testing.T) {
	dir := forgotten(t, true)
	a := &authority{}
	knowing(a, "new")
	src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{
		Target: box, Exchange: a.exchange, Register: func(context.Context, credstore.Pin) (credstore.Pin, error) {
			return credstore.Pin{}, errors.New("refused")
		},
	})
	mustRefuse(t, src, credstore.Request{}, credstore.ErrRequest)
	pin, _ := sessionOf(t, dir, box)["pin"].(map[string]any)
	if pin["clientId"] != "old" || storeOf(t, dir)[box]["refreshToken"] != "R0" {
		t.Errorf("the pin is %v", pin)
	}
}

func TestTheGrantedScopeGoesWithARefreshWhereThatIsConfigured(t *testing.T) {
	dir := forgotten(t, false)
	a := &authority{}
	src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{
		Target: box, Exchange: a.exchange, Settings: func() (credstore.Settings, error) { return credstore.Settings{RefreshScope: true}, nil },
	})
	mustGive(t, src, credstore.Request{}, "A-new-1")
	if g := a.grants()[0]; len(g.Scope) != 1 || g.Scope[0] != "read" {
		t.Errorf("the scope sent was %q", g.Scope)
	}
}
