package oauthflow_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
	"github.com/spendonce/spendonce/spendoncetest"
)

// strict starts the strict server.
func strict(t *testing.T, cfg spendoncetest.TokenServerConfig) *spendoncetest.TokenServer {
	t.Helper()
	s, err := spendoncetest.StartTokenServer(cfg)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// discovered is the way from a URL to a server.
func discovered(t *testing.T, s *spendoncetest.TokenServer) (oauthflow.Resource, oauthflow.Server) {
	t.Helper()
	var r oauthflow.Requester
	resource, err := r.DiscoverResource(deadline(t), s.ResourceURL()+"/mcp")
	must(t, err)
	server, err := r.Discover(deadline(t), resource.AuthorizationServers[0])
	must(t, err)
	return resource, server
}

func TestAURLIsEnoughToSignInADevice(t *testing.T) {
	for name, cfg := range map[string]spendoncetest.TokenServerConfig{
		"a public client":       {},
		"a confidential client": {RequireClientSecret: true},
		"an issuer with a path": {IssuerPath: "/tenant/"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.RequireResource, cfg.ChallengeScope, cfg.DeviceInterval = "/resource/mcp", "files:read", 1
			s := strict(t, cfg)
			resource, server := discovered(t, s)
			if len(resource.ChallengeScope) != 1 || resource.ChallengeScope[0] != "files:read" || server.SupportsPKCE() != nil {
				t.Fatalf("%+v", resource)
			}
			var r oauthflow.Requester
			scopes := append([]string{"openid"}, resource.ChallengeScope...)
			made, err := r.Register(deadline(t), server, oauthflow.Registration{Scopes: scopes,
				GrantTypes: []string{"urn:ietf:params:oauth:grant-type:device_code", "refresh_token"}})
			must(t, err)
			server.TokenAuthMethods = []string{made.AuthMethod}
			var kept oauthflow.Result
			login := oauthflow.DeviceLogin{Server: server, Client: made.Client, Scopes: scopes, Resource: resource.Resource,
				Prompt: func(p oauthflow.DevicePrompt) { must(t, s.ApproveDevice(p.UserCode, "alice")) },
				Keep:   func(_ context.Context, got oauthflow.Result) error { kept = got; return nil }}
			login.Drive(func(context.Context, time.Duration) error { return nil }, 0)
			got, err := login.Run(deadline(t))
			must(t, err)
			if !s.Live(got.Tokens.AccessToken.Reveal()) || got.Account.Subject != "alice" || got.Tokens.Scope != "openid files:read" ||
				!kept.Tokens.AccessToken.Equal(got.Tokens.AccessToken) || got.Client.ID != made.Client.ID {
				t.Errorf("%+v", got)
			}
			_, err = r.Refresh(deadline(t), oauthflow.RefreshRequest{Server: server, Client: made.Client, RefreshToken: got.Tokens.RefreshToken, Resource: resource.Resource})
			must(t, err)
			if c := s.Counters(); c.Registrations != 1 || c.DeviceRequests != 1 || c.CodeExchanges != 1 || c.Exchanges != 1 || c.WrongTargets != 0 || c.ResourceRejected != 1 {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestAProgramSignsInInItsOwnName(t *testing.T) {
	s := strict(t, spendoncetest.TokenServerConfig{RequireResource: "/resource/mcp"})
	resource, server := discovered(t, s)
	var r oauthflow.Requester
	server.TokenAuthMethods = []string{"client_secret_basic"}
	made, err := r.Register(deadline(t), server, oauthflow.Registration{GrantTypes: []string{"client_credentials"}})
	must(t, err)
	ask := oauthflow.ClientCredentialsRequest{Server: server, Client: made.Client, Scopes: []string{"a", "b"}, Resource: resource.Resource}
	got, err := r.ClientCredentials(deadline(t), ask)
	must(t, err)
	if !s.Live(got.AccessToken.Reveal()) || got.Scope != "a b" || s.Counters().ClientCredentials != 1 {
		t.Errorf("%+v, %+v", got, s.Counters())
	}
	ask.Resource = ""
	if _, err := r.ClientCredentials(deadline(t), ask); asError(t, err).Code != "invalid_target" {
		t.Errorf("without the resource: %v", err)
	}
	ask.Client.Secret = secret.Secret{}
	if _, err := r.ClientCredentials(deadline(t), ask); !asError(t, err).NotSent || s.Counters().TokenPosts != 2 {
		t.Errorf("without a secret: %v", err)
	}
	must(t, s.Script(spendoncetest.Answer{Set: map[string]json.RawMessage{"refresh_token": json.RawMessage(`"RT-not-wanted"`)}}))
	ask.Resource, ask.Client = resource.Resource, made.Client
	if got, err := r.ClientCredentials(deadline(t), ask); err != nil || !got.RefreshToken.Empty() {
		t.Errorf("a refresh token was kept: %v", err)
	}
}

// secretOf is one of the canaries.
func secretOf(name string) secret.Secret { return secret.New(canaries[name]) }

func readAll(r *http.Request) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

func unescaped(s string) string {
	s, _ = url.QueryUnescape(s)
	return s
}
