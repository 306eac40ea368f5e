package oauthflow_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/oauthflow"
)

// checkPage demands the headers and a body that holds nothing but our words.
func checkPage(t testing.TB, h http.Header, body string) {
	t.Helper()
	for name, want := range map[string]string{
		"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Content-Type": "text/html; charset=utf-8",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") {
		t.Errorf("Content-Security-Policy: %q", csp)
	}
	if h.Get("Location") != "" || h.Get("Set-Cookie") != "" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("headers %v", h)
	}
	if body == "" {
		return
	}
	for _, part := range []string{`<html lang="en">`, `<meta name="viewport"`, "<title>", "<main>", "<h1>"} {
		if !strings.Contains(body, part) {
			t.Errorf("the page has no %s", part)
		}
	}
	if l := len(body); l > 3000 || strings.Contains(body, "<script") {
		t.Errorf("a page of %d bytes: %s", l, body)
	}
	// Whatever came in, the page is one of a handful.
	title := regexp.MustCompile(`<h1>(Signed in|[^<]*).*</h1>`).FindStringSubmatch(body)
	switch title[1] {
	case "Signed in", "Sign-in did not succeed", "Already received", "Not the expected answer",
		"Nothing here", "Not like this", "Wrong host", "Address too long":
	default:
		t.Errorf("an unknown page: %q", title[1])
	}
}

func TestOnlyTheRightStateSettles(t *testing.T) {
	const host, state, issuer = "127.0.0.1:4711", "st-canary", "https://as.example"
	const right = "code=code-canary&state=" + state
	iss := "&iss=" + url.QueryEscape(issuer)
	for _, c := range []struct {
		name, method, host, uri string
		issRequired             bool
		status                  int
		settles                 bool
		err                     string // part of the error; "": a code came
	}{
		{"right", "GET", host, "/callback?" + right, false, 200, true, ""},
		{"right with iss", "GET", host, "/callback?" + right + iss, true, 200, true, ""},
		{"root slash of iss", "GET", host, "/callback?" + right + iss + "%2F", true, 200, true, ""},
		{"unknown extra", "GET", host, "/callback?" + right + "&session_state=x", false, 200, true, ""},
		{"wrong state", "GET", host, "/callback?code=c&state=x", false, 400, false, ""},
		{"prefix of the state", "GET", host, "/callback?code=c&state=st-canar", false, 400, false, ""},
		{"no state", "GET", host, "/callback?code=c", false, 400, false, ""},
		{"empty state", "GET", host, "/callback?code=c&state=", false, 400, false, ""},
		{"error without state", "GET", host, "/callback?error=access_denied", false, 400, false, ""},
		{"two states", "GET", host, "/callback?" + right + "&state=" + state, false, 400, false, ""},
		{"two codes", "GET", host, "/callback?" + right + "&code=d", false, 400, false, ""},
		{"unreadable query", "GET", host, "/callback?" + right + "&x=%zz", false, 400, false, ""},
		{"favicon", "GET", host, "/favicon.ico", false, 404, false, ""},
		{"root", "GET", host, "/?" + right, false, 404, false, ""},
		{"path below", "GET", host, "/callback/?" + right, false, 404, false, ""},
		{"HEAD", "HEAD", host, "/callback?" + right, false, 405, false, ""},
		{"POST", "POST", host, "/callback?" + right, false, 405, false, ""},
		{"OPTIONS", "OPTIONS", host, "/callback?" + right, false, 405, false, ""},
		{"rebound name", "GET", "evil.example:4711", "/callback?" + right, false, 421, false, ""},
		{"localhost", "GET", "localhost:4711", "/callback?" + right, false, 421, false, ""},
		{"no port", "GET", "127.0.0.1", "/callback?" + right, false, 421, false, ""},
		{"long URL", "GET", host, "/callback?" + right + "&x=" + strings.Repeat("x", 1<<17), false, 414, false, ""},
		{"denied", "GET", host, "/callback?error=access_denied&error_description=No+" + state + "&state=" + state, false, 200, true, "access was denied (access_denied): No [redacted]"},
		{"busy", "GET", host, "/callback?error=temporarily_unavailable&state=" + state, false, 200, true, "temporarily_unavailable"},
		{"odd error", "GET", host, "/callback?error=%1b%5b31mx&state=" + state, false, 200, true, "the server refused: [31mx"},
		{"foreign iss", "GET", host, "/callback?" + right + "&iss=https%3A%2F%2Fevil.example", false, 200, true, "another issuer"},
		{"foreign iss with an error", "GET", host, "/callback?error=x&state=" + state + "&iss=https%3A%2F%2Fevil.example", false, 200, true, "another issuer"},
		{"missing iss", "GET", host, "/callback?" + right, true, 200, true, "another issuer"},
		{"no code", "GET", host, "/callback?state=" + state, false, 200, true, "without a code"},
	} {
		h, settled := oauthflow.CallbackHandler(host, state, issuer, c.issRequired)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(c.method, c.uri, nil)
		r.Host = c.host
		h.ServeHTTP(w, r)
		done, code, err := settled()
		if done != c.settles || w.Code != c.status {
			t.Errorf("%s: status %d, settled %v", c.name, w.Code, done)
		}
		if done && c.err == "" && code.Reveal() != "code-canary" {
			t.Errorf("%s: the code did not come: %v", c.name, err)
		}
		if done && c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v", c.name, err)
		}
		if text := fmt.Sprint(err, w.Body, w.Result().Header); strings.Contains(text, "canary") {
			t.Errorf("%s: a secret stands in %s", c.name, text)
		}
		checkPage(t, w.Result().Header, w.Body.String())
		if c.method == "HEAD" && w.Body.Len() != 0 {
			t.Errorf("HEAD has a body")
		}
	}
}

func TestASecondCallbackChangesNothing(t *testing.T) {
	const host = "127.0.0.1:4711"
	h, settled := oauthflow.CallbackHandler(host, "s", "", false)
	get := func(query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/callback?"+query, nil)
		r.Host = host
		h.ServeHTTP(w, r)
		return w
	}
	get("code=one&state=s")
	for _, again := range []string{"code=two&state=s", "error=access_denied&state=s"} {
		if w := get(again); w.Code != http.StatusConflict {
			t.Errorf("%s: status %d", again, w.Code)
		}
	}
	if _, code, err := settled(); err != nil || code.Reveal() != "one" {
		t.Errorf("the first answer did not stand: %v", err)
	}
	if done, _, _ := settled(); done {
		t.Error("settled twice")
	}
	if w := get("code=x&state=t"); w.Code != http.StatusBadRequest {
		t.Errorf("a stray hit afterwards: status %d", w.Code)
	}
}

// body reads and closes.
func body(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
