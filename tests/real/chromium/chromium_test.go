package chromium_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/real/chromium"
)

// A judge that sees nothing finds nothing wrong, so this shows it a page on
// which everything is.
const badPage = `<!doctype html>
<html><head><title>unchanged</title><script>document.title = "changed"</script></head>
<body style="background:#fff;margin:0"><h1>one</h1><h1>two</h1>
<noscript>without scripts</noscript>
<p style="color:#aaa">faint</p>
<p style="width:3000px">wide</p>
<img src="http://elsewhere.test/picture">
<img src="/forbidden">
</body></html>`

func open(t *testing.T, policy string) *chromium.Browser {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = w.Write([]byte(badPage))
	}))
	t.Cleanup(s.Close)
	b, err := chromium.Start(context.WithoutCancel(t.Context())) // it ends in a cleanup
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.Show(chromium.Light, 320, 480, 1); err != nil {
		t.Fatal(err)
	}
	if err := b.Open(s.URL); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheBrowserSeesWhatIsWrongWithAPage(t *testing.T) {
	b := open(t, "")
	look, err := b.Look()
	if err != nil {
		t.Fatal(err)
	}
	if look.Title != "unchanged" || !strings.Contains(look.Text, "without scripts") {
		t.Errorf("scripts run: %+v", look)
	}
	if look.Headings != 2 || look.Language != "" || look.Wide < 2000 || look.Ground != 1 {
		t.Errorf("it sees %+v", look)
	}
	// #aaa on white: 21 to 1 for black, and 2.32 for this grey.
	if look.Faintest != "faint" || look.Contrast < 2.3 || look.Contrast > 2.35 {
		t.Errorf("contrast %.2f of %q", look.Contrast, look.Faintest)
	}
	if !slices.Contains(b.Asked(), "http://elsewhere.test/picture") || !slices.Contains(b.Elsewhere(), "GET elsewhere.test") {
		t.Errorf("pages asked for %q, and %q left", b.Asked(), b.Elsewhere())
	}
}

func TestTheBrowserSeesWhatAPolicyBlocks(t *testing.T) {
	b := open(t, "img-src 'none'")
	for _, c := range b.Complaints() {
		if strings.Contains(c.Text, "/forbidden") {
			return
		}
	}
	t.Errorf("the browser complains only of %q", b.Complaints())
}
