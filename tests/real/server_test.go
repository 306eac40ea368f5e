package real_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/real/fositeserver"
	"github.com/spendonce/spendonce/tests/real/person"
	"github.com/spendonce/spendonce/tests/real/wiretap"
	"github.com/spendonce/spendonce/tests/real/zitadelserver"
)

// authority is an authorization server at which somebody signs in.
type authority interface {
	Issuer() string
	AuthorizationEndpoint() string
	Account() person.Person
	Secrets() map[string]string

	Live(ctx context.Context, accessToken string) bool
	RefreshLive(ctx context.Context, refreshToken string) bool
}

// server is an authority under which every way of the program is judged.
type server interface {
	authority
	Resource() string
	TokenEndpoint() string
	ClientID() string
	Scopes() []string
	Tap() *wiretap.Tap

	KillAccessToken(ctx context.Context, accessToken string) error
	EndSession(ctx context.Context, refreshToken string) error
}

// judge is one implementation and what is known of its ways.
type judge struct {
	name  string
	start func(*testing.T) server

	// revokesFamily: a retired refresh token that comes back ends the session.
	revokesFamily bool

	// account is how the ID token names who signed in, if there is one. zitadel
	// tells the mail address to who asks the userinfo endpoint only.
	account string
}

var judges = []judge{
	{name: "fosite", start: startFosite, revokesFamily: true},
	{name: "zitadel", start: startZitadel, account: "id1"},
}

func startFosite(t *testing.T) server {
	t.Helper()
	s, err := fositeserver.Start(fositeserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func startZitadel(t *testing.T) server {
	t.Helper()
	s := zitadelserver.Start(zitadelserver.Config{})
	t.Cleanup(s.Close)
	return s
}

// underEach runs a test once for each authorization server.
func underEach(t *testing.T, test func(t *testing.T, j judge, s server)) {
	t.Helper()
	for _, j := range judges {
		t.Run(j.name, func(t *testing.T) { test(t, j, j.start(t)) })
	}
}

// patience bounds whatever a test waits for. Nothing is expected to come near.
const patience = 2 * time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// The tests below judge the judges: with a client that is not ours, each server
// has to show the behaviour that the tests of the program rely on.

func TestServerSignsInByItsFormAndIssuesALivePair(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		got := newRawClient(t, s).mustSignIn(ctx, t)
		if !s.Live(ctx, got.AccessToken) {
			t.Error("a fresh access token is not live")
		}
		if !s.RefreshLive(ctx, got.RefreshToken) {
			t.Error("a fresh refresh token is not live")
		}
		if s.Live(ctx, got.AccessToken+"x") || s.Live(ctx, got.RefreshToken) || s.Live(ctx, "") {
			t.Error("something that is no access token is called live")
		}
		if s.RefreshLive(ctx, got.AccessToken) || s.RefreshLive(ctx, "") {
			t.Error("something that is no refresh token is called live")
		}
		if n := s.Tap().TokenPosts("authorization_code"); n != 1 {
			t.Errorf("%d code exchanges counted, want 1", n)
		}
	})
}

func TestServerRotatesAndRefusesTheOldToken(t *testing.T) {
	underEach(t, func(t *testing.T, j judge, s server) {
		ctx := testContext(t)
		client := newRawClient(t, s)
		first := client.mustSignIn(ctx, t)

		second, err := client.refresh(ctx, first.RefreshToken)
		if err != nil || second.Status != http.StatusOK {
			t.Fatalf("refresh: status %d, error %q, %v", second.Status, second.Error, err)
		}
		if second.RefreshToken == first.RefreshToken || second.AccessToken == first.AccessToken {
			t.Fatal("a refresh did not replace both tokens")
		}
		if s.RefreshLive(ctx, first.RefreshToken) || s.Live(ctx, first.AccessToken) {
			t.Error("the pair before the refresh is still live")
		}
		if !s.RefreshLive(ctx, second.RefreshToken) || !s.Live(ctx, second.AccessToken) {
			t.Error("the new pair is not live")
		}

		again, err := client.refresh(ctx, first.RefreshToken)
		if err != nil || again.Error != "invalid_grant" {
			t.Fatalf("reuse: status %d, error %q, %v; want invalid_grant", again.Status, again.Error, err)
		}
		if alive := s.RefreshLive(ctx, second.RefreshToken); alive == j.revokesFamily {
			t.Errorf("after the reuse the family is alive: %t; the table says it is revoked: %t", alive, j.revokesFamily)
		}
		if alive := s.Live(ctx, second.AccessToken); alive == j.revokesFamily {
			t.Errorf("after the reuse the access token is live: %t; the table says it is revoked: %t", alive, j.revokesFamily)
		}
		if n := s.Tap().TokenPosts("refresh_token"); n != 2 {
			t.Errorf("%d refreshes counted, want 2", n)
		}
	})
}

