package spendoncetest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
)

func get(t *testing.T, url, bearer string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(withDeadline(t), http.MethodGet, url, nil)
	must(t, err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	return read(t, resp)
}

func TestTheMetadataStandsWhereClientsLook(t *testing.T) {
	const as, oidc = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	for _, tt := range []struct {
		path          string
		there, absent []string
	}{
		{"", []string{as, oidc}, []string{as + "/x", "/x" + as}},
		{"/", []string{as, oidc}, nil},
		{"/tenant", []string{as + "/tenant", oidc + "/tenant", "/tenant" + as, "/tenant" + oidc}, []string{as, oidc}},
		{"/tenant/", []string{as + "/tenant", oidc + "/tenant/", "/tenant" + oidc}, []string{oidc}},
	} {
		s := start(t, spendoncetest.TokenServerConfig{IssuerPath: tt.path})
		for _, at := range tt.there {
			if a := get(t, s.URL()+at, ""); a.status != 200 || a.text("issuer") != s.URL()+tt.path || a.text("token_endpoint") != s.TokenEndpoint() {
				t.Errorf("%q %s: %d %s", tt.path, at, a.status, a.text("issuer"))
			}
		}
		for _, at := range tt.absent {
			if a := get(t, s.URL()+at, ""); a.status != 404 {
				t.Errorf("%q %s: %d", tt.path, at, a.status)
			}
		}
		if a := get(t, s.URL()+"/.well-known/oauth-protected-resource/resource", ""); a.text("resource") != s.ResourceURL() {
			t.Errorf("the resource's metadata: %d %s", a.status, a.body)
		}
	}
}

func TestTheResourceOpensToLiveAccessTokensOnly(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	a, b := s.NewSession("alice").AccessToken.Reveal(), s.NewSession("bob").AccessToken.Reveal()
	if got := get(t, s.ResourceURL()+"/x", a); got.status != 200 || got.text("account") != "alice" || got.text("path") != "/resource/x" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := get(t, s.ResourceURL(), ""); got.status != 401 || strings.Contains(got.header.Get("WWW-Authenticate"), "error=") || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer ") {
		t.Fatalf("no token: %d %v", got.status, got.header)
	}
	must(t, s.RevokeAccessToken(a))
	if got := get(t, s.ResourceURL(), a); got.status != 401 || !strings.Contains(got.header.Get("WWW-Authenticate"), `error="invalid_token"`) {
		t.Fatalf("revoked: %d %v", got.status, got.header)
	}
	if got := get(t, s.ResourceURL(), b); got.status != 200 {
		t.Fatal("another token suffered")
	}
	must(t, s.Configure(func(c *spendoncetest.TokenServerConfig) { c.RejectResource = true }))
	if got := get(t, s.ResourceURL(), b); got.status != 401 || !s.Live(b) {
		t.Fatal("the resource does not reject all")
	}
	must(t, s.Configure(func(c *spendoncetest.TokenServerConfig) { c.RejectResource = false }))
	s.ExpireAccessTokens()
	if got := get(t, s.ResourceURL(), b); got.status != 401 {
		t.Fatal("an expired token was served")
	}
	if got := get(t, s.ResourceURL(), s.NewSession("carol").AccessToken.Reveal()); got.status != 200 {
		t.Fatal("a token from after the expiry was refused")
	}
	if c := s.Counters(); c.ResourceRequests != 7 || c.ResourceRejected != 4 || c.ResourceServed != 3 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestRevocationEndsASessionOrOneAccessToken(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{Clients: []spendoncetest.Client{{ID: "first"}, {ID: "other"}}})
	one, two := s.NewSession("alice"), s.NewSession("bob")
	revoke := func(token string) answer {
		return postForm(t, s.RevocationURL(), "token", token, "client_id", s.ClientID())
	}
	if a := revoke(one.AccessToken.Reveal()); a.status != 200 || s.Live(one.AccessToken.Reveal()) || !s.Spendable(one.RefreshToken.Reveal()) {
		t.Fatal("an access token")
	}
	if a := revoke(two.RefreshToken.Reveal()); a.status != 200 || s.Live(two.AccessToken.Reveal()) || s.Spendable(two.RefreshToken.Reveal()) {
		t.Fatal("a refresh token")
	}
	if a := revoke("never issued"); a.status != 200 {
		t.Fatal("an unknown token")
	}
	if a := postForm(t, s.RevocationURL(), "token", "x", "client_id", "stranger"); a.status != 401 {
		t.Fatal("an unknown client")
	}
	if a := postForm(t, s.RevocationURL(), "token", one.RefreshToken.Reveal(), "client_id", "other"); a.status != 400 || !s.Spendable(one.RefreshToken.Reveal()) {
		t.Fatal("another client's token")
	}
	if c := s.Counters(); c.Revocations != 5 || c.FamiliesRevoked != 1 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestClientsAuthenticate(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{RequireClientSecret: true})
	rt, right := s.NewSession("alice").RefreshToken.Reveal(), s.ClientSecret().Reveal()
	try := func(basic bool, kv ...string) answer {
		t.Helper()
		req, _ := formRequest(t, s.TokenEndpoint(), append([]string{"grant_type", "refresh_token", "refresh_token", rt}, kv...)...)
		if basic {
			req.SetBasicAuth(s.ClientID(), right)
		}
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		return read(t, resp)
	}
	for _, kv := range [][]string{nil, {"client_id", s.ClientID()}, {"client_id", s.ClientID(), "client_secret", "wrong"}, {"client_id", "x", "client_secret", right}} {
		if a := try(false, kv...); a.status != 401 || a.text("error") != "invalid_client" {
			t.Errorf("%v: %d %s", kv, a.status, a.body)
		}
	}
	if a := try(true, "client_secret", right); a.status != 400 || a.text("error") != "invalid_request" {
		t.Errorf("two ways at once: %d", a.status)
	}
	if !s.Spendable(rt) {
		t.Fatal("a refused client spent the token")
	}
	a := try(true)
	if a.status != 200 {
		t.Fatalf("Basic: %d", a.status)
	}
	rt = a.text("refresh_token")
	if a := try(false, "client_id", s.ClientID(), "client_secret", right); a.status != 200 {
		t.Fatalf("post: %d", a.status)
	}
}

