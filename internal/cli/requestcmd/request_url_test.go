package requestcmd_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/internal/cli/requestcmd"
)

const base = "https://api.example.com/v1?key=x#top"

func origins(t testing.TB, raw ...string) []bearer.Origin {
	t.Helper()
	var all []bearer.Origin
	for _, r := range raw {
		o, err := bearer.ParseOrigin(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func TestAPathIsJoinedToTheTargetsURL(t *testing.T) {
	for address, want := range map[string]string{
		"/":                           "https://api.example.com/",
		"/users?q=a%20b&r#frag":       "https://api.example.com/users?q=a%20b&r",
		"users":                       "https://api.example.com/v1/users",
		".":                           "https://api.example.com/v1/",
		"./a:b":                       "https://api.example.com/v1/a:b",
		"../v2/x":                     "https://api.example.com/v2/x",
		"../../../../etc":             "https://api.example.com/etc",
		"..%2f..%2fx":                 "https://api.example.com/v1/..%2f..%2fx",
		"%2f%2fevil.test":             "https://api.example.com/v1/%2f%2fevil.test",
		".//evil.test":                "https://api.example.com/v1//evil.test",
		"/..//evil.test":              "https://api.example.com/evil.test",
		"user@evil.test":              "https://api.example.com/v1/user@evil.test",
		"@evil.test":                  "https://api.example.com/v1/@evil.test",
		"?only=query":                 "https://api.example.com/v1/?only=query",
		"/https://evil.test":          "https://api.example.com/https://evil.test",
		"https://api.example.com/x":   "https://api.example.com/x",
		"HTTPS://API.example.com:443": "https://API.example.com:443",
		"https://cdn.example.com/y":   "https://cdn.example.com/y",
	} {
		got, err := requestcmd.RequestURL(base, origins(t, base, "cdn.example.com"), address)
		if err != nil || got.String() != want {
			t.Errorf("%s is %v, %v; want %s", address, got, err, want)
		}
	}
	if got, err := requestcmd.RequestURL("api.example.com:8443", nil, "x"); err != nil || got.String() != "https://api.example.com:8443/x" {
		t.Errorf("below a URL without a scheme: %v, %v", got, err)
	}
}

func TestAnAddressThatLeadsElsewhereIsRefused(t *testing.T) {
	const password = "hunter2canary"
	for _, address := range []string{
		"", "//evil.test/x", `\\evil.test`, `/\evil.test`, `\/evil.test`, "https:evil.test", "https:/evil.test", "http:", "javascript:alert(1)",
		"evil.test:443", "https://evil.test", "https://api.example.com.evil.test/", "https://api.example.com:444/", "http://api.example.com/",
		"https://api.example.com@evil.test/", "https://me:" + password + "@api.example.com/", "https://me:" + password + "@evil.test/",
		"https://api.example.com\\@evil.test/", "https://", "https:///evil.test", "/a b", "/a\nb", "/a\x00", "\t/", "/%zz", "https://[::1", "https://evil%2etest",
	} {
		got, err := requestcmd.RequestURL(base, origins(t, base), address)
		if err == nil {
			t.Errorf("%q is %s", address, got)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("the refusal of %q shows its password", address)
		}
	}
	for _, base := range []string{"", "http://api.example.com", "https://me@api.example.com", "%"} {
		if got, err := requestcmd.RequestURL(base, nil, "/"); err == nil {
			t.Errorf("below %q: %s", base, got)
		}
	}
}

// What is printed and parsed again by net/http is what was judged.
func FuzzARequestStaysOnAnOriginOfItsTarget(f *testing.F) {
	for _, address := range []string{"/", "//evil.test", "https:evil", "..%2f", `/\evil`, "user@host", "https://cdn.example.com/x", ".//x", "?q", "a:b", "https://api.example.com@evil.test"} {
		f.Add(base, address)
	}
	f.Add("api.example.com", "x")
	f.Add("https://me@api.example.com//..//", "../..//evil.test")
	f.Fuzz(func(t *testing.T, base, address string) {
		var allowed []bearer.Origin
		if own, err := bearer.ParseOrigin(base); err == nil {
			allowed = append(allowed, own)
		}
		u, err := requestcmd.RequestURL(base, allowed, address)
		if err != nil {
			return
		}
		again, err := url.Parse(u.String())
		if err != nil {
			t.Fatalf("%q below %q is %q, which cannot be read: %v", address, base, u, err)
		}
		if o, err := bearer.OriginOf(again); err != nil || again.User != nil || !slices.Contains(allowed, o) {
			t.Errorf("%q below %q is %q, at %v (%v)", address, base, u, o, err)
		}
	})
}
