package fositeserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/real/fositeserver"
)

func start(t *testing.T) *fositeserver.Server {
	t.Helper()
	s, err := fositeserver.Start(fositeserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, client *http.Client, address string) (int, string) {
	t.Helper()
	response, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func authorizationURL(s *fositeserver.Server, change func(url.Values)) string {
	query := url.Values{
		"response_type":         {"code"},
		"client_id":             {s.ClientID()},
		"redirect_uri":          {"http://127.0.0.1:1/callback"},
		"scope":                 {"offline_access"},
		"state":                 {"a-long-enough-state"},
		"code_challenge":        {strings.Repeat("c", 43)},
		"code_challenge_method": {"S256"},
	}
	change(query)
	return s.AuthorizationEndpoint() + "?" + query.Encode()
}

func TestMetadataNamesThisServer(t *testing.T) {
	s := start(t)
	status, body := get(t, http.DefaultClient, s.Issuer()+"/.well-known/oauth-authorization-server")
	var document struct {
		Issuer   string   `json:"issuer"`
		Token    string   `json:"token_endpoint"`
		Auth     string   `json:"authorization_endpoint"`
		Methods  []string `json:"code_challenge_methods_supported"`
		AuthMeth []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %v", status, err)
	}
	if document.Issuer != s.Issuer() || document.Token != s.TokenEndpoint() || document.Auth != s.AuthorizationEndpoint() {
		t.Errorf("the document names another server: %+v", document)
	}
	if len(document.Methods) != 1 || document.Methods[0] != "S256" {
		t.Errorf("challenge methods %q, want only S256", document.Methods)
	}
}

func TestAuthorizationRequestIsJudgedBeforeAnybodySignsIn(t *testing.T) {
	s := start(t)
	unfollowed := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, test := range []struct {
		name     string
		change   func(url.Values)
		status   int
		location string // what the answer redirects to begins so
		code     string // and carries this error
	}{
		{name: "good", change: func(url.Values) {}, status: http.StatusSeeOther, location: "/login"},
		{name: "any loopback port", change: func(q url.Values) { q.Set("redirect_uri", "http://127.0.0.1:54321/callback") },
			status: http.StatusSeeOther, location: "/login"},
		{name: "another path", change: func(q url.Values) { q.Set("redirect_uri", "http://127.0.0.1:1/elsewhere") },
			status: http.StatusBadRequest},
		{name: "another host", change: func(q url.Values) { q.Set("redirect_uri", "http://example.org/callback") },
			status: http.StatusBadRequest},
		{name: "unknown client", change: func(q url.Values) { q.Set("client_id", "nobody") },
			status: http.StatusUnauthorized},
		{name: "no state", change: func(q url.Values) { q.Del("state") },
			status: http.StatusSeeOther, location: "http://127.0.0.1:1/callback", code: "invalid_state"},
		{name: "unknown scope", change: func(q url.Values) { q.Set("scope", "everything") },
			status: http.StatusSeeOther, location: "http://127.0.0.1:1/callback", code: "invalid_scope"},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, err := unfollowed.Get(authorizationURL(s, test.change))
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			to := response.Header.Get("Location")
			if response.StatusCode != test.status || !strings.HasPrefix(to, test.location) {
				t.Errorf("status %d to %q, want %d to %q", response.StatusCode, to, test.status, test.location)
			}
			if parsed, err := url.Parse(to); err != nil || parsed.Query().Get("error") != test.code {
				t.Errorf("redirect carries error %q, want %q", parsed.Query().Get("error"), test.code)
			}
		})
	}
}

func TestFormIsTakenOnlyFromTheBrowserItWasShownTo(t *testing.T) {
	s := start(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	status, page := get(t, browser, authorizationURL(s, func(url.Values) {}))
	if status != http.StatusOK || !strings.Contains(page, `name="password"`) {
		t.Fatalf("status %d, no login form", status)
	}
	_, rest, _ := strings.Cut(page, `name="csrf" value="`)
	csrf, _, _ := strings.Cut(rest, `"`)

	who := s.Account()
	right := url.Values{"csrf": {csrf}, "username": {who.Username}, "password": {who.Password}}
	forged := url.Values{"csrf": {"guessed"}, "username": {who.Username}, "password": {who.Password}}
	for _, test := range []struct {
		name   string
		client *http.Client
		form   url.Values
		want   int
	}{
		{"another browser", http.DefaultClient, right, http.StatusForbidden},
		{"forged form", browser, forged, http.StatusForbidden},
		{"the same browser", browser, right, http.StatusOK},
	} {
		response, err := test.client.PostForm(s.Issuer()+"/login", test.form)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s: status %d, want %d", test.name, response.StatusCode, test.want)
		}
	}
	if status, _ := get(t, http.DefaultClient, s.Issuer()+"/consent"); status != http.StatusForbidden {
		t.Errorf("consent page without a sign-in: status %d, want 403", status)
	}
}
