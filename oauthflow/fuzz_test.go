package oauthflow_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

func FuzzJudge(f *testing.F) {
	for _, c := range []struct {
		status int
		typ    string
		body   string
	}{
		{200, "application/json", good}, {400, "", `{"error":"invalid_grant","error_description":"$ gone"}`},
		{200, "", `{"access_token":"e30.eyJleHAiOjF9.x","expires_in":-1}`}, {200, "", `access_token=a&expires_in=3`},
		{401, "text/html", "<html>$"}, {200, "", `{"access_jwt":"a","expires_at":"2025-01-01T00:00:00Z","org":"$"}`},
		{500, "$", "\\u0063\\u0061$%24&#36;"}, {200, "", `{"access_token":"$`}, {429, "", "%%%2525"},
	} {
		f.Add(c.status, c.typ, "7", c.body, false, false)
		f.Add(c.status, c.typ, "Sun, 30 Nov 2025 12:00:07 GMT", c.body, true, true)
	}
	const canary = "canary/RT+1=&x"
	f.Fuzz(func(t *testing.T, status int, typ, retry, body string, hypaware, cut bool) {
		// A dollar sign stands for the secret.
		typ, body = strings.ReplaceAll(typ, "$", canary), strings.ReplaceAll(body, "$", canary)
		body = strings.ReplaceAll(body, "~", url.QueryEscape(canary))
		a := oauthflow.Answer{Status: status, Header: http.Header{"Content-Type": {typ}, "Retry-After": {retry}}, Body: []byte(body), Truncated: cut}
		d := oauthflow.OAuth2
		if hypaware {
			d = oauthflow.Hypaware
		}
		tokens, err := oauthflow.Judge(a, now, d, secret.New(canary))
		if err != nil {
			e := asError(t, err)
			checkText(t, e.Text)
			lower := strings.ToLower(e.Text + e.Code + e.Error())
			for _, bad := range []string{canary, url.QueryEscape(canary)} {
				if strings.Contains(lower, strings.ToLower(bad)) {
					t.Fatalf("the secret stands in %q", e.Text)
				}
			}
			if e.RetryAfter < 0 || e.RetryAfter.Seconds() > 300 || e.Broken || e.NotSent {
				t.Fatalf("%+v", *e)
			}
			return
		}
		if status < 200 || status > 299 {
			t.Fatalf("success with status %d", status)
		}
		for i, s := range []secret.Secret{tokens.AccessToken, tokens.RefreshToken, tokens.IDToken} {
			v := s.Reveal()
			if i == 0 && v == "" || strings.ContainsFunc(v, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
				t.Fatalf("token %d is %q", i, v)
			}
		}
		if strings.Contains(tokens.Scope+tokens.Org, canary) || tokens.Lifetime < 0 {
			t.Fatalf("%+v", tokens)
		}
	})
}

func FuzzCallback(f *testing.F) {
	const host, state, issuer = "127.0.0.1:4711", "the-right-state", "https://as.example"
	f.Add("GET", host, "/callback?code=c&state="+state, false)
	f.Add("GET", host, "/callback?code=c&state="+state+"&iss=https%3A%2F%2Fas.example", true)
	f.Add("GET", host, "/callback?error=access_denied&state="+state, false)
	f.Add("HEAD", "localhost:4711", "/favicon.ico?state=%zz", true)
	f.Add("GET", host, "/callback?code=<script>alert(1)</script>&state=x&state=y", false)
	f.Fuzz(func(t *testing.T, method, reqHost, uri string, issRequired bool) {
		u, err := url.ParseRequestURI(uri)
		if err != nil {
			return
		}
		h, settled := oauthflow.CallbackHandler(host, state, issuer, issRequired)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{Method: method, Host: reqHost, URL: u, RequestURI: uri, Header: http.Header{}, Body: http.NoBody})
		done, code, err := settled()
		if done {
			states := u.Query()["state"]
			if method != "GET" || reqHost != host || u.Path != "/callback" || len(states) != 1 || states[0] != state {
				t.Fatalf("%s %s %s settled the login", method, reqHost, uri)
			}
			if (err == nil) == code.Empty() {
				t.Fatalf("code and error: %v", err)
			}
			if err != nil {
				checkText(t, asError(t, err).Text)
				if strings.Contains(err.Error(), state) {
					t.Fatalf("the state stands in %v", err)
				}
			}
		}
		checkPage(t, w.Result().Header, w.Body.String())
	})
}
