package real_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/real/chromium"
	"github.com/spendonce/spendonce/tests/real/person"
)

// startBrowser starts Chromium, and at the end demands that it stayed on this
// machine and is gone.
func startBrowser(t *testing.T) *chromium.Browser {
	t.Helper()
	b, err := chromium.Start(context.WithoutCancel(t.Context())) // it ends in a cleanup
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		for _, address := range b.Asked() {
			if !isLoopback(address) {
				t.Errorf("a page asked for %s", address)
			}
		}
		for _, request := range b.Elsewhere() {
			t.Errorf("a request left for another machine: %s", request)
		}
	})
	return b
}

func isLoopback(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Hostname() == "127.0.0.1"
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// inBrowser is how somebody signs in with it: by the form that is shown, and
// by the button with that label.
func inBrowser(b *chromium.Browser, who person.Person, buttons ...string) walk {
	return func(_ context.Context, address string) (person.Page, error) {
		if err := b.Open(address); err != nil {
			return person.Page{}, err
		}
		for _, button := range buttons {
			if err := fillIn(b, who); err != nil {
				return person.Page{}, err
			}
			if err := b.Press(button); err != nil {
				return person.Page{}, err
			}
		}
		look, err := b.Look()
		if err != nil {
			return person.Page{}, err
		}
		answer, ok := b.AnswerOf(look.URL)
		if !ok {
			return person.Page{}, errors.New("no answer of the page that is shown")
		}
		at, err := url.Parse(look.URL)
		return person.Page{URL: at, Status: answer.Status, Body: look.Text}, err
	}
}

func fillIn(b *chromium.Browser, who person.Person) error {
	for field, text := range map[string]string{"username": who.Username, "password": who.Password} {
		has, err := b.Has(field)
		if err != nil {
			return err
		}
		if !has {
			continue
		}
		if err := b.Type(field, text); err != nil {
			return err
		}
	}
	return nil
}

// checkPage demands what any page of ours must be, whatever it says.
func checkPage(t *testing.T, b *chromium.Browser) chromium.Look {
	t.Helper()
	var last chromium.Look
	for _, scheme := range []chromium.Scheme{chromium.Light, chromium.Dark} {
		for _, width := range []int64{320, 1280} {
			if err := b.Show(scheme, width, 640, 1); err != nil {
				t.Fatal(err)
			}
			look, err := b.Look()
			if err != nil {
				t.Fatal(err)
			}
			if look.Wide > 0 {
				t.Errorf("%s, %d px: the page is %.0f px too wide", scheme, width, look.Wide)
			}
			if look.Contrast < 4.5 { // WCAG 2.2, 1.4.3
				t.Errorf("%s: contrast %.2f of %q", scheme, look.Contrast, look.Faintest)
			}
			if dark := look.Ground < 0.1; dark != (scheme == chromium.Dark) {
				t.Errorf("%s: the ground has luminance %.2f", scheme, look.Ground)
			}
			if look.Drawings != 1 {
				t.Errorf("%s, %d px: %d marks are drawn, want 1", scheme, width, look.Drawings)
			}
			last = look
		}
	}
	if last.Language != "en" || !strings.HasSuffix(last.Title, " - spendonce") || last.Headings != 1 {
		t.Errorf("language %q, title %q, %d headings", last.Language, last.Title, last.Headings)
	}
	if !strings.Contains(last.Text, "You can close this window.") {
		t.Errorf("the page does not say that the window may be closed: %q", last.Text)
	}
	answer, ok := b.AnswerOf(last.URL)
	if !ok || answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the page came with %v", answer.Header)
	}
	for _, c := range b.Complaints() {
		if hostOf(t, c.URL) == hostOf(t, last.URL) { // and not the authorization server's
			t.Errorf("the browser complains: %s", c.Text)
		}
	}
	return last
}

// browserSites are those whose forms Chromium fills in, and the button to press.
var browserSites = []struct {
	siteKind
	buttons []string
}{
	{siteKind{"zitadel", zitadelSite, "id1", true}, []string{"Login"}},
	{siteKind{"strict", strictSite, "alice@example.test", true}, []string{"Sign in"}},
	{siteKind{name: "fosite", start: fositeSite}, []string{"Sign in", "Allow"}},
}

