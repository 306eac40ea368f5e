package oauthflow_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

// authorizer is a token endpoint that checks a code as a strict server does.
type authorizer struct {
	*recorder
	asked   chan url.Values // the authorization request that the token request must fit
	idToken func(asked url.Values) string
}

const theCode = "canary-code-3"

func newAuthorizer(t *testing.T) *authorizer {
	a := &authorizer{asked: make(chan url.Values, 1)}
	a.recorder = serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked := <-a.asked
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		if asked.Get("code_challenge_method") != "S256" || len(r.PostForm.Get("code_verifier")) < 43 ||
			base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") ||
			r.PostForm.Get("code") != theCode || r.PostForm.Get("redirect_uri") != asked.Get("redirect_uri") ||
			r.PostForm.Get("client_id") != asked.Get("client_id") || r.PostForm.Get("resource") != asked.Get("resource") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"error":"invalid_grant","error_description":%q}`, r.PostForm.Encode())
			return
		}
		id := ""
		if a.idToken != nil {
			id = `,"id_token":"` + a.idToken(asked) + `"`
		}
		_, _ = io.WriteString(w, strings.TrimSuffix(good, "}")+id+"}")
	})
	return a
}

func (a *authorizer) login() *oauthflow.BrowserLogin {
	return &oauthflow.BrowserLogin{
		Requester: *requester(a.recorder),
		Server:    oauthflow.Server{Issuer: a.URL, AuthorizationEndpoint: a.URL + "/auth?tenant=x", TokenEndpoint: a.URL + "/token"},
		Client:    oauthflow.Client{ID: "cid"},
		Scopes:    []string{"read", "write"},
		Resource:  "https://rs.example/mcp",
	}
}

// address reads the sign-in address back from what was printed.
type address chan string

func (a address) Write(p []byte) (int, error) {
	if _, after, ok := strings.Cut(string(p), "\n\n  "); ok {
		a <- strings.TrimSpace(after)
	}
	return len(p), nil
}

func query(t *testing.T, address string) url.Values {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query()
}

func hit(t *testing.T, method, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestALoginWithABrowser(t *testing.T) {
	a := newAuthorizer(t)
	l := a.login()
	printed := make(address, 1)
	l.URLOut = printed
	opened := make(chan string, 1)
	l.Open = func(_ context.Context, u string) error {
		// The address is there before the browser is.
		first := <-printed
		if first != u {
			t.Errorf("printed %q, opened %q", first, u)
		}
		opened <- u
		q := query(t, u)
		a.asked <- q
		redirect := q.Get("redirect_uri")
		right := redirect + "?code=" + theCode + "&state=" + q.Get("state")
		base := strings.TrimSuffix(redirect, "/callback")
		for _, stray := range []struct{ method, url string }{
			{"GET", base + "/favicon.ico"}, {"GET", base + "/"}, {"HEAD", right}, {"POST", right},
			{"GET", redirect}, {"GET", redirect + "?code=x&state=wrong"}, {"GET", redirect + "?error=access_denied"},
			{"GET", right + "&pad=" + strings.Repeat("x", 1_000_000)},
		} {
			resp := hit(t, stray.method, stray.url)
			b := body(t, resp)
			if resp.StatusCode < 400 {
				t.Errorf("%s %.80s: status %d", stray.method, stray.url, resp.StatusCode)
			}
			checkPage(t, resp.Header, b)
		}
		resp := hit(t, "GET", right)
		b := body(t, resp)
		if resp.StatusCode != http.StatusOK || !strings.Contains(b, "Signed in") {
			t.Errorf("the right callback: %d %s", resp.StatusCode, b)
		}
		checkPage(t, resp.Header, b)
		return nil
	}
	res, err := l.Run(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	u := <-opened
	q := query(t, u)
	if res.Tokens.AccessToken.Reveal() != "AT2" || res.RedirectURI != q.Get("redirect_uri") || res.Client.ID != "cid" || len(res.Tokens.Warnings) > 0 {
		t.Errorf("result %+v", res)
	}
	if q.Get("tenant") != "x" || q.Get("scope") != "read write" || q.Get("response_type") != "code" || len(q.Get("state")) < 43 ||
		q.Has("nonce") || !strings.HasPrefix(q.Get("redirect_uri"), "http://127.0.0.1:") {
		t.Errorf("the address asks %v", q)
	}
	// The listener is gone.
	redirect, _ := url.Parse(res.RedirectURI)
	if c, err := net.Dial("tcp", redirect.Host); err == nil {
		_ = c.Close()
		t.Error("something still listens")
	}
}

func TestALoginThatIsDeniedSaysSo(t *testing.T) {
	a := newAuthorizer(t)
	l := a.login()
	var page string
	done := make(chan struct{})
	l.Open = func(_ context.Context, u string) error {
		defer close(done)
		q := query(t, u)
		page = body(t, hit(t, "GET", q.Get("redirect_uri")+"?error=access_denied&error_description=%3Cb%3Eno%3C/b%3E+"+q.Get("state")+"&state="+q.Get("state")))
		return nil
	}
	_, err := l.Run(deadline(t))
	<-done
	e := asError(t, err)
	if e.Class != oauthflow.ClassRefused || e.Code != "access_denied" || e.Error() != "sign-in: access was denied (access_denied): <b>no</b> [redacted]" {
		t.Errorf("%+v", *e)
	}
	if strings.Contains(page, "<b>") || !strings.Contains(page, "Sign-in did not succeed") {
		t.Errorf("page %s", page)
	}
	if n := len(a.seen()); n != 0 {
		t.Errorf("%d token requests", n)
	}
}

func TestTheErrorOfAFailedExchangeHoldsNoCodeOrVerifier(t *testing.T) {
	a := newAuthorizer(t)
	l := a.login()
	l.Open = func(_ context.Context, u string) error {
		q := query(t, u)
		broken := url.Values{"code_challenge_method": {"S256"}, "code_challenge": {"another"}}
		a.asked <- broken
		_ = body(t, hit(t, "GET", q.Get("redirect_uri")+"?code="+theCode+"&state="+q.Get("state")))
		return nil
	}
	_, err := l.Run(deadline(t))
	e := asError(t, err)
	if e.Class != oauthflow.ClassRefused {
		t.Errorf("%+v", *e)
	}
	form, _ := url.ParseQuery(a.seen()[0].body)
	for _, name := range []string{"code", "code_verifier"} {
		if v := form.Get(name); v == "" || strings.Contains(printings(err), v) {
			t.Errorf("%s in %s", name, printings(err))
		}
	}
}

func TestTheIssParameterIsCheckedInALogin(t *testing.T) {
	for name, c := range map[string]struct {
		iss string
		ok  bool
	}{"right": {"SELF", true}, "missing": {"", false}, "foreign": {"https://evil.example", false}} {
		a := newAuthorizer(t)
		l := a.login()
		l.Server.IssParameterSupported = true
		l.Open = func(_ context.Context, u string) error {
			q := query(t, u)
			a.asked <- q
			back := url.Values{"code": {theCode}, "state": {q.Get("state")}}
			if c.iss != "" {
				back.Set("iss", strings.ReplaceAll(c.iss, "SELF", a.URL))
			}
			_ = body(t, hit(t, "GET", q.Get("redirect_uri")+"?"+back.Encode()))
			return nil
		}
		_, err := l.Run(deadline(t))
		if c.ok != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.ok && len(a.seen()) != 0 {
			t.Errorf("%s: the code was sent", name)
		}
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	addr, ok := other.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("an address %T", other.Addr())
	}
	port := addr.Port
	a := newAuthorizer(t)
	l := a.login()
	l.RedirectPort = port
	l.Open = func(context.Context, string) error { t.Error("a browser was opened"); return nil }
	_, err = l.Run(deadline(t))
	if !errors.Is(err, oauthflow.ErrPortInUse) || !strings.Contains(err.Error(), fmt.Sprint(port)) {
		t.Errorf("%v", err)
	}

	// Free again: that very port is used, and the client may be registered for it.
	_ = other.Close()
	l.RedirectPath = "/back"
	l.Register = func(_ context.Context, redirectURI string) (oauthflow.Registered, error) {
		if want := fmt.Sprintf("http://127.0.0.1:%d/back", port); redirectURI != want {
			t.Errorf("redirect URI %q, want %q", redirectURI, want)
		}
		return oauthflow.Registered{Client: oauthflow.Client{ID: "registered"}}, nil
	}
	l.Open = func(_ context.Context, u string) error {
		q := query(t, u)
		a.asked <- q
		_ = body(t, hit(t, "GET", q.Get("redirect_uri")+"?code="+theCode+"&state="+q.Get("state")))
		return nil
	}
	res, err := l.Run(deadline(t))
	if err != nil || res.Client.ID != "registered" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestALoginEndsWithItsContext(t *testing.T) {
	a := newAuthorizer(t)
	l := a.login()
	printed := make(address, 1)
	l.URLOut = printed
	l.Open = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() } // never returns by itself
	ctx, cancel := context.WithCancel(deadline(t))
	go func() { <-printed; cancel() }()
	_, err := l.Run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestALoginThatCannotEndWellDoesNotBegin(t *testing.T) {
	fine := oauthflow.Server{AuthorizationEndpoint: "https://as.example/a", TokenEndpoint: "https://as.example/t"}
	for name, change := range map[string]func(*oauthflow.BrowserLogin){
		"authorization over http": func(l *oauthflow.BrowserLogin) { l.Server.AuthorizationEndpoint = "http://as.example/a" },
		"an option":               func(l *oauthflow.BrowserLogin) { l.Server.AuthorizationEndpoint = "--profile=x" },
		"a script":                func(l *oauthflow.BrowserLogin) { l.Server.AuthorizationEndpoint = "javascript:alert(1)" },
		"a file":                  func(l *oauthflow.BrowserLogin) { l.Server.AuthorizationEndpoint = "file:///etc/passwd" },
		"no authorization":        func(l *oauthflow.BrowserLogin) { l.Server.AuthorizationEndpoint = "" },
		"token over http":         func(l *oauthflow.BrowserLogin) { l.Server.TokenEndpoint = "http://as.example/t" },
		"no client":               func(l *oauthflow.BrowserLogin) { l.Client.ID = "" },
		"no port":                 func(l *oauthflow.BrowserLogin) { l.RedirectPort = 70000 },
		"no path":                 func(l *oauthflow.BrowserLogin) { l.RedirectPath = "//evil.example" },
		"failed registration": func(l *oauthflow.BrowserLogin) {
			l.Register = func(context.Context, string) (oauthflow.Registered, error) {
				return oauthflow.Registered{}, errors.New("no")
			}
		},
	} {
		l := &oauthflow.BrowserLogin{Server: fine, Client: oauthflow.Client{ID: "cid"}}
		l.Open = func(context.Context, string) error { t.Errorf("%s: a browser was opened", name); return nil }
		change(l)
		if _, err := l.Run(deadline(t)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func idToken(claims string) string { return jwt(claims) }

func TestTheAccountComesFromTheIDToken(t *testing.T) {
	a := newAuthorizer(t)
	l := a.login()
	l.Scopes = []string{"openid", "email"}
	a.idToken = func(asked url.Values) string {
		return idToken(fmt.Sprintf(`{"iss":%q,"aud":["x","cid"],"exp":%d,"sub":"u-1","email":"a@b.example","nonce":%q}`,
			a.URL+"/", time.Now().Add(time.Hour).Unix(), asked.Get("nonce")))
	}
	l.Open = func(_ context.Context, u string) error {
		q := query(t, u)
		if q.Get("nonce") == "" {
			t.Error("no nonce was sent")
		}
		a.asked <- q
		_ = body(t, hit(t, "GET", q.Get("redirect_uri")+"?code="+theCode+"&state="+q.Get("state")))
		return nil
	}
	res, err := l.Run(deadline(t))
	if err != nil || res.Account != (oauthflow.Account{Subject: "u-1", Email: "a@b.example"}) || len(res.Tokens.Warnings) > 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestAnIDTokenOfAnotherIsNotBelieved(t *testing.T) {
	const issuer = "https://as.example"
	exp := now.Add(time.Hour).Unix()
	for name, claims := range map[string]string{
		"issuer":       fmt.Sprintf(`{"iss":"https://evil.example","aud":"cid","exp":%d,"nonce":"n"}`, exp),
		"no issuer":    fmt.Sprintf(`{"aud":"cid","exp":%d,"nonce":"n"}`, exp),
		"audience":     fmt.Sprintf(`{"iss":%q,"aud":"other","exp":%d,"nonce":"n"}`, issuer, exp),
		"no audience":  fmt.Sprintf(`{"iss":%q,"exp":%d,"nonce":"n"}`, issuer, exp),
		"expired":      fmt.Sprintf(`{"iss":%q,"aud":"cid","exp":%d,"nonce":"n"}`, issuer, now.Add(-time.Hour).Unix()),
		"no expiry":    fmt.Sprintf(`{"iss":%q,"aud":"cid","nonce":"n"}`, issuer),
		"absurd":       fmt.Sprintf(`{"iss":%q,"aud":"cid","exp":1e300,"nonce":"n"}`, issuer),
		"nonce":        fmt.Sprintf(`{"iss":%q,"aud":"cid","exp":%d,"nonce":"m"}`, issuer, exp),
		"no nonce":     fmt.Sprintf(`{"iss":%q,"aud":"cid","exp":%d}`, issuer, exp),
		"control byte": fmt.Sprintf(`{"iss":%q,"aud":"cid","exp":%d,"nonce":"n","sub":"\u001b[31m"}`, issuer, exp),
		"no JSON":      `nonsense`,
	} {
		got, err := oauthflow.ReadAccount(secret.New(idToken(claims)), issuer, "cid", secret.New("n"), now)
		if err == nil || got != (oauthflow.Account{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := oauthflow.ReadAccount(secret.New("opaque"), issuer, "cid", secret.Secret{}, now); err == nil {
		t.Error("an opaque token was read")
	}
}
