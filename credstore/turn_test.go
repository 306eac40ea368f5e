package credstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

// asked is how a wait for the turn ended.
type asked struct {
	turn    *credstore.Turn
	adopted bool
	err     error
}

// askInVain asks for a turn that somebody else has, and returns when the
// process waits.
func askInVain(ctx context.Context, t *testing.T, dir string, enough <-chan struct{}) <-chan asked {
	t.Helper()
	s := open(t, credstore.Config{Dir: dir})
	waiting, ended := make(chan struct{}), make(chan asked, 1)
	go func() {
		var a asked
		a.turn, a.adopted, a.err = s.LoginTurn(ctx, box, "", func() { close(waiting) }, enough)
		ended <- a
	}()
	<-waiting
	return ended
}

// taken is a turn that another process has.
func taken(t *testing.T, dir string) (*credstore.Store, *credstore.Turn) {
	t.Helper()
	s := open(t, credstore.Config{Dir: dir})
	turn, adopted, err := s.LoginTurn(context.Background(), box, "", func() { t.Error("it waits for nobody") }, nil)
	if turn == nil || adopted || err != nil {
		t.Fatalf("the first to ask got %v, %v, %v", turn, adopted, err)
	}
	t.Cleanup(turn.End)
	return s, turn
}

func TestWhoWaitsForALoginOfAnotherProcessAdoptsIt(t *testing.T) {
	dir := stateDir(t)
	s, turn := taken(t, dir)
	ended := askInVain(context.Background(), t, dir, nil)
	_, err := s.Login(context.Background(), box, credstore.SignedIn{
		Pin: credstore.Pin{TokenEndpoint: "https://as.example/token"}, Tokens: credstore.Tokens{AccessToken: secret.New("A"), RefreshToken: secret.New("R")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := <-ended; !a.adopted || a.turn != nil || a.err != nil {
		t.Errorf("it got %+v", a)
	}
	turn.End()
}

// Who begins beside another login may come to its turn only when that is over.
func TestALoginThatEndedSinceTheCallerBeganIsAdopted(t *testing.T) {
	s := open(t, credstore.Config{Dir: stateDir(t)})
	began, _, err := s.Known(box)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Login(context.Background(), box, credstore.SignedIn{
		Pin: credstore.Pin{TokenEndpoint: "https://as.example/token"}, Tokens: credstore.Tokens{AccessToken: secret.New("A"), RefreshToken: secret.New("R")},
	})
	if err != nil {
		t.Fatal(err)
	}
	turn, adopted, err := s.LoginTurn(context.Background(), box, began.Login, func() { t.Error("it waits for nobody") }, nil)
	if turn != nil || !adopted || err != nil {
		t.Errorf("it got %v, %v, %v", turn, adopted, err)
	}
	now, _, _ := s.Known(box)
	turn, adopted, err = s.LoginTurn(context.Background(), box, now.Login, nil, nil)
	if turn == nil || adopted || err != nil {
		t.Errorf("a later one got %v, %v, %v", turn, adopted, err)
	}
	turn.End()
}

func TestATurnThatEndsWithoutALoginGoesToTheNext(t *testing.T) {
	dir := stateDir(t)
	_, turn := taken(t, dir)
	ended := askInVain(context.Background(), t, dir, nil)
	turn.End()
	a := <-ended
	if a.turn == nil || a.adopted || a.err != nil {
		t.Errorf("it got %+v", a)
	}
	a.turn.End()
}

func TestWhoWillNotWaitGoesOnWithoutATurn(t *testing.T) {
	dir := stateDir(t)
	taken(t, dir)
	enough := make(chan struct{})
	ended := askInVain(context.Background(), t, dir, enough)
	close(enough)
	if a := <-ended; a.turn != nil || a.adopted || a.err != nil {
		t.Errorf("it got %+v", a)
	}
}

func TestTheEndOfItsContextEndsTheWaitForATurn(t *testing.T) {
	dir := stateDir(t)
	taken(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	ended := askInVain(ctx, t, dir, nil)
	cancel()
	if a := <-ended; a.turn != nil || a.adopted || !errors.Is(a.err, context.Canceled) {
		t.Errorf("it got %+v", a)
	}
}

func TestATurnOfOneTargetIsNoneOfAnother(t *testing.T) {
	dir := stateDir(t)
	s, _ := taken(t, dir)
	turn, _, err := s.LoginTurn(context.Background(), other, "", func() { t.Error("it waits") }, nil)
	if turn == nil || err != nil {
		t.Errorf("got %v, %v", turn, err)
	}
	turn.End()
}

func TestATurnDoesNotKeepARefreshWaiting(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Second))})
	s, _ := taken(t, dir)
	a := &authority{}
	mustGive(t, sourceOf(t, s, box, a), credstore.Request{}, "A-new-1")
	if err := s.SetStatic(context.Background(), box, secret.New("S")); err != nil {
		t.Error(err)
	}
}

func TestThatAPersonDidNotSignInIsKnownToWhoeverHasTheTurnNext(t *testing.T) {
	dir := stateDir(t)
	_, turn := taken(t, dir)
	if at := turn.LastFailed(); !at.IsZero() {
		t.Errorf("it is said to have failed at %s", at)
	}
	before := time.Now().Truncate(time.Millisecond)
	turn.Failed()
	turn.End()
	_, turn = taken(t, dir)
	if at := turn.LastFailed(); at.Before(before) || at.After(time.Now()) {
		t.Errorf("it failed at %s, not after %s", at, before)
	}
	turn.End()
	for _, odd := range []string{"", "x", "17645478000000", "-764547800000", "1764547800"} {
		if err := os.WriteFile(filepath.Join(dir, "locks", box+".login"), []byte(odd), 0o600); err != nil {
			t.Fatal(err)
		}
		_, turn := taken(t, dir)
		if at := turn.LastFailed(); !at.IsZero() && odd != "-764547800000" {
			t.Errorf("%q says %s", odd, at)
		}
		turn.End()
	}
}