func TestInARealBrowserTheLoginEndsOnAPageThatSaysSo(t *testing.T) {
	for _, k := range browserSites {
		t.Run(k.name, func(t *testing.T) {
			ctx := testContext(t)
			v, b := visit(t, k.start(t)), startBrowser(t)
			args := []string{"login", v.target, "--url", v.site.url}
			r, page := v.signIn(ctx, byBrowser, v.site, args, inBrowser(b, v.site.Account(), k.buttons...))
			if r.code != exitOK {
				t.Fatalf("%v\nthe browser shows %q", r, page.Body)
			}
			words := "Signed in to demo"
			if k.account != "" {
				words += " as " + k.account
			}
			if page.Status != http.StatusOK || page.Body != words+" You can close this window." {
				t.Errorf("the browser ends on status %d: %q", page.Status, page.Body)
			}
			checkPage(t, b)
			v.tokenThatWorks(ctx)
		})
	}
}

func TestInARealBrowserTheEndIsTheEnd(t *testing.T) {
	ctx := testContext(t)
	v, b := visit(t, strictSite(t)), startBrowser(t)
	const account = "alice@example.test"
	args := []string{"login", v.target, "--url", v.site.url}
	r, page := v.signIn(ctx, byBrowser, v.site, args, inBrowser(b, v.site.Account(), "Sign in"))
	if r.code != exitOK || !strings.Contains(page.Body, account) {
		t.Fatalf("%v\nthe browser shows %q", r, page.Body)
	}
	code := page.URL.Query().Get("code")
	if code == "" {
		t.Fatal("the browser did not come by a code")
	}

	// A page that is left says nothing of where one came from.
	referers := make(chan string, 1)
	next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/next" {
			referers <- r.Referer()
		}
	}))
	t.Cleanup(next.Close)
	if err := b.Leave(next.URL + "/next"); err != nil {
		t.Fatal(err)
	}
	if referer := <-referers; referer != "" {
		t.Errorf("the next page is told %q", referer)
	}

	for _, step := range []struct {
		name string
		do   func() error
		text string // what is shown begins so
	}{
		{"back to the page, as it was left", b.Back, "Signed in to demo as " + account},
		{"reload, from a server that is gone", b.Reload, ""},
		{"back to the form", b.Back, "Sign in The program"},
		{"forward to the server that is gone", b.Forward, ""},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		look, err := b.Look()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if !strings.HasPrefix(look.Text, step.text) || step.text == "" && look.URL != "chrome-error://chromewebdata/" {
			t.Errorf("%s: the browser shows %q", step.name, look.Text)
		}
		if strings.Contains(look.Text, code) {
			t.Errorf("%s: the browser shows the code", step.name)
		}
	}
	v.tokenThatWorks(ctx) // whatever was clicked

	if err := b.Quit(); err != nil {
		t.Error(err)
	}
	secrets := v.site.Secrets()
	secrets[account] = "account"
	if kind, where := found(t, b.Profile(), secrets); kind != "" {
		t.Errorf("%s keeps the %s", where, kind)
	}
}

// found searches the files below a directory.
func found(t *testing.T, dir string, values map[string]string) (kind, where string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for value, k := range values {
			if strings.Contains(string(data), value) {
				kind, where = k, path
			}
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("searching %d files: %v", files, err)
	}
	return kind, where
}

func TestInARealBrowserADeniedLoginSaysThatItWas(t *testing.T) {
	ctx := testContext(t)
	v, b := visit(t, strictSite(t)), startBrowser(t)
	args := []string{"login", v.target, "--url", v.site.url}
	r, page := v.signIn(ctx, byBrowser, v.site, args, inBrowser(b, v.site.Account(), "Deny"))
	if r.code == exitOK {
		t.Errorf("a denied login succeeds: %v", r)
	}
	for _, words := range []string{"Sign-in did not succeed", "Access was denied (access_denied): the user said no.", "The terminal says how to go on."} {
		if !strings.Contains(page.Body, words) {
			t.Errorf("the page does not say %q: %q", words, page.Body)
		}
	}
	checkPage(t, b)
}

func TestInARealBrowserALongNameIsBroken(t *testing.T) {
	ctx := testContext(t)
	who := person.Person{Username: strings.Repeat("abcdefghij", 12), Password: "p"}
	s := startStrict(t, spendoncetest.TokenServerConfig{Users: map[string]string{who.Username: who.Password}})
	v, b := visit(t, site{authority: s, url: s.ResourceURL()}), startBrowser(t)
	v.target = strings.Repeat("target-", 8) + "x"
	args := []string{"login", v.target, "--url", v.site.url}
	r, page := v.signIn(ctx, byBrowser, v.site, args, inBrowser(b, who, "Sign in"))
	if r.code != exitOK || !strings.Contains(page.Body, who.Username) || !strings.Contains(page.Body, v.target) {
		t.Fatalf("%v\nthe browser shows %q", r, page.Body)
	}
	checkPage(t, b)
}
