package real_test

import (
	"context"
	"sync"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/real/person"
)

// strictServer is the main module's own server in the company of the others.
// It does not show what crosses the wire; the secrets are what the tests met.
type strictServer struct {
	*spendoncetest.TokenServer
	account person.Person

	mu  sync.Mutex
	met map[string]string
}

func startStrict(t *testing.T, cfg spendoncetest.TokenServerConfig) *strictServer {
	t.Helper()
	s, err := spendoncetest.StartTokenServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	who := person.Person{Username: spendoncetest.DefaultUser, Password: spendoncetest.DefaultPassword}
	return &strictServer{TokenServer: s, account: who, met: map[string]string{}}
}

func (s *strictServer) AuthorizationEndpoint() string { return s.AuthorizationURL() }
func (s *strictServer) Account() person.Person        { return s.account }

func (s *strictServer) Live(_ context.Context, token string) bool {
	s.meet(token, "access_token")
	return s.TokenServer.Live(token)
}

func (s *strictServer) RefreshLive(_ context.Context, token string) bool {
	s.meet(token, "refresh_token")
	return s.Spendable(token)
}

func (s *strictServer) meet(token, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token != "" {
		s.met[token] = kind
	}
}

func (s *strictServer) Secrets() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]string, len(s.met))
	for token, kind := range s.met {
		all[token] = kind
	}
	return all
}