func TestTheTokenEndpointRefusesMalformedRequests(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	rt := s.NewSession("alice").RefreshToken.Reveal()
	for _, tt := range []struct{ kind, body, want string }{
		{"application/json", `{"grant_type":"refresh_token","refresh_token":"` + rt + `"}`, "invalid_request"},
		{"text/plain", "grant_type=refresh_token&refresh_token=" + rt, "invalid_request"},
		{"application/x-www-form-urlencoded", "refresh_token=" + rt, "invalid_request"},
		{"application/x-www-form-urlencoded", "grant_type=refresh_token", "invalid_request"},
		{"application/x-www-form-urlencoded", "grant_type=password&refresh_token=" + rt, "unsupported_grant_type"},
		{"application/x-www-form-urlencoded", "grant_type=refresh_token&refresh_token=a&refresh_token=" + rt, "invalid_request"},
		{"application/x-www-form-urlencoded", "grant_type=refresh_token&scope=admin&refresh_token=" + rt, "invalid_scope"},
	} {
		resp, err := http.Post(s.TokenEndpoint(), tt.kind, strings.NewReader(tt.body))
		must(t, err)
		if a := read(t, resp); a.status != 400 || a.text("error") != tt.want {
			t.Errorf("%s: %d %s", tt.body, a.status, a.body)
		}
	}
	if a := get(t, s.TokenEndpoint()+"?grant_type=refresh_token&refresh_token="+rt, ""); a.status != 405 {
		t.Errorf("GET: %d", a.status)
	}
	if !s.Spendable(rt) || s.Counters().TokenPosts != 7 {
		t.Fatal("a malformed request spent the token, or was not counted")
	}
}

