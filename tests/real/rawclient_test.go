package real_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/real/person"
)

// rawClient speaks OAuth 2.0 with nothing but net/http. It shares no code with
// spendonce, and it is naive: it spends a refresh token whenever it is told to.
type rawClient struct {
	server   server
	callback *httptest.Server
	landed   chan url.Values
}

func newRawClient(t *testing.T, s server) *rawClient {
	t.Helper()
	c := &rawClient{server: s, landed: make(chan url.Values, 1)}
	c.callback = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case c.landed <- r.URL.Query():
		default:
		}
		_, _ = io.WriteString(w, "you may close this page")
	}))
	t.Cleanup(c.callback.Close)
	return c
}

func (c *rawClient) redirectURI() string { return c.callback.URL + "/callback" }

func (c *rawClient) authorizationURL(challenge string) string {
	query := url.Values{
		"response_type":         {"code"},
		"client_id":             {c.server.ClientID()},
		"redirect_uri":          {c.redirectURI()},
		"scope":                 {strings.Join(c.server.Scopes(), " ")},
		"state":                 {rand.Text()},
		"code_challenge":        {challenge},
		"code_challenge_method": {"S256"},
	}
	return c.server.AuthorizationEndpoint() + "?" + query.Encode()
}

// tokenAnswer is what a token endpoint says.
type tokenAnswer struct {
	Status       int    `json:"-"`
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	ExpiresIn    int    `json:"expires_in"`
	Error        string `json:"error"`
}

// signIn lets somebody sign in and exchanges the code.
func (c *rawClient) signIn(ctx context.Context, who person.Person) (tokenAnswer, error) {
	verifier := rand.Text() + rand.Text()
	landed, err := c.authorize(ctx, who, challengeOf(verifier))
	if err != nil {
		return tokenAnswer{}, err
	}
	if code := landed.Get("error"); code != "" {
		return tokenAnswer{Error: code}, nil
	}
	return c.exchange(ctx, landed.Get("code"), verifier)
}

func (c *rawClient) authorize(ctx context.Context, who person.Person, challenge string) (url.Values, error) {
	if _, err := who.SignIn(ctx, c.authorizationURL(challenge)); err != nil {
		return nil, err
	}
	select {
	case landed := <-c.landed:
		return landed, nil
	default:
		return nil, fmt.Errorf("the browser arrived, the callback did not")
	}
}

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (c *rawClient) exchange(ctx context.Context, code, verifier string) (tokenAnswer, error) {
	return c.post(ctx, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {c.redirectURI()},
		"client_id":     {c.server.ClientID()},
		"code_verifier": {verifier},
	})
}

func (c *rawClient) refresh(ctx context.Context, refreshToken string) (tokenAnswer, error) {
	return c.post(ctx, url.Values{
		"grant_type":    {"refresh_token"},
		"refresh_token": {refreshToken},
		"client_id":     {c.server.ClientID()},
	})
}

func (c *rawClient) post(ctx context.Context, form url.Values) (tokenAnswer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.TokenEndpoint(), strings.NewReader(form.Encode()))
	if err != nil {
		return tokenAnswer{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return tokenAnswer{}, err
	}
	defer response.Body.Close()
	answer := tokenAnswer{Status: response.StatusCode}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&answer); err != nil {
		return tokenAnswer{}, fmt.Errorf("token answer with status %d: %w", response.StatusCode, err)
	}
	return answer, nil
}

// mustSignIn is signIn for tests that are about what comes after it.
func (c *rawClient) mustSignIn(ctx context.Context, t *testing.T) tokenAnswer {
	t.Helper()
	got, err := c.signIn(ctx, c.server.Account())
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != http.StatusOK || got.AccessToken == "" || got.RefreshToken == "" {
		t.Fatalf("signing in: status %d, error %q, access token %t, refresh token %t",
			got.Status, got.Error, got.AccessToken != "", got.RefreshToken != "")
	}
	return got
}
