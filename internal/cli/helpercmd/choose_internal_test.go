package helpercmd

import (
	"errors"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

func origin(t *testing.T, raw string) bearer.Origin {
	t.Helper()
	o, err := bearer.ParseOrigin(raw)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func placeAt(t *testing.T, target string, urls ...string) credcmd.Place {
	t.Helper()
	p := credcmd.Place{Target: target, URL: urls[0]}
	for _, u := range urls {
		if u != "" {
			p.Origins = append(p.Origins, origin(t, u))
		}
	}
	return p
}

func TestATargetIsChosenByItsOriginAndNeverGuessed(t *testing.T) {
	const forge = "https://forge.example"
	list := []credcmd.Place{
		placeAt(t, "alone", "https://alone.example", "https://alias.example:444"),
		placeAt(t, "forge-a", forge+"/a"),
		placeAt(t, "forge-ab", forge+"/a/b/"),
		placeAt(t, "forge-c", forge+"/c"),
		placeAt(t, "guest", "https://guest.example/a", forge),
		placeAt(t, "same-1", "https://same.example/x"),
		placeAt(t, "same-2", "https://same.example/x"),
		{Target: "nowhere"},
	}
	for _, c := range []struct {
		name   string
		origin string
		path   string
		target string
		want   string // "" is none, "?" an error that names how to say which
	}{
		{"the only one of its origin", "https://alone.example", "", "", "alone"},
		{"whatever the path", "https://alone.example", "x/y", "", "alone"},
		{"by one of its hosts", "https://alias.example:444", "", "", "alone"},
		{"another port", "https://alias.example", "", "", ""},
		{"a sub-domain", "https://a.alone.example", "", "", ""},
		{"the parent", "https://example", "", "", ""},
		{"the named one", "https://alone.example", "", "alone", "alone"},
		{"the named one elsewhere", "https://forge.example", "", "alone", ""},
		{"a named one without a URL", "https://alone.example", "", "nowhere", ""},
		{"a named one that is not there", "https://alone.example", "", "alonely", "?"},
		{"several, no path", forge, "", "", "?"},
		{"several, named", forge, "", "forge-c", "forge-c"},
		{"several, named, against the path", forge, "a/x", "forge-c", "forge-c"},
		{"the path leads to one", forge, "c/repo.git", "", "forge-c"},
		{"the path is one", forge, "c", "", "forge-c"},
		{"the longest of two", forge, "a/b/repo.git", "", "forge-ab"},
		{"the shorter of two", forge, "a/bc/repo.git", "", "forge-a"},
		{"no segment, only the same letters", forge, "cc/repo.git", "", "?"},
		{"a path that leads back", forge, "c/../a/repo.git", "", "?"},
		{"a path with an empty segment", forge, "c//repo.git", "", "?"},
		{"a path that is encoded twice", forge, "c/%2e%2e/a", "", "?"},
		{"two of the same URL", "https://same.example", "x/repo.git", "", "?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := choose(list, want{[]bearer.Origin{origin(t, c.origin)}, c.path, c.target})
			var exit *streams.Exit
			switch {
			case c.want == "" && !errors.Is(err, errNoTarget),
				c.want == "?" && (!errors.As(err, &exit) || exit.Code != 2 || errors.Is(err, errNoTarget)),
				c.want != "" && c.want != "?" && (err != nil || got.Target != c.want):
				t.Errorf("chose %q, %v", got.Target, err)
			}
		})
	}
}

func TestAnAmbiguousOriginNamesItsCandidates(t *testing.T) {
	list := []credcmd.Place{placeAt(t, "one", "https://a.example"), placeAt(t, "two", "https://b.example", "https://a.example")}
	_, err := choose(list, want{origins: []bearer.Origin{origin(t, "https://a.example")}})
	if err == nil || !strings.Contains(err.Error(), "one and two") || !strings.Contains(err.Error(), "--target") {
		t.Fatal(err)
	}
}

// docker leaves the scheme out. It decides for itself to which registries it
// speaks http, and those are of this machine.
func TestARegistryWithoutASchemeIsHTTPSOrOnThisMachine(t *testing.T) {
	for server, want := range map[string]string{
		"registry.example.com":      "https://registry.example.com",
		"registry.example.com:5000": "https://registry.example.com:5000",
		"localhost:5000":            "https://localhost:5000 http://localhost:5000",
		"127.0.0.1:5000":            "https://127.0.0.1:5000 http://127.0.0.1:5000",
		"http://localhost:5000":     "http://localhost:5000",
		"http://registry.example":   "",
		"a@registry.example":        "",
		"ftp://registry.example":    "",
	} {
		origins, _ := dockerOrigins(server)
		var got []string
		for _, o := range origins {
			got = append(got, o.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, not %q", server, got, want)
		}
	}
}

func TestOnlyCallsWithoutFlagsAreFast(t *testing.T) {
	for call, want := range map[string]bool{
		"token work": true, "credential headers work": true, "credential kubectl work": true,
		"credential git get": true, "credential docker get": true,
		"token": false, "token --help": false, "token -work": false, "token work --json": false, "-q token work": false,
		"credential headers -h": false, "credential git store": false, "credential git get --target": false,
		"credential docker list": false, "credential env work": false, "exec work": false, "": false,
	} {
		if got := Fast(&credcmd.App{}, strings.Fields(call)) != nil; got != want {
			t.Errorf("%q is fast: %v", call, got)
		}
	}
}