func TestAClientRegistersItself(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	register := func(body string) answer {
		t.Helper()
		resp, err := http.Post(s.RegistrationURL(), "application/json", strings.NewReader(body))
		must(t, err)
		return read(t, resp)
	}
	a := register(`{"redirect_uris":["` + callback + `"],"token_endpoint_auth_method":"none","client_name":"x"}`)
	if a.status != 201 || a.text("client_id") == "" || a.m["client_secret"] != nil {
		t.Fatalf("%d %s", a.status, a.body)
	}
	id := a.text("client_id")
	back := signIn(t, s, "client_id", id)
	got := redeem(t, s, back.Query().Get("code"), "client_id", id)
	if got.status != 200 {
		t.Fatalf("%d %s", got.status, got.text("error"))
	}
	if other := refresh(t, s, got.text("refresh_token")); other.text("error") != "invalid_grant" || !s.Spendable(got.text("refresh_token")) {
		t.Fatal("another client's refresh was not refused, or cost the token")
	}
	if !s.ForgetClient(id) || s.ForgetClient(id) {
		t.Fatal("forgetting")
	}
	if dead := postForm(t, s.TokenEndpoint(), "grant_type", "refresh_token", "client_id", id, "refresh_token", got.text("refresh_token")); dead.status != 401 || dead.text("error") != "invalid_client" {
		t.Fatalf("a forgotten client: %d", dead.status)
	}
	if a := register(`{}`); a.status != 201 || a.text("client_secret") == "" {
		t.Fatalf("no method named: %d", a.status)
	}
	for _, bad := range []string{``, `[]`, `{"redirect_uris":"x"}`, `{"redirect_uris":["/x"]}`, `{"token_endpoint_auth_method":"private_key_jwt"}`} {
		if a := register(bad); a.status != 400 {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	if c := s.Counters(); c.Registrations != 2 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestADeviceIsSignedInElsewhere(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{DeviceInterval: 1})
	ask := func() answer { return postForm(t, s.DeviceURL(), "client_id", s.ClientID(), "scope", "openid") }
	poll := func(code string) answer {
		return postForm(t, s.TokenEndpoint(), "grant_type", "urn:ietf:params:oauth:grant-type:device_code", "client_id", s.ClientID(), "device_code", code)
	}
	a := ask()
	if a.status != 200 || a.m["interval"] != 1.0 || !strings.HasSuffix(a.text("verification_uri_complete"), a.text("user_code")) {
		t.Fatalf("%d %v", a.status, a.m["interval"])
	}
	if p := poll(a.text("device_code")); p.text("error") != "authorization_pending" {
		t.Fatal(p.body)
	}
	must(t, s.ApproveDevice(strings.ToLower(strings.ReplaceAll(a.text("user_code"), "-", "")), "alice"))
	got := poll(a.text("device_code"))
	if got.status != 200 || !s.Live(got.text("access_token")) || got.text("id_token") == "" {
		t.Fatalf("%d %s", got.status, got.text("error"))
	}
	if p := poll(a.text("device_code")); p.text("error") != "invalid_grant" {
		t.Fatal("a device code was used twice")
	}

	b := ask()
	must(t, s.DenyDevice(b.text("user_code")))
	if p := poll(b.text("device_code")); p.text("error") != "access_denied" {
		t.Fatal(p.body)
	}
	if s.ApproveDevice(b.text("user_code"), "alice") == nil {
		t.Fatal("a denied device was approved")
	}
	must(t, s.Configure(func(c *spendoncetest.TokenServerConfig) { c.DeviceInterval = 0 }))
	c := ask()
	poll(c.text("device_code"))
	if p := poll(c.text("device_code")); p.text("error") != "slow_down" {
		t.Fatal(p.body)
	}
}

func TestADeviceIsApprovedOnItsPage(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	a := postForm(t, s.DeviceURL(), "client_id", s.ClientID())
	back, err := spendoncetest.Person{}.ApproveDevice(withDeadline(t), a.text("verification_uri_complete"))
	if err != nil || !strings.Contains(back, "signed in") {
		t.Fatal(back, err)
	}
	got := postForm(t, s.TokenEndpoint(), "grant_type", "urn:ietf:params:oauth:grant-type:device_code", "client_id", s.ClientID(), "device_code", a.text("device_code"))
	if got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

func TestTheLogShowsWhatHappenedAndNoToken(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{LogSize: 2})
	session := s.NewSession("alice")
	get(t, s.ResourceURL(), "")
	refresh(t, s, session.RefreshToken.Reveal())
	refresh(t, s, session.RefreshToken.Reveal())
	log := s.Log()
	if len(log) != 2 {
		t.Fatalf("%d entries in a log of 2", len(log))
	}
	for i, want := range []struct {
		status  int
		outcome string
	}{{200, "ok"}, {400, "invalid_grant"}} {
		if e := log[i]; e.Method != http.MethodPost || e.Path != "/token" || e.Token != session.RefreshToken.Fingerprint() || e.Status != want.status || e.Outcome != want.outcome {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
}
