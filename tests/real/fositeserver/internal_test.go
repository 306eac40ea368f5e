package fositeserver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ory/fosite"
)

// These tests are inside the package: they go past the tap, to the parts as
// they are shipped.

func issue(t *testing.T, s *Server) (accessToken, refreshToken string) {
	t.Helper()
	ctx := t.Context()
	verifier := strings.Repeat("v", 43)
	sum := sha256.Sum256([]byte(verifier))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.AuthorizationEndpoint()+"?"+url.Values{
		"response_type":         {"code"},
		"client_id":             {ClientID},
		"redirect_uri":          {"http://127.0.0.1:1/callback"},
		"scope":                 {"offline_access"},
		"state":                 {"a-long-enough-state"},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(sum[:])},
		"code_challenge_method": {"S256"},
	}.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := s.provider.NewAuthorizeRequest(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	asked.GrantScope("offline_access")
	allowed, err := s.provider.NewAuthorizeResponse(ctx, asked, new(fosite.DefaultSession))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := accept(ctx, s, url.Values{
		"grant_type":    {"authorization_code"},
		"client_id":     {ClientID},
		"redirect_uri":  {"http://127.0.0.1:1/callback"},
		"code":          {allowed.GetParameters().Get("code")},
		"code_verifier": {verifier},
	})
	if err != nil {
		t.Fatal(err)
	}
	return grant(t, s, answer)
}

// accept is the first half of a token request: the server looks the token up.
func accept(ctx context.Context, s *Server, form url.Values) (fosite.AccessRequester, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.TokenEndpoint(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.provider.NewAccessRequest(ctx, request, new(fosite.DefaultSession))
}

// grant is the second half: the server retires it and issues new ones.
func grant(t *testing.T, s *Server, accepted fosite.AccessRequester) (accessToken, refreshToken string) {
	t.Helper()
	response, err := s.provider.NewAccessResponse(t.Context(), accepted)
	if err != nil {
		t.Fatal(err)
	}
	refreshToken, _ = response.GetExtra("refresh_token").(string)
	return response.GetAccessToken(), refreshToken
}

func refreshForm(token string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "client_id": {ClientID}, "refresh_token": {token}}
}

// The reason why the tap lets one token request through at a time. If this
// test fails one day, the store has learnt to notice, and the tap may be freed.
func TestStoreAsShippedMissesTwoUsesAtTheSameInstant(t *testing.T) {
	s, err := Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx := t.Context()
	_, token := issue(t, s)

	one, err := accept(ctx, s, refreshForm(token))
	if err != nil {
		t.Fatal(err)
	}
	two, err := accept(ctx, s, refreshForm(token))
	if err != nil {
		t.Fatal(err)
	}
	_, first := grant(t, s, one)
	_, second := grant(t, s, two)
	if s.RefreshLive(ctx, first) {
		t.Error("the first winner's refresh token is live: the family has two heads")
	}
	if !s.RefreshLive(ctx, second) {
		t.Error("the second use was noticed")
	}
}

func TestRetiredTokenOfAnyAgeEndsTheFamily(t *testing.T) {
	s, err := Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx := t.Context()
	_, oldest := issue(t, s)
	access, newest := "", oldest
	for range 3 {
		accepted, err := accept(ctx, s, refreshForm(newest))
		if err != nil {
			t.Fatal(err)
		}
		access, newest = grant(t, s, accepted)
	}
	if _, err := accept(ctx, s, refreshForm(oldest)); err == nil {
		t.Fatal("a token that was retired three refreshes ago was accepted")
	}
	if s.Live(ctx, access) || s.RefreshLive(ctx, newest) {
		t.Error("the family outlived the reuse")
	}
}

func TestRevocationOfEitherTokenEndsBoth(t *testing.T) {
	for _, which := range []string{"access", "refresh"} {
		t.Run(which, func(t *testing.T) {
			s, err := Start(Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			ctx := t.Context()
			access, refresh := issue(t, s)
			token := map[string]string{"access": access, "refresh": refresh}[which]
			response, err := http.PostForm(s.issuer+revokePath, url.Values{"token": {token}, "client_id": {ClientID}})
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("status %d", response.StatusCode)
			}
			if s.Live(ctx, access) || s.RefreshLive(ctx, refresh) {
				t.Error("a token is still live")
			}
		})
	}
}

func TestResourceAndIntrospectionFollowTheToken(t *testing.T) {
	s, err := Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx := t.Context()
	access, _ := issue(t, s)
	if !introspectsActive(ctx, t, s, access) || !resourceAccepts(ctx, t, s, access) {
		t.Error("a live token is not accepted")
	}
	if err := s.KillAccessToken(ctx, access); err != nil {
		t.Fatal(err)
	}
	if introspectsActive(ctx, t, s, access) || resourceAccepts(ctx, t, s, access) {
		t.Error("a dead token is accepted")
	}
	if err := s.KillAccessToken(ctx, access); err == nil {
		t.Error("a dead token was killed again")
	}
}

func TestShortLifetimeIsKept(t *testing.T) {
	s, err := Start(Config{AccessTokenLifetime: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	access, _ := issue(t, s)
	// fosite rounds to the second: born expired is as good as one second later.
	deadline := time.Now().Add(time.Minute)
	for s.Live(t.Context(), access) {
		if time.Now().After(deadline) {
			t.Fatal("a token of one second lives for a minute")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func introspectsActive(ctx context.Context, t *testing.T, s *Server, token string) bool {
	t.Helper()
	form := url.Values{"token": {token}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.issuer+introspectPath, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(ResourceID, ResourceSecret)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var said struct {
		Active bool `json:"active"`
	}
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("introspection: status %d, %v", response.StatusCode, err)
	}
	return said.Active
}

func resourceAccepts(ctx context.Context, t *testing.T, s *Server, token string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Resource(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}
