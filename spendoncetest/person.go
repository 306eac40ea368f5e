package spendoncetest

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
)

// ErrLoginRefused is what a person gets whose name or password is wrong, or
// whose request the server does not serve.
var ErrLoginRefused = errors.New("the sign-in page did not let the person through")

// Person walks through the login form as somebody at a browser does. The zero
// value is the default user of a token server, who says yes.
type Person struct {
	User, Password string
	Deny           bool
	// Transport is used for all requests; nil means the default one.
	Transport http.RoundTripper
}

// Authorize opens the URL that a client shows its user, fills in the form and
// returns where the browser is sent then: the client's redirect URI with code
// or error, which it does not open itself.
func (p Person) Authorize(ctx context.Context, authorizationURL string) (*url.URL, error) {
	browser, err := p.browser()
	if err != nil {
		return nil, err
	}
	shown, callback, err := visit(ctx, browser, http.MethodGet, authorizationURL, nil)
	if err != nil || callback != nil {
		return callback, err
	}
	_, callback, err = p.fillIn(ctx, browser, authorizationURL, shown)
	if err == nil && callback == nil {
		err = ErrLoginRefused
	}
	return callback, err
}

// ApproveDevice opens the complete verification URI of a device (RFC 8628),
// fills in the form and returns the page that follows.
func (p Person) ApproveDevice(ctx context.Context, verificationURL string) (string, error) {
	browser, err := p.browser()
	if err != nil {
		return "", err
	}
	shown, _, err := visit(ctx, browser, http.MethodGet, verificationURL, nil)
	if err != nil {
		return "", err
	}
	shown, _, err = p.fillIn(ctx, browser, verificationURL, shown)
	if err == nil && strings.Contains(shown, "<form") {
		err = ErrLoginRefused
	}
	return shown, err
}

func (p Person) browser() (*http.Client, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: p.Transport, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// fillIn sends the form that is shown at a URL.
func (p Person) fillIn(ctx context.Context, browser *http.Client, at, shown string) (string, *url.URL, error) {
	if p.User == "" {
		p.User, p.Password = DefaultUser, DefaultPassword
	}
	form := url.Values{"username": {p.User}, "password": {p.Password}, "action": {"allow"}}
	if p.Deny {
		form.Set("action", "deny")
	}
	for _, name := range []string{"request", "csrf", "user_code"} {
		if value := attribute(shown, `name="`+name+`" value="`); value != "" {
			form.Set(name, value)
		}
	}
	page, err := url.Parse(at)
	if err != nil {
		return "", nil, err
	}
	action, err := page.Parse(attribute(shown, `action="`))
	if err != nil {
		return "", nil, err
	}
	return visit(ctx, browser, http.MethodPost, action.String(), form)
}

// visit returns the page, or where it redirects to.
func visit(ctx context.Context, browser *http.Client, method, to string, form url.Values) (string, *url.URL, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(form.Encode()))
	if err != nil {
		return "", nil, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := browser.Do(req)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	shown, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return "", nil, err
	}
	if resp.Header.Get("Location") != "" {
		callback, err := resp.Location()
		return "", callback, err
	}
	if resp.StatusCode != http.StatusOK {
		return "", nil, fmt.Errorf("%w: status %d", ErrLoginRefused, resp.StatusCode)
	}
	return string(shown), nil, nil
}

// attribute returns what stands between before and the next quote.
func attribute(shown, before string) string {
	_, rest, _ := strings.Cut(shown, before)
	value, _, _ := strings.Cut(rest, `"`)
	return html.UnescapeString(value)
}
