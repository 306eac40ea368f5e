package bearer_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// shared is a strict server with a resource, and programs on one store.
type shared struct {
	server  *spendoncetest.TokenServer
	session spendoncetest.Session
	dir     string
}

func share(t *testing.T) *shared {
	t.Helper()
	server, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	s := &shared{server: server, session: server.NewSession("alice"), dir: filepath.Join(t.TempDir(), "state")}
	store := s.open(t)
	if _, err := store.Login(t.Context(), box, credstore.SignedIn{
		URL: server.ResourceURL(),
		Pin: credstore.Pin{Issuer: server.Issuer(), TokenEndpoint: server.TokenEndpoint(), ClientID: server.ClientID()},
		Tokens: credstore.Tokens{
			AccessToken: s.session.AccessToken, RefreshToken: s.session.RefreshToken, ExpiresAt: s.session.ExpiresAt,
		},
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// open is what a program does at its start.
func (s *shared) open(t *testing.T) *credstore.Store {
	t.Helper()
	store, err := credstore.Open(credstore.Config{Dir: s.dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return store
}

func (s *shared) client(t *testing.T) *http.Client {
	t.Helper()
	src, err := s.open(t).Source(credstore.SourceConfig{Target: box, Exchange: refresh.Exchange(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, bearer.Config{Source: src}, s.server.ResourceURL())
}

// B10: all hold the token that the resource has just begun to refuse.
func TestManyRequestsWithOneRefusedTokenCostOneExchange(t *testing.T) {
	s := share(t)
	if err := s.server.RevokeAccessToken(s.session.AccessToken.Reveal()); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		client := s.client(t)
		for range 8 {
			req := request(t, "GET", s.server.ResourceURL(), nil)
			all.Go(func() {
				if status, _, err := do(t, client, req); err != nil || status != 200 {
					t.Errorf("%d, %v", status, err)
				}
			})
		}
	}
	all.Wait()
	if c := s.server.Counters(); c.Exchanges != 1 || c.DoubleSpends != 0 || c.ResourceServed != 32 {
		t.Errorf("%d exchanges, %d double spends, %d served", c.Exchanges, c.DoubleSpends, c.ResourceServed)
	}
}

// B09: the brake is the store's, so it holds whoever asks.
func TestAResourceThatRefusesEverythingIsBraked(t *testing.T) {
	s := share(t)
	if err := s.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.RejectResource = true }); err != nil {
		t.Fatal(err)
	}
	var said []byte
	for i := range 12 {
		_, _, err := do(t, s.client(t), request(t, "GET", s.server.ResourceURL(), nil))
		var second *bearer.RejectedError
		if !errors.Is(err, credstore.ErrRejected) || !errors.As(err, &second) || (second.Err == nil) != (i < 5) {
			t.Errorf("request %d ends with %v", i, err)
			continue
		}
		said = append(said, err.Error()...)
	}
	// Twice each while there are tokens to try, and then once.
	if c := s.server.Counters(); c.Exchanges != 5 || c.ResourceRequests != 5*2+7 {
		t.Errorf("%d exchanges, %d requests", c.Exchanges, c.ResourceRequests)
	}
	canary.Absent(t, []canary.Value{{Name: "access token", Secret: s.session.AccessToken}, {Name: "refresh token", Secret: s.session.RefreshToken}},
		canary.Places{Outputs: map[string][]byte{"the errors": said}, Dirs: []string{s.dir}, Allow: []string{filepath.Join(s.dir, "remote-credentials.json")}})
}
