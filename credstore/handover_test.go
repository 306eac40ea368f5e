package credstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
)

func loginNamed(id string) credstore.SignedIn {
	return credstore.SignedIn{
		URL: "https://api.example.com", LoginID: id, Pin: credstore.Pin{TokenEndpoint: "https://a.example.com/token", ClientID: "c"},
		Tokens: credstore.Tokens{AccessToken: credstore.NewSecret("A0"), RefreshToken: credstore.NewSecret("R0"), ExpiresAt: in(time.Hour)},
	}
}

// unconfigured is the source of a target that only its session file describes.
func unconfigured(t *testing.T, s *credstore.Store, a *authority) *credstore.Source {
	t.Helper()
	src, err := s.Source(credstore.SourceConfig{Target: box, Exchange: a.exchange})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func TestALoginIsKnownByTheNameItWasGiven(t *testing.T) {
	s := open(t, credstore.Config{Dir: stateDir(t)})
	ctx := context.Background()
	if held, err := s.Settled(ctx, box, "mine"); held || err != nil {
		t.Fatalf("before: %t, %v", held, err)
	}
	if _, err := s.Login(ctx, box, loginNamed("mine")); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"mine": true, "another": false} {
		if held, err := s.Settled(ctx, box, id); held != want || err != nil {
			t.Errorf("login %q: %t, %v", id, held, err)
		}
	}
	if entries, err := s.List(); err != nil || entries[0].LoginID != "mine" {
		t.Errorf("the list says %v, %v", entries, err)
	}
}

func TestALoginForNewTargetsOnlyReplacesNothing(t *testing.T) {
	s := open(t, credstore.Config{Dir: stateDir(t)})
	ctx := context.Background()
	first := loginNamed("first")
	first.OnlyNew = true
	if _, err := s.Login(ctx, box, first); err != nil {
		t.Fatal(err)
	}
	second := loginNamed("second")
	second.OnlyNew = true
	if _, err := s.Login(ctx, box, second); !errors.Is(err, credstore.ErrTaken) {
		t.Errorf("%v", err)
	}
	if held, err := s.Settled(ctx, box, "first"); !held || err != nil {
		t.Errorf("the first login is gone: %v", err)
	}
}

func TestHandingOverGivesTheTokensThatAreCurrentAndRemovesThem(t *testing.T) {
	s := open(t, credstore.Config{Dir: stateDir(t)})
	ctx := context.Background()
	if _, err := s.Login(ctx, box, loginNamed("mine")); err != nil {
		t.Fatal(err)
	}
	mustGive(t, unconfigured(t, s, &authority{}), credstore.Request{Refresh: true}, "A-new-1")

	failed := errors.New("no room")
	if err := s.HandOver(ctx, box, "mine", func(credstore.Handover) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a keeper that failed: %v", err)
	}
	if err := s.HandOver(ctx, box, "another", func(credstore.Handover) error { return nil }); !errors.Is(err, credstore.ErrNoCredential) {
		t.Errorf("another login: %v", err)
	}
	mustGive(t, unconfigured(t, s, &authority{}), credstore.Request{}, "A-new-1")

	var got credstore.Handover
	if err := s.HandOver(ctx, box, "mine", func(h credstore.Handover) error { got = h; return nil }); err != nil {
		t.Fatal(err)
	}
	if got.Tokens.AccessToken.Reveal() != "A-new-1" || got.Tokens.RefreshToken.Reveal() == "R0" || got.Pin.ClientID != "c" {
		t.Error("what was handed over is not current")
	}
	mustRefuse(t, unconfigured(t, s, &authority{}), credstore.Request{}, credstore.ErrNoCredential)
}

// A refresh that is under way is waited for: what it spends is not handed over.
func TestHandingOverWaitsForARefresh(t *testing.T) {
	s := open(t, credstore.Config{Dir: stateDir(t)})
	ctx := context.Background()
	if _, err := s.Login(ctx, box, loginNamed("mine")); err != nil {
		t.Fatal(err)
	}
	sending, answer := make(chan struct{}), make(chan struct{})
	src, err := s.Source(credstore.SourceConfig{Target: box, Exchange: func(context.Context, credstore.Grant) (credstore.Tokens, error) {
		close(sending)
		<-answer
		return credstore.Tokens{AccessToken: credstore.NewSecret("A1"), RefreshToken: credstore.NewSecret("R1"), ExpiresAt: in(time.Hour)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	refreshed := make(chan error, 1)
	go func() { refreshed <- onlyError(src.Get(ctx, credstore.Request{Refresh: true})) }()
	<-sending
	given := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		done <- s.HandOver(ctx, box, "mine", func(h credstore.Handover) error { given <- h.Tokens.RefreshToken.Reveal(); return nil })
	}()
	select {
	case token := <-given:
		t.Errorf("%s was handed over while it was spent", token)
	case <-time.After(50 * time.Millisecond):
	}
	close(answer)
	if err := errors.Join(<-refreshed, <-done); err != nil {
		t.Fatal(err)
	}
	if token := <-given; token != "R1" {
		t.Errorf("%s was handed over", token)
	}
}

func TestWhatMayBeSpentIsNotHandedOver(t *testing.T) {
	for name, f := range map[string]credstore.Failure{
		"a refused token":   {Class: credstore.ClassRefused},
		"an unknown answer": {Class: credstore.ClassTemporary},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, credstore.Config{Dir: stateDir(t)})
			ctx := context.Background()
			if _, err := s.Login(ctx, box, loginNamed("mine")); err != nil {
				t.Fatal(err)
			}
			_, _ = unconfigured(t, s, &authority{answer: failing(f)}).Get(ctx, credstore.Request{Refresh: true})
			err := s.HandOver(ctx, box, "mine", func(credstore.Handover) error { t.Error("it was handed over"); return nil })
			if !errors.Is(err, credstore.ErrLoginRequired) {
				t.Errorf("%v", err)
			}
		})
	}
}

// An answer without the token that the target hands out renews the session all
// the same, and nobody spends one refresh token after the other on it.
func TestAnAnswerWithNothingToHandOutKeepsTheSessionAndTheBackOff(t *testing.T) {
	s := open(t, credstore.Config{Dir: stateDir(t)})
	ctx := context.Background()
	login := loginNamed("mine")
	login.Pin.TokenUse = credstore.UseIDToken
	if _, err := s.Login(ctx, box, login); err != nil {
		t.Fatal(err)
	}
	sent := 0
	src, err := s.Source(credstore.SourceConfig{Target: box, Exchange: func(_ context.Context, g credstore.Grant) (credstore.Tokens, error) {
		if sent++; g.Pin.TokenUse != credstore.UseIDToken {
			t.Error("the exchange is not told which token is wanted")
		}
		return credstore.Tokens{RefreshToken: credstore.NewSecret("R1")}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := src.Get(ctx, credstore.Request{Rejected: credstore.NewSecret("A0")}); !errors.Is(err, credstore.ErrRequest) || !strings.Contains(err.Error(), "ID token") {
			t.Errorf("%v", err)
		}
	}
	if sent != 1 {
		t.Errorf("%d tokens were spent", sent)
	}
	var got credstore.Handover
	if err := s.HandOver(ctx, box, "mine", func(h credstore.Handover) error { got = h; return nil }); err != nil {
		t.Fatal(err)
	}
	if got.Tokens.RefreshToken.Reveal() != "R1" || got.Tokens.AccessToken.Reveal() != "A0" {
		t.Error("the session was not renewed, or lost its last token")
	}
}
