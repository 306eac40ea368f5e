package oauthflow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/oauthflow"
)

// browse answers the sign-in as the server's page would, and returns what the
// browser shows in the end. The token endpoint is prepared to agree if agree.
func browse(t *testing.T, a *authorizer, l *oauthflow.BrowserLogin, agree bool) <-chan string {
	t.Helper()
	shown := make(chan string, 1)
	l.Open = func(_ context.Context, u string) error {
		q := query(t, u)
		if agree {
			a.asked <- q
		} else {
			a.asked <- url.Values{}
		}
		resp := hit(t, "GET", q.Get("redirect_uri")+"?code="+theCode+"&state="+q.Get("state"))
		b := body(t, resp)
		checkPage(t, resp.Header, b)
		shown <- b
		return nil
	}
	return shown
}

func TestThePageAtTheEndSaysToWhatAndAsWhomOneIsSignedIn(t *testing.T) {
	a := newAuthorizer(t)
	l := a.login()
	l.Name = "box"
	l.Scopes = []string{"openid"}
	a.idToken = func(asked url.Values) string {
		return idToken(fmt.Sprintf(`{"iss":%q,"aud":"cid","exp":%d,"sub":"u-1","email":"<b>@b.example","nonce":%q}`,
			a.URL, time.Now().Add(time.Hour).Unix(), asked.Get("nonce")))
	}
	shown := browse(t, a, l, true)
	kept := false
	l.Keep = func(_ context.Context, res oauthflow.Result) error {
		select {
		case <-shown:
			t.Error("the page was shown before the session was kept")
		default:
		}
		kept = res.Account.Subject == "u-1" && res.Tokens.AccessToken.Reveal() == "AT2"
		return nil
	}
	if _, err := l.Run(deadline(t)); err != nil || !kept {
		t.Fatalf("%v, kept %v", err, kept)
	}
	if page := <-shown; !strings.Contains(page, "<h1>Signed in to box <small>as &lt;b&gt;@b.example</small></h1>") {
		t.Errorf("the page is %s", page)
	}
}

func TestThePageAtTheEndSaysWhatWentWrong(t *testing.T) {
	for name, c := range map[string]struct {
		agree bool
		keep  error
		want  string
	}{
		"the exchange": {false, nil, "Token request: status 400 invalid_grant"},
		"the keeping":  {true, errors.New("the <store> is full"), "The &lt;store&gt; is full."},
	} {
		a := newAuthorizer(t)
		l := a.login()
		shown := browse(t, a, l, c.agree)
		l.Keep = func(context.Context, oauthflow.Result) error { return c.keep }
		_, err := l.Run(deadline(t))
		if err == nil || c.keep != nil && !errors.Is(err, c.keep) {
			t.Errorf("%s: %v", name, err)
		}
		page := <-shown
		if !strings.Contains(page, "Sign-in did not succeed") || !strings.Contains(page, c.want) {
			t.Errorf("%s: the page is %s", name, page)
		}
		if strings.Contains(page, theCode) {
			t.Errorf("%s: the page shows the code", name)
		}
	}
}

// pasting is a login that nobody's browser comes back to. The answer is what
// answers makes of the address.
func pasting(t *testing.T, a *authorizer, answers func(redirect string, q url.Values) []string) (*oauthflow.BrowserLogin, *strings.Builder) {
	t.Helper()
	l := a.login()
	in, paste := io.Pipe()
	var said strings.Builder
	printed := make(address, 1)
	l.URLOut, l.Pasted = io.MultiWriter(printed, &said), in
	l.Open = func(context.Context, string) error { return nil }
	go func() {
		q := query(t, <-printed)
		a.asked <- q
		for _, line := range answers(q.Get("redirect_uri"), q) {
			if _, err := io.WriteString(paste, line+"\n"); err != nil {
				return // the login has ended
			}
		}
		_ = paste.Close()
	}()
	t.Cleanup(func() { _ = in.Close() })
	return l, &said
}

func TestAnAnswerThatIsPastedSignsIn(t *testing.T) {
	for name, answer := range map[string]func(redirect, state string) string{
		"the whole address":          func(r, s string) string { return r + "?code=" + theCode + "&state=" + s },
		"with white space around it": func(r, s string) string { return "  " + r + "?state=" + s + "&code=" + theCode + "\t" },
		"its query":                  func(_, s string) string { return "code=" + theCode + "&state=" + s },
		"with a question mark":       func(_, s string) string { return "?code=" + theCode + "&state=" + s },
	} {
		a := newAuthorizer(t)
		l, _ := pasting(t, a, func(r string, q url.Values) []string { return []string{answer(r, q.Get("state"))} })
		if res, err := l.Run(deadline(t)); err != nil || res.Tokens.AccessToken.Reveal() != "AT2" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsNoAnswerIsAskedForAgainAndNotRepeated(t *testing.T) {
	a := newAuthorizer(t)
	wrong := []string{"", "https://evil.example/?code=canary-c&state=wrong", "canary-c", "code=canary-c", strings.Repeat("x", 1000), "%zz?state=%zz"}
	l, said := pasting(t, a, func(r string, q url.Values) []string {
		return append(wrong, r+"?code="+theCode+"&state="+q.Get("state"))
	})
	if _, err := l.Run(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(said.String(), "not the answer"); n != len(wrong)-1 || strings.Contains(said.String(), "canary") {
		t.Errorf("%d refusals in %s", n, said)
	}
}

func TestARefusalThatIsPastedEndsTheLogin(t *testing.T) {
	a := newAuthorizer(t)
	l, _ := pasting(t, a, func(r string, q url.Values) []string {
		return []string{r + "?error=access_denied&state=" + q.Get("state")}
	})
	_, err := l.Run(deadline(t))
	if e := asError(t, err); e.Code != "access_denied" {
		t.Errorf("%+v", *e)
	}
}

func TestAnInputThatEndsWithoutAnAnswerEndsTheLogin(t *testing.T) {
	for name, lines := range map[string][]string{"nothing": nil, "a line too long": {strings.Repeat("x", 1<<17)}} {
		a := newAuthorizer(t)
		l, _ := pasting(t, a, func(string, url.Values) []string { return lines })
		if _, err := l.Run(deadline(t)); !errors.Is(err, oauthflow.ErrNoAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
