package spendoncetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
)

func register(t *testing.T, s *spendoncetest.TokenServer, body string) answer {
	t.Helper()
	resp, err := http.Post(s.RegistrationURL(), "application/json", strings.NewReader(body))
	must(t, err)
	return read(t, resp)
}

func TestAClientGetsATokenInItsOwnName(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{Clients: []spendoncetest.Client{{ID: "public"}, {ID: "machine", Secret: "cs"}}})
	ask := func(kv ...string) answer {
		return postForm(t, s.TokenEndpoint(), append([]string{"grant_type", "client_credentials", "scope", "a b"}, kv...)...)
	}
	got := ask("client_id", "machine", "client_secret", "cs")
	if got.status != 200 || !s.Live(got.text("access_token")) || got.m["refresh_token"] != nil || got.text("scope") != "a b" {
		t.Fatalf("%d %s", got.status, got.text("error"))
	}
	for want, kv := range map[string][]string{
		"unauthorized_client": {"client_id", "public"},
		"invalid_client":      {"client_id", "machine", "client_secret", "wrong"},
	} {
		if a := ask(kv...); a.text("error") != want {
			t.Errorf("%v: %d %s", kv, a.status, a.text("error"))
		}
	}
	if a := ask(); a.text("error") != "invalid_client" {
		t.Errorf("nobody: %d %s", a.status, a.text("error"))
	}
	if c := s.Counters(); c.ClientCredentials != 1 || c.LiveFamilies != 1 || c.TokenPosts != 4 {
		t.Errorf("counters: %+v", c)
	}
}

func TestTheResourceSaysWhichScopeItWants(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{RequiredScope: "offline_access files:write", ChallengeScope: "files:read"})
	challenge := func(a answer) string { return a.header.Get("WWW-Authenticate") }
	if a := get(t, s.ResourceURL(), ""); a.status != 401 || !strings.Contains(challenge(a), `, scope="files:read"`) {
		t.Errorf("no token: %d %s", a.status, challenge(a))
	}
	at := s.NewSession("alice").AccessToken.Reveal()
	a := get(t, s.ResourceURL(), at)
	if a.status != 403 || !strings.HasPrefix(challenge(a), "Bearer ") || !strings.Contains(challenge(a), `error="insufficient_scope", scope="offline_access files:write"`) {
		t.Errorf("too little: %d %s", a.status, challenge(a))
	}
	must(t, s.Configure(func(c *spendoncetest.TokenServerConfig) { c.RequiredScope = "offline_access" }))
	if a := get(t, s.ResourceURL(), at); a.status != 200 {
		t.Errorf("enough: %d", a.status)
	}
	if c := s.Counters(); c.ResourceForbidden != 1 || c.ResourceRejected != 1 || c.ResourceServed != 1 {
		t.Errorf("counters: %+v", c)
	}
}

func TestTheMetadataOfAResourceIsThatOfTheURLAskedFor(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{ChallengeScope: "files:read"})
	for _, path := range []string{"", "/", "/mcp", "/a%2Fb"} {
		asked := s.ResourceURL() + path
		challenge := get(t, asked, "").header.Get("WWW-Authenticate")
		_, rest, _ := strings.Cut(challenge, `resource_metadata="`)
		place, _, _ := strings.Cut(rest, `"`)
		doc := get(t, place, "")
		if doc.text("resource") != asked || !strings.Contains(doc.body, s.Issuer()) || !strings.Contains(doc.body, "files:read") {
			t.Errorf("%s: %s, at %s", asked, doc.body, place)
		}
	}
	for _, absent := range []string{"", "/", "/resourceful", "/other"} {
		if a := get(t, s.URL()+"/.well-known/oauth-protected-resource"+absent, ""); a.status != 404 {
			t.Errorf("%q: %d", absent, a.status)
		}
	}
}

