// Package person is the human of a login: somebody with a browser that keeps
// cookies, who reads forms, fills in what they ask for and presses a button.
//
// It knows no server. It goes from page to page by what the HTML says, so the
// same person signs in at any authorization server whose pages work without
// scripts.
package person

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"

	"golang.org/x/net/html"
)

// maxPages ends a walk that a server sends in circles.
const maxPages = 12

// Person is one account holder. The zero Person knows no password.
type Person struct {
	Username string
	Password string

	// Mistyped passwords are entered first, one for each time the form is shown.
	Mistyped []string

	// Deny makes the person refuse when asked to consent.
	Deny bool
}

// Page is what the browser shows at the end.
type Page struct {
	URL    *url.URL
	Status int
	Body   string
	Forms  int // forms that were sent on the way
}

// SignIn opens the authorization URL and walks until the browser arrives at
// the redirect URI that the URL names. It returns the page shown there: what
// the waiting program answers to its callback.
func (p Person) SignIn(ctx context.Context, authorizationURL string) (Page, error) {
	start, err := url.Parse(authorizationURL)
	if err != nil {
		return Page{}, fmt.Errorf("reading the authorization URL: %w", err)
	}
	redirect, err := url.Parse(start.Query().Get("redirect_uri"))
	if err != nil || redirect.Host == "" {
		return Page{}, fmt.Errorf("authorization URL has no usable redirect_uri: %q", start.Query().Get("redirect_uri"))
	}
	return p.walk(ctx, authorizationURL, func(at *url.URL) bool {
		return at.Host == redirect.Host && at.Path == redirect.Path
	})
}

// Visit opens a page and walks until one has no form left to send.
func (p Person) Visit(ctx context.Context, address string) (Page, error) {
	return p.walk(ctx, address, nil)
}

// walk ends where arrived says so; with nil, at a page without a form.
func (p Person) walk(ctx context.Context, address string, arrived func(*url.URL) bool) (Page, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return Page{}, err
	}
	transport := &http.Transport{} // no proxy: every host here is this machine
	defer transport.CloseIdleConnections()
	browser := &http.Client{Jar: jar, Transport: transport}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Page{}, err
	}
	mistyped := p.Mistyped
	for sent := range maxPages {
		page, err := load(browser, request)
		if err != nil {
			return Page{}, err
		}
		page.Forms = sent
		if arrived != nil && arrived(page.URL) {
			return page, nil
		}
		form, err := findForm(page.Body)
		if errors.Is(err, errNoForm) && arrived == nil {
			return page, nil
		}
		if err != nil {
			return page, fmt.Errorf("page at %s with status %d: %w", page.URL.Redacted(), page.Status, err)
		}
		password := p.Password
		if form.asks("password") && len(mistyped) > 0 {
			password, mistyped = mistyped[0], mistyped[1:]
		}
		request, err = form.fill(ctx, page.URL, p.Username, password, p.Deny)
		if err != nil {
			return page, err
		}
	}
	return Page{}, fmt.Errorf("no end after %d pages", maxPages)
}

func load(browser *http.Client, request *http.Request) (Page, error) {
	response, err := browser.Do(request)
	if err != nil {
		return Page{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return Page{URL: response.Request.URL, Status: response.StatusCode, Body: string(body)}, err
}

var errNoForm = errors.New("no form on the page")

type form struct {
	method  string
	action  string
	fields  url.Values          // what the page filled in itself
	asked   map[string]bool     // inputs that are for the person
	buttons map[string][]string // named submit buttons and their values
}

func (f form) asks(name string) bool { return f.asked[name] }

// fill is the person's part: known fields get their answer, unknown ones stay
// empty, and of several buttons the one that says what the person wants.
func (f form) fill(ctx context.Context, page *url.URL, username, password string, deny bool) (*http.Request, error) {
	values := url.Values{}
	for name, v := range f.fields {
		values[name] = v
	}
	if f.asks("username") {
		values.Set("username", username)
	}
	if f.asks("password") {
		values.Set("password", password)
	}
	for name, offered := range f.buttons {
		choice := offered[0]
		for _, value := range offered {
			if isRefusal(value) == deny {
				choice = value
				break
			}
		}
		values.Set(name, choice)
	}
	target, err := page.Parse(f.action)
	if err != nil {
		return nil, fmt.Errorf("form action %q: %w", f.action, err)
	}
	if !strings.EqualFold(f.method, http.MethodPost) {
		target.RawQuery = values.Encode()
		return http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), strings.NewReader(values.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request, nil
}

func isRefusal(value string) bool {
	return strings.HasPrefix(value, "den") || strings.HasPrefix(value, "cancel")
}

// findForm reads the first form of a page.
func findForm(page string) (form, error) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return form{}, err
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Data == "form" {
			return readForm(n), nil
		}
	}
	return form{}, errNoForm
}

func readForm(n *html.Node) form {
	f := form{
		method:  attribute(n, "method"),
		action:  attribute(n, "action"),
		fields:  url.Values{},
		asked:   map[string]bool{},
		buttons: map[string][]string{},
	}
	for child := range n.Descendants() {
		name := attribute(child, "name")
		if child.Type != html.ElementNode || name == "" {
			continue
		}
		switch kind := attribute(child, "type"); {
		case child.Data == "button", child.Data == "input" && kind == "submit":
			f.buttons[name] = append(f.buttons[name], attribute(child, "value"))
		case child.Data == "input" && kind == "hidden":
			f.fields.Add(name, attribute(child, "value"))
		case child.Data == "input":
			f.asked[name] = true
			f.fields.Set(name, attribute(child, "value"))
		}
	}
	return f
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
