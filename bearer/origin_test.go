package bearer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/bearer"
)

func TestAnOriginIsSchemeHostAndPort(t *testing.T) {
	for raw, want := range map[string]string{
		"https://api.example.com":              "https://api.example.com",
		"https://API.Example.COM.:443/v1?q#f":  "https://api.example.com",
		"api.example.com":                      "https://api.example.com",
		"api.example.com:8443":                 "https://api.example.com:8443",
		"https://[2001:DB8:0:0::1]/":           "https://[2001:db8::1]",
		"https://[2001:db8::1]:8443":           "https://[2001:db8::1]:8443",
		"http://127.0.0.1:80/x":                "http://127.0.0.1",
		"http://localhost:8080":                "http://localhost:8080",
		"http://[::1]:1":                       "http://[::1]:1",
		"HTTPS://api.example.com:8443/../..//": "https://api.example.com:8443",
	} {
		o, err := bearer.ParseOrigin(raw)
		if err != nil || o.String() != want {
			t.Errorf("%s is the origin %q, %v; want %q", raw, o, err, want)
		}
	}
}

func TestOriginsThatDifferInOnePartAreDifferent(t *testing.T) {
	base, err := bearer.ParseOrigin("https://api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{
		"https://api.example.com:444", "https://api.example.com.evil.test", "https://example.com",
		"https://api-example.com", "https://xapi.example.com", "https://127.0.0.1",
	} {
		if o, err := bearer.ParseOrigin(raw); err != nil || o == base {
			t.Errorf("%s is taken for %s (%v)", raw, base, err)
		}
	}
}

func TestWhereNoTokenMayGoIsNoOrigin(t *testing.T) {
	const password = "hunter2-canary"
	for _, raw := range []string{
		"", "://", "https://", "http://api.example.com", "http://127.1/", "http://localhost.evil.test", "http://[::ffff:127.0.0.1]/",
		"ftp://api.example.com", "file:///etc/passwd", "mailto:a@example.com", "https:api.example.com",
		"https://user:" + password + "@api.example.com", "https://exa mple.com", "https://exämple.com", "https://api.example.com:port",
		"http://[::1%25lo]/",
	} {
		o, err := bearer.ParseOrigin(raw)
		if !errors.Is(err, bearer.ErrNotAnOrigin) || o != (bearer.Origin{}) {
			t.Errorf("%q is the origin %q, error %v", raw, o, err)
		}
		if err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("the refusal of %q shows its password", raw)
		}
	}
}
