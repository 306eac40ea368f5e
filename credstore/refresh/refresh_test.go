package refresh_test

import (
	"errors"
	"testing"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
)

func TestAnAnswerOfTheServerIsTheStoresWord(t *testing.T) {
	for name, tt := range map[string]struct {
		script spendoncetest.Answer
		client string
		want   credstore.Failure
	}{
		"a spent token":         {client: "-", want: credstore.Failure{Class: credstore.ClassRefused, Status: 400, Code: "invalid_grant"}},
		"an unknown client":     {client: "nobody", want: credstore.Failure{Class: credstore.ClassClientDead, Status: 401, Code: "invalid_client"}},
		"a server that is down": {script: spendoncetest.Answer{Status: 503}, want: credstore.Failure{Class: credstore.ClassTemporary, Status: 503}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			grant := grantOf(s)
			switch tt.client {
			case "":
				if err := s.Script(tt.script); err != nil {
					t.Fatal(err)
				}
			case "-":
				if _, err := refresh.Exchange(nil)(t.Context(), grant); err != nil {
					t.Fatal(err)
				}
			default:
				grant.Pin.ClientID = tt.client
			}
			_, err := refresh.Exchange(nil)(t.Context(), grant)
			var got *credstore.Failure
			if !errors.As(err, &got) || got.Class != tt.want.Class || got.Status != tt.want.Status || got.Code != tt.want.Code {
				t.Errorf("%v (%+v), want %+v", err, got, tt.want)
			}
		})
	}
}

func TestATokenThatWasNotSentIsNotSpent(t *testing.T) {
	s := start(t)
	grant := grantOf(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := refresh.Exchange(nil)(t.Context(), grant)
	var got *credstore.Failure
	if !errors.As(err, &got) || !got.Unprocessed || !got.Broken || got.Class != credstore.ClassTemporary {
		t.Errorf("%v (%+v), want a temporary failure that sent nothing", err, got)
	}
}

func TestASuccessKeepsWhatTheServerGave(t *testing.T) {
	s := start(t)
	grant := grantOf(s)
	got, err := refresh.Exchange(nil)(t.Context(), grant)
	if err != nil {
		t.Fatal(err)
	}
	if got.AccessToken.Empty() || got.RefreshToken.Empty() || got.RefreshToken.Equal(grant.RefreshToken) ||
		got.ExpiresAt.IsZero() || got.Lifetime <= 0 || got.ServerDate.IsZero() {
		t.Errorf("the answer became %+v", got)
	}
	if c := s.Counters(); c.Exchanges != 1 || c.DoubleSpends != 0 {
		t.Errorf("the server counted %+v", c)
	}
}

func TestAPinIsTheServerAndClientOfItsSession(t *testing.T) {
	pin := credstore.Pin{
		Issuer: "i", AuthorizationEndpoint: "a", TokenEndpoint: "t", RevocationEndpoint: "r", RegistrationEndpoint: "g",
		ClientID: "c", ClientSecret: secret.New("s"), ClientAuth: "client_secret_basic", Dialect: "hypaware",
	}
	s, c := refresh.Server(pin), refresh.Client(pin)
	if s.Issuer != "i" || s.AuthorizationEndpoint != "a" || s.TokenEndpoint != "t" || s.RevocationEndpoint != "r" ||
		s.RegistrationEndpoint != "g" || s.Dialect != "hypaware" || len(s.TokenAuthMethods) != 1 || s.TokenAuthMethods[0] != "client_secret_basic" {
		t.Errorf("server %+v", s)
	}
	if c.ID != "c" || !c.Secret.Equal(pin.ClientSecret) {
		t.Errorf("client %+v", c)
	}
}

func start(t *testing.T) *spendoncetest.TokenServer {
	t.Helper()
	s, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func grantOf(s *spendoncetest.TokenServer) credstore.Grant {
	return credstore.Grant{
		Pin:          credstore.Pin{TokenEndpoint: s.TokenEndpoint(), ClientID: s.ClientID()},
		RefreshToken: s.NewSession("alice").RefreshToken,
	}
}
