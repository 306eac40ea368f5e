package spendoncetest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/spendonce/spendonce/spendoncetest"
)

const (
	verifier = "0123456789-0123456789-0123456789-0123456789"
	callback = "http://127.0.0.1:41999/callback"
)

func challenge(v string) string {
	sum := sha256.Sum256([]byte(v))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// authURL makes a good authorization URL, with parameters replaced by kv; an
// empty value takes one out.
func authURL(s *spendoncetest.TokenServer, kv ...string) string {
	q := form("response_type", "code", "client_id", s.ClientID(), "redirect_uri", callback, "scope", "openid offline_access",
		"state", "st", "code_challenge", challenge(verifier), "code_challenge_method", "S256")
	for i := 0; i < len(kv); i += 2 {
		q.Set(kv[i], kv[i+1])
		if kv[i+1] == "" {
			q.Del(kv[i])
		}
	}
	return s.AuthorizationURL() + "?" + q.Encode()
}

func signIn(t *testing.T, s *spendoncetest.TokenServer, kv ...string) *url.URL {
	t.Helper()
	back, err := spendoncetest.Person{}.Authorize(withDeadline(t), authURL(s, kv...))
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func redeem(t *testing.T, s *spendoncetest.TokenServer, code string, kv ...string) answer {
	t.Helper()
	f := form("grant_type", "authorization_code", "code", code, "redirect_uri", callback, "code_verifier", verifier, "client_id", s.ClientID())
	for i := 0; i < len(kv); i += 2 {
		f.Set(kv[i], kv[i+1])
	}
	resp, err := http.PostForm(s.TokenEndpoint(), f)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

func TestAPersonSignsInThroughTheForm(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{Users: map[string]string{"carol": "pa<ss>"}})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	browser := &http.Client{Jar: jar, CheckRedirect: stay}
	open := func(c *http.Client, f url.Values) answer {
		t.Helper()
		resp, err := c.PostForm(s.URL()+"/login", f)
		if err != nil {
			t.Fatal(err)
		}
		return read(t, resp)
	}
	resp, err := browser.Get(authURL(s, "login_hint", `"><script>`))
	if err != nil {
		t.Fatal(err)
	}
	shown := read(t, resp)
	if shown.status != 200 || strings.Contains(shown.body, "<script") || !strings.Contains(shown.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatalf("the form: %d %s", shown.status, shown.body)
	}
	hidden := url.Values{}
	for _, m := range regexp.MustCompile(`type="hidden" name="(\w+)" value="(\w+)"`).FindAllStringSubmatch(shown.body, -1) {
		hidden.Set(m[1], m[2])
	}
	filled := func(kv ...string) url.Values {
		f := form(kv...)
		for name := range hidden {
			if !f.Has(name) {
				f.Set(name, hidden.Get(name))
			}
		}
		return f
	}

	if a := open(browser, filled("username", "carol", "password", "wrong")); a.status != 200 || !strings.Contains(a.body, "wrong") || !strings.Contains(a.body, `value="carol"`) {
		t.Fatalf("a wrong password: %d %s", a.status, a.body)
	}
	if a := open(browser, filled("username", "carol", "password", "pa<ss>", "csrf", "0000")); a.status != 400 {
		t.Fatalf("a foreign form: %d", a.status)
	}
	if a := open(&http.Client{CheckRedirect: stay}, filled("username", "carol", "password", "pa<ss>")); a.status != 400 {
		t.Fatalf("a form from another browser: %d", a.status)
	}
	a := open(browser, filled("username", "carol", "password", "pa<ss>", "action", "allow"))
	back, err := url.Parse(a.header.Get("Location"))
	if err != nil || a.status != http.StatusSeeOther {
		t.Fatalf("%d %v", a.status, err)
	}
	if !strings.HasPrefix(back.String(), callback+"?") || back.Query().Get("state") != "st" || back.Query().Get("iss") != s.Issuer() {
		t.Fatal("the way back lacks the redirect URI, state or iss")
	}
	if a := open(browser, filled("username", "carol", "password", "pa<ss>")); a.status != 400 {
		t.Fatalf("the form was used twice: %d", a.status)
	}

	got := redeem(t, s, back.Query().Get("code"))
	if got.status != 200 || !s.Live(got.text("access_token")) || !s.Spendable(got.text("refresh_token")) || got.text("scope") != "openid offline_access" {
		t.Fatalf("the code: %d %s", got.status, got.text("error"))
	}
	if c := s.Counters(); c.Logins != 1 || c.FailedLogins != 1 || c.CodeExchanges != 1 || c.Exchanges != 0 || c.LiveFamilies != 1 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestThePersonMaySayNoOrForgetThePassword(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	back, err := spendoncetest.Person{Deny: true}.Authorize(withDeadline(t), authURL(s))
	if err != nil || back.Query().Get("error") != "access_denied" || back.Query().Get("state") != "st" || back.Query().Get("iss") != s.Issuer() {
		t.Fatalf("%v %v", back, err)
	}
	if _, err := (spendoncetest.Person{User: "alice", Password: "x"}).Authorize(withDeadline(t), authURL(s)); !errors.Is(err, spendoncetest.ErrLoginRefused) {
		t.Fatal(err)
	}
	if c := s.Counters(); c.Denials != 1 || c.Logins != 0 || c.FailedLogins != 1 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestACodeIsUsedUpByAnyAttempt(t *testing.T) {
	for name, kv := range map[string][]string{
		"another verifier":     {"code_verifier", strings.Repeat("a", 43)},
		"a short verifier":     {"code_verifier", "abc"},
		"another redirect URI": {"redirect_uri", "http://127.0.0.1:41998/callback"},
		"another client":       {"client_id", "two"},
	} {
		s := start(t, spendoncetest.TokenServerConfig{Clients: []spendoncetest.Client{
			{ID: "one", RedirectURIs: []string{"http://127.0.0.1/callback"}}, {ID: "two"}}})
		code := signIn(t, s).Query().Get("code")
		if a := redeem(t, s, code, kv...); a.status != 400 || a.text("error") != "invalid_grant" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if a := redeem(t, s, code); a.text("error") != "invalid_grant" {
			t.Errorf("%s: the code was not used up", name)
		}
	}
}

func TestReuseOfACodeRevokesWhatItGave(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	code := signIn(t, s).Query().Get("code")
	got := redeem(t, s, code)
	if again := redeem(t, s, code); again.text("error") != "invalid_grant" {
		t.Fatalf("%d %s", again.status, again.body)
	}
	if s.Live(got.text("access_token")) || s.Spendable(got.text("refresh_token")) {
		t.Fatal("what the code gave lives on")
	}
	if c := s.Counters(); c.DoubleSpends != 1 || c.FamiliesRevoked != 1 || c.LiveFamilies != 0 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestAResourceOutsideTheGrantIsRefusedOnEveryLeg(t *testing.T) {
	const granted, other = "https://a.example/mcp", "https://b.example/mcp"
	s := start(t, spendoncetest.TokenServerConfig{})
	wrong := signIn(t, s, "resource", granted).Query().Get("code")
	if a := redeem(t, s, wrong, "resource", other); a.text("error") != "invalid_target" {
		t.Fatalf("the code: %d", a.status)
	}
	if a := redeem(t, s, wrong); a.text("error") != "invalid_grant" || s.Counters().FamiliesRevoked != 0 {
		t.Fatalf("the code again: %d", a.status)
	}
	a := redeem(t, s, signIn(t, s, "resource", granted).Query().Get("code"), "resource", granted)
	rt := a.text("refresh_token")
	for _, tt := range []struct{ resource, want string }{{other, "invalid_target"}, {granted, ""}} {
		a := postForm(t, s.TokenEndpoint(), "grant_type", "refresh_token", "refresh_token", rt, "resource", tt.resource)
		if a.text("error") != tt.want {
			t.Errorf("%s: %d %s", tt.resource, a.status, a.text("error"))
		}
	}
	if c := s.Counters(); c.LiveFamilies != 1 || c.DoubleSpends != 1 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestACodeExpires(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{CodeLifetime: 1})
	if a := redeem(t, s, signIn(t, s).Query().Get("code")); a.text("error") != "invalid_grant" {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

func TestABadAuthorizationRequestGoesBackOnlyToItsOwner(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{Clients: []spendoncetest.Client{{ID: "c", RedirectURIs: []string{
		"http://127.0.0.1/callback", "http://[::1]:80/x?y=z", "http://localhost:7777/callback", "https://app.example/cb"}}}})
	for _, tt := range []struct {
		kv   []string
		want string // "", "page", or the error sent back
	}{
		{nil, ""},
		{[]string{"redirect_uri", "http://127.0.0.1/callback"}, ""},
		{[]string{"redirect_uri", "http://[::1]:5/x?y=z"}, ""},
		{[]string{"redirect_uri", "http://localhost:7777/callback"}, ""},
		{[]string{"redirect_uri", "https://app.example/cb"}, ""},
		{[]string{"redirect_uri", "http://localhost:7778/callback"}, "page"},
		{[]string{"redirect_uri", "https://app.example:444/cb"}, "page"},
		{[]string{"redirect_uri", "http://127.0.0.1:5/callback/"}, "page"},
		{[]string{"redirect_uri", "http://127.0.0.1:5/callback?x=1"}, "page"},
		{[]string{"redirect_uri", "http://127.0.0.1:5/callback#f"}, "page"},
		{[]string{"redirect_uri", "http://u@127.0.0.1:5/callback"}, "page"},
		{[]string{"redirect_uri", "http://127.0.0.2:5/callback"}, "page"},
		{[]string{"redirect_uri", "https://127.0.0.1:5/callback"}, "page"},
		{[]string{"redirect_uri", ""}, "page"},
		{[]string{"client_id", "d"}, "page"},
		{[]string{"code_challenge", ""}, "invalid_request"},
		{[]string{"code_challenge_method", "plain"}, "invalid_request"},
		{[]string{"code_challenge_method", ""}, "invalid_request"},
		{[]string{"response_type", "token"}, "unsupported_response_type"},
		{[]string{"resource", "/relative"}, "invalid_target"},
		{[]string{"prompt", "none"}, "login_required"},
	} {
		back, err := spendoncetest.Person{}.Authorize(withDeadline(t), authURL(s, tt.kv...))
		got := "page"
		if err == nil {
			got = back.Query().Get("error")
		} else if !errors.Is(err, spendoncetest.ErrLoginRefused) {
			t.Fatal(err)
		}
		if got != tt.want {
			t.Errorf("%v: %q, want %q", tt.kv, got, tt.want)
		}
	}
	if _, err := (spendoncetest.Person{}).Authorize(withDeadline(t), authURL(s)+"&redirect_uri=http://127.0.0.1/callback"); !errors.Is(err, spendoncetest.ErrLoginRefused) {
		t.Error("a second redirect URI was accepted")
	}
}

func TestTheIssuerOfTheCallbackCanBeWrongOrMissing(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{CallbackIssuer: "https://evil.example"})
	if got := signIn(t, s).Query().Get("iss"); got != "https://evil.example" {
		t.Error(got)
	}
	if err := s.Configure(func(c *spendoncetest.TokenServerConfig) { c.CallbackIssuer = "-" }); err != nil {
		t.Fatal(err)
	}
	if signIn(t, s).Query().Has("iss") {
		t.Error("iss is there")
	}
}

// The library that everybody uses must be able to sign in, over https.
func TestAnOrdinaryClientSignsIn(t *testing.T) {
	for _, path := range []string{"", "/tenant"} {
		id, err := spendoncetest.SelfSigned()
		must(t, err)
		s := start(t, spendoncetest.TokenServerConfig{TLS: id.Server, IssuerPath: path, RequireClientSecret: true, JWTAccessTokens: true})
		https := client(t, id)
		ctx := context.WithValue(withDeadline(t), oauth2.HTTPClient, https)
		resp, err := https.Get(s.Issuer() + "/.well-known/openid-configuration")
		must(t, err)
		doc := read(t, resp)
		if doc.text("issuer") != s.Issuer() {
			t.Fatalf("issuer %q", doc.text("issuer"))
		}
		cfg := oauth2.Config{ClientID: s.ClientID(), ClientSecret: s.ClientSecret().Reveal(), RedirectURL: callback, Scopes: []string{"openid"},
			Endpoint: oauth2.Endpoint{AuthURL: doc.text("authorization_endpoint"), TokenURL: doc.text("token_endpoint")}}
		v := oauth2.GenerateVerifier()
		back, err := spendoncetest.Person{Transport: https.Transport}.Authorize(ctx,
			cfg.AuthCodeURL("st", oauth2.S256ChallengeOption(v), oauth2.SetAuthURLParam("nonce", "n")))
		must(t, err)
		token, err := cfg.Exchange(ctx, back.Query().Get("code"), oauth2.VerifierOption(v))
		must(t, err)
		resp, err = https.Get(doc.text("jwks_uri"))
		must(t, err)
		raw, _ := token.Extra("id_token").(string)
		if claims := verified(t, raw, read(t, resp)); claims["sub"] != "alice" || claims["nonce"] != "n" || claims["aud"] != s.ClientID() || claims["iss"] != s.Issuer() {
			t.Fatalf("claims: %v", claims)
		}
		if time.Until(token.Expiry) > time.Hour || strings.Count(token.AccessToken, ".") != 2 {
			t.Fatal("the access token is not what was configured")
		}
		if _, err := cfg.TokenSource(ctx, &oauth2.Token{RefreshToken: token.RefreshToken}).Token(); err != nil {
			t.Fatal(err)
		}
		if c := s.Counters(); c.Exchanges != 1 || c.CodeExchanges != 1 || c.DoubleSpends != 0 {
			t.Fatalf("counters: %+v", c)
		}
	}
}

// verified checks an ES256 signature against the published key.
func verified(t *testing.T, jwt string, jwks answer) (claims map[string]any) {
	t.Helper()
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		t.Fatal("the ID token is no JWT")
	}
	dec := func(text string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(text)
		must(t, err)
		return b
	}
	var set struct {
		Keys []struct{ X, Y string }
	}
	must(t, json.Unmarshal([]byte(jwks.body), &set))
	pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, dec(set.Keys[0].X), dec(set.Keys[0].Y)))
	must(t, err)
	sum, sig := sha256.Sum256([]byte(parts[0]+"."+parts[1])), dec(parts[2])
	if !ecdsa.Verify(pub, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		t.Fatal("the signature does not hold")
	}
	must(t, json.Unmarshal(dec(parts[1]), &claims))
	return claims
}

func client(t *testing.T, id *spendoncetest.Identity) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: id.Client()}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}