// What the program is for: clients that do not share lose the session.
func TestServerLetsOneOfManyNaiveClientsThrough(t *testing.T) {
	underEach(t, func(t *testing.T, j judge, s server) {
		ctx := testContext(t)
		client := newRawClient(t, s)
		first := client.mustSignIn(ctx, t)

		const clients = 16
		answers := make([]tokenAnswer, clients)
		errs := make([]error, clients)
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				<-start
				answers[i], errs[i] = client.refresh(ctx, first.RefreshToken)
			})
		}
		close(start)
		all.Wait()

		var won []tokenAnswer
		for i, answer := range answers {
			switch {
			case errs[i] != nil:
				t.Error(errs[i])
			case answer.Status == http.StatusOK:
				won = append(won, answer)
			case answer.Error != "invalid_grant":
				t.Errorf("a loser got status %d, error %q; want invalid_grant", answer.Status, answer.Error)
			}
		}
		if len(won) != 1 {
			t.Fatalf("%d of %d simultaneous uses succeeded, want 1", len(won), clients)
		}
		if alive := s.RefreshLive(ctx, won[0].RefreshToken); alive == j.revokesFamily {
			t.Errorf("afterwards the family is alive: %t; the table says it is revoked: %t", alive, j.revokesFamily)
		}
		if n := s.Tap().TokenPosts("refresh_token"); n != clients {
			t.Errorf("%d refreshes counted, want %d", n, clients)
		}
	})
}

func TestServerEndsOneAccessTokenAndKeepsTheFamily(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		client := newRawClient(t, s)
		first := client.mustSignIn(ctx, t)
		if err := s.KillAccessToken(ctx, first.AccessToken); err != nil {
			t.Fatal(err)
		}
		if s.Live(ctx, first.AccessToken) {
			t.Error("the access token is still live")
		}
		second, err := client.refresh(ctx, first.RefreshToken)
		if err != nil || !s.Live(ctx, second.AccessToken) {
			t.Errorf("the family did not survive: status %d, error %q, %v", second.Status, second.Error, err)
		}
	})
}

func TestServerEndsAWholeSession(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		client := newRawClient(t, s)
		first := client.mustSignIn(ctx, t)
		if err := s.EndSession(ctx, first.RefreshToken); err != nil {
			t.Fatal(err)
		}
		if s.Live(ctx, first.AccessToken) || s.RefreshLive(ctx, first.RefreshToken) {
			t.Error("a token of the ended session is live")
		}
		if answer, err := client.refresh(ctx, first.RefreshToken); err != nil || answer.Error != "invalid_grant" {
			t.Errorf("refresh: status %d, error %q, %v; want invalid_grant", answer.Status, answer.Error, err)
		}
	})
}

func TestServerWantsTheVerifierOfTheChallenge(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		client := newRawClient(t, s)
		landed, err := client.authorize(ctx, s.Account(), challengeOf(strings.Repeat("a", 43)))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.exchange(ctx, landed.Get("code"), strings.Repeat("b", 43))
		if err != nil || answer.Error != "invalid_grant" {
			t.Errorf("wrong verifier: status %d, error %q, %v; want invalid_grant", answer.Status, answer.Error, err)
		}
	})
}

func TestServerAsksAgainAfterAWrongPassword(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		who := s.Account()
		who.Mistyped = []string{"wrong", "wrong again"}
		got, err := newRawClient(t, s).signIn(ctx, who)
		if err != nil || !s.Live(ctx, got.AccessToken) {
			t.Errorf("status %d, error %q, %v", got.Status, got.Error, err)
		}
		// Somebody who never gets it right never arrives.
		stranger := person.Person{Username: who.Username, Password: "guess"}
		if _, err := newRawClient(t, s).signIn(ctx, stranger); err == nil {
			t.Error("a stranger signed in")
		}
	})
}