func TestEveryLegMustNameTheRequiredResource(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{RequireResource: "/resource", DeviceInterval: 1,
		Clients: []spendoncetest.Client{{ID: "c", RedirectURIs: []string{callback}}, {ID: "machine", Secret: "cs"}}})
	right := s.ResourceURL()
	var refused int
	for _, wrong := range []string{"", s.URL() + "/", right + "/", right + "#f", "/resource"} {
		if got := signIn(t, s, "resource", wrong).Query().Get("error"); got != "invalid_target" {
			t.Errorf("authorize with %q: %q", wrong, got)
		}
		back := signIn(t, s, "resource", right)
		for what, a := range map[string]answer{
			"code":    redeem(t, s, back.Query().Get("code"), "resource", wrong),
			"refresh": postForm(t, s.TokenEndpoint(), "grant_type", "refresh_token", "refresh_token", s.NewSession("a").RefreshToken.Reveal(), "resource", wrong),
			"device":  postForm(t, s.DeviceURL(), "client_id", "c", "resource", wrong),
			"machine": postForm(t, s.TokenEndpoint(), "grant_type", "client_credentials", "client_id", "machine", "client_secret", "cs", "resource", wrong),
		} {
			if a.text("error") != "invalid_target" {
				t.Errorf("%s with %q: %d %s", what, wrong, a.status, a.text("error"))
			}
		}
		refused += 5
	}
	two := url.Values{"grant_type": {"client_credentials"}, "client_id": {"machine"}, "client_secret": {"cs"}, "resource": {right, right}}
	resp, err := http.PostForm(s.TokenEndpoint(), two)
	must(t, err)
	if a := read(t, resp); a.text("error") != "invalid_target" {
		t.Errorf("twice: %d", a.status)
	}
	if c := s.Counters(); c.WrongTargets != refused+1 || c.CodeExchanges+c.Exchanges+c.ClientCredentials+c.DeviceRequests != 0 {
		t.Errorf("counters: %+v", c)
	}
	a := postForm(t, s.DeviceURL(), "client_id", "c", "resource", right)
	must(t, s.ApproveDevice(a.text("user_code"), "alice"))
	poll := []string{"grant_type", "urn:ietf:params:oauth:grant-type:device_code", "client_id", "c", "device_code", a.text("device_code")}
	if p := postForm(t, s.TokenEndpoint(), poll...); p.text("error") != "invalid_target" {
		t.Errorf("a poll without resource: %d %s", p.status, p.text("error"))
	}
	got := postForm(t, s.TokenEndpoint(), append(poll, "resource", right)...)
	if got.status != 200 {
		t.Fatalf("device: %d %s", got.status, got.text("error"))
	}
	if got = postForm(t, s.TokenEndpoint(), "grant_type", "refresh_token", "client_id", "c", "refresh_token", got.text("refresh_token"), "resource", right); got.status != 200 {
		t.Errorf("refresh: %d %s", got.status, got.text("error"))
	}
}

func TestARegisteredClientIsHeldToItsRegistration(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	const device = "urn:ietf:params:oauth:grant-type:device_code"
	a := register(t, s, `{"redirect_uris":["`+callback+`"],"token_endpoint_auth_method":"none","grant_types":["`+device+`"]}`)
	id := a.text("client_id")
	if got := signIn(t, s, "client_id", id).Query().Get("error"); got != "unauthorized_client" || strings.Contains(a.body, `"code"`) {
		t.Errorf("the code flow: %q", got)
	}
	d := postForm(t, s.DeviceURL(), "client_id", id)
	must(t, s.ApproveDevice(d.text("user_code"), "alice"))
	got := postForm(t, s.TokenEndpoint(), "grant_type", device, "client_id", id, "device_code", d.text("device_code"))
	if got.status != 200 || got.m["refresh_token"] != nil {
		t.Errorf("a refresh token for a client that cannot use it: %d %v", got.status, got.text("error"))
	}
	if p := postForm(t, s.TokenEndpoint(), "grant_type", "refresh_token", "client_id", id, "refresh_token", "x"); p.text("error") != "unauthorized_client" {
		t.Errorf("refresh: %d %s", p.status, p.text("error"))
	}
	a = register(t, s, `{"token_endpoint_auth_method":"client_secret_basic","grant_types":["client_credentials"]}`)
	form := []string{"grant_type", "client_credentials"}
	if p := postForm(t, s.TokenEndpoint(), append(form, "client_id", a.text("client_id"), "client_secret", a.text("client_secret"))...); p.text("error") != "invalid_client" {
		t.Errorf("another way to authenticate: %d %s", p.status, p.text("error"))
	}
	req, _ := formRequest(t, s.TokenEndpoint(), form...)
	req.SetBasicAuth(a.text("client_id"), a.text("client_secret"))
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	if p := read(t, resp); p.status != 200 {
		t.Errorf("the registered way: %d %s", p.status, p.text("error"))
	}
	must(t, s.Configure(func(c *spendoncetest.TokenServerConfig) { c.NoRegistration = true }))
	if a := register(t, s, `{}`); a.status != 404 {
		t.Errorf("no registration: %d", a.status)
	}
	if a := get(t, s.Issuer()+"/.well-known/oauth-authorization-server", ""); strings.Contains(a.body, "registration_endpoint") {
		t.Error("the metadata offers it")
	}
}

