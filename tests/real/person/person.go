// Package person is the human of a login: somebody with a browser that keeps
// cookies, who reads forms, fills in what they ask for and presses a button.
//
// It knows no server. It goes from page to page by what the HTML says, so the
// same person signs in at any authorization server whose pages work without
// scripts, or with the one that makes a button a link.
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

// Words are what can be read on the page, with single spaces.
func (p Page) Words() string {
	root, err := html.Parse(strings.NewReader(p.Body))
	if err != nil {
		return ""
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "style" && n.Parent.Data != "script" {
			b.WriteString(n.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
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
		if errors.Is(err, errNoForm) {
			links, parseErr := findLinkButtons(page.Body)
			if parseErr == nil && len(links) > 0 {
				if request, err = follow(ctx, page.URL, choose(links, p.Deny)); err != nil {
					return page, err
				}
				continue
			}
			if arrived == nil {
				return page, nil
			}
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
	buttons map[string][]button // named submit buttons
}

// button has what a person reads on it, and what comes of pressing it.
type button struct {
	label string
	value string
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
		values.Set(name, choose(offered, deny))
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

// choose gives the value of the button that says what the person wants; of the
// first one where none does.
func choose(offered []button, deny bool) string {
	for _, b := range offered {
		label := strings.ToLower(b.label)
		if refusal := strings.HasPrefix(label, "den") || strings.HasPrefix(label, "cancel"); refusal == deny {
			return b.value
		}
	}
	return offered[0].value
}

func follow(ctx context.Context, page *url.URL, link string) (*http.Request, error) {
	target, err := page.Parse(link)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", link, err)
	}
	return http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
}

// findLinkButtons reads buttons outside of any form that a script makes links.
func findLinkButtons(page string) ([]button, error) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return nil, err
	}
	var found []button
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.Data != "button" {
			continue
		}
		link, ok := strings.CutPrefix(attribute(n, "onclick"), "location.href='")
		if link, closed := strings.CutSuffix(link, "'"); ok && closed {
			found = append(found, button{label: text(n), value: link})
		}
	}
	return found, nil
}

// text is what a person reads in an element.
func text(n *html.Node) string {
	var b strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			b.WriteString(child.Data)
		}
	}
	return strings.TrimSpace(b.String())
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
		buttons: map[string][]button{},
	}
	for child := range n.Descendants() {
		name := attribute(child, "name")
		if child.Type != html.ElementNode || name == "" {
			continue
		}
		switch kind := attribute(child, "type"); {
		case child.Data == "button":
			f.buttons[name] = append(f.buttons[name], button{label: text(child), value: attribute(child, "value")})
		case child.Data == "input" && kind == "submit":
			value := attribute(child, "value")
			f.buttons[name] = append(f.buttons[name], button{label: value, value: value})
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