func TestAClientIsTheURLOfItsDocument(t *testing.T) {
	var doc string
	redirects := map[string]string{}
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := redirects[r.URL.Path]; to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_, _ = fmt.Fprint(w, doc)
	}))
	t.Cleanup(home.Close)
	id := home.URL + "/client"
	good := `{"client_id":"` + id + `","token_endpoint_auth_method":"none","redirect_uris":["` + callback + `"],"grant_types":["authorization_code","refresh_token"]`
	s := start(t, spendoncetest.TokenServerConfig{ClientIDMetadata: true})
	if a := get(t, s.Issuer()+"/.well-known/oauth-authorization-server", ""); a.m["client_id_metadata_document_supported"] != true {
		t.Error("the metadata does not say so")
	}
	doc = good + "}"
	code := signIn(t, s, "client_id", id).Query().Get("code")
	got := redeem(t, s, code, "client_id", id)
	if got.status != 200 || got.text("refresh_token") == "" {
		t.Fatalf("%d %s", got.status, got.text("error"))
	}
	s.ForgetClient(id)
	if a := postForm(t, s.TokenEndpoint(), "grant_type", "refresh_token", "client_id", id, "refresh_token", got.text("refresh_token")); a.status != 200 {
		t.Errorf("a forgotten client: %d %s", a.status, a.text("error"))
	}
	if c := s.Counters(); c.ClientDocuments != 2 || c.Registrations != 0 {
		t.Errorf("counters: %+v", c)
	}

	refused := func(why, id string) {
		t.Helper()
		if _, err := (spendoncetest.Person{}).Authorize(withDeadline(t), authURL(s, "client_id", id)); err == nil {
			t.Errorf("accepted: %s", why)
		}
	}
	for why, bad := range map[string]string{
		"another client's":     strings.Replace(good, "/client", "/other", 1) + "}",
		"another redirect URI": strings.Replace(good, callback, "http://127.0.0.1/other", 1) + "}",
		"a secret":             good + `,"client_secret":"x"}`,
		"another method":       strings.Replace(good, `"none"`, `"client_secret_post"`, 1) + "}",
		"no JSON":              "<html>",
		"too long":             good + "}" + strings.Repeat(" ", 64<<10),
		"another grant type":   strings.Replace(good, `"authorization_code"`, `"implicit"`, 1) + "}",
	} {
		doc = bad
		if why == "another grant type" { // goes back to the client, which is known
			if got := signIn(t, s, "client_id", id).Query().Get("error"); got != "unauthorized_client" {
				t.Errorf("%s: %q", why, got)
			}
			continue
		}
		refused(why, id)
	}
	doc = good + "}"
	redirects["/client"] = "/elsewhere"
	refused("a redirect", id)
	delete(redirects, "/client")
	for _, odd := range []string{home.URL, home.URL + "/", id + "?x=1", id + "#f", home.URL + "/a/../client",
		strings.Replace(id, "//", "//u@", 1), strings.Replace(id, "127.0.0.1", "localhost", 1), "http://192.0.2.1/client"} {
		doc = strings.Replace(good, id, odd, 1) + "}"
		refused("the id "+odd, odd)
	}
	must(t, s.Configure(func(c *spendoncetest.TokenServerConfig) { c.ClientIDMetadata = false }))
	s.ForgetClient(id)
	doc = good + "}"
	refused("any, by a server that does not take them", id)
}
