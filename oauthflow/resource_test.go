package oauthflow_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/oauthflow"
)

const wellKnown = "/.well-known/oauth-protected-resource"

// A site is a resource whose answers are written down: the header of its
// challenge, and documents by path. BASE stands for its address.
type site struct {
	status    int // of the resource: 401 if 0
	challenge string
	documents map[string]string
	redirect  string // where every document is said to be
}

func (c site) start(t *testing.T) *recorder {
	var s *recorder
	s = serve(t, func(w http.ResponseWriter, r *http.Request) {
		at := r.URL.EscapedPath()
		if r.URL.RawQuery != "" {
			at += "?" + r.URL.RawQuery
		}
		doc, there := c.documents[at]
		switch {
		case there:
			_, _ = w.Write([]byte(strings.ReplaceAll(doc, "BASE", s.URL)))
		case !strings.HasPrefix(at, "/.well-known/"):
			if c.challenge != "" {
				w.Header().Set("WWW-Authenticate", strings.ReplaceAll(c.challenge, "BASE", s.URL))
			}
			w.WriteHeader(max(c.status, map[bool]int{true: 401}[c.status == 0]))
		case c.redirect != "":
			http.Redirect(w, r, c.redirect, http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
	return s
}

func resourceDoc(name string) string {
	return `{"resource":` + string(mustJSON(name)) + `,"authorization_servers":["BASE/as"],"scopes_supported":["a","b c","\u001b[31m","d"]}`
}

func TestAResourceLeadsToItsAuthorizationServer(t *testing.T) {
	pointing := `Bearer resource_metadata="BASE/elsewhere?x=1"`
	for name, c := range map[string]struct {
		site
		ask, resource string
		scope         []string
	}{
		"by its challenge":             {site{challenge: pointing + `, scope="files:read files:write"`, documents: map[string]string{"/elsewhere?x=1": resourceDoc("BASE/mcp")}}, "/mcp", "BASE/mcp", []string{"files:read", "files:write"}},
		"by one of several challenges": {site{challenge: `Basic realm="x", Bearer realm="y", ` + pointing, documents: map[string]string{"/elsewhere?x=1": resourceDoc("BASE/mcp")}}, "/mcp", "BASE/mcp", nil},
		"by a challenge of a 403":      {site{status: 403, challenge: pointing, documents: map[string]string{"/elsewhere?x=1": resourceDoc("BASE/mcp")}}, "/mcp", "BASE/mcp", nil},
		"without a place":              {site{challenge: `Bearer scope="a"`, documents: map[string]string{wellKnown + "/mcp": resourceDoc("BASE/mcp")}}, "/mcp", "BASE/mcp", []string{"a"}},
		"without a challenge":          {site{status: 405, documents: map[string]string{wellKnown + "/mcp": resourceDoc("BASE/mcp")}}, "/mcp", "BASE/mcp", nil},
		"served to anybody":            {site{status: 200, documents: map[string]string{wellKnown + "/mcp": resourceDoc("BASE/mcp")}}, "/mcp", "BASE/mcp", nil},
		"with a slash at its end":      {site{documents: map[string]string{wellKnown + "/mcp/": resourceDoc("BASE/mcp/")}}, "/mcp/", "BASE/mcp/", nil},
		"with an escaped path":         {site{documents: map[string]string{wellKnown + "/a%2Fb": resourceDoc("BASE/a%2Fb")}}, "/a%2Fb", "BASE/a%2Fb", nil},
		"with a query":                 {site{documents: map[string]string{wellKnown + "/mcp?t=1": resourceDoc("BASE/mcp?t=1")}}, "/mcp?t=1", "BASE/mcp?t=1", nil},
		"a host":                       {site{documents: map[string]string{wellKnown: resourceDoc("BASE")}}, "", "BASE", nil},
		"a host with a slash":          {site{documents: map[string]string{wellKnown: resourceDoc("BASE")}}, "/", "BASE", nil},
		"a host, slash on its side":    {site{documents: map[string]string{wellKnown: resourceDoc("BASE/")}}, "", "BASE/", nil},
		"a scope that is none":         {site{challenge: `Bearer scope="ok \"x"`, documents: map[string]string{wellKnown: resourceDoc("BASE")}}, "", "BASE", []string{"ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.start(t)
			got, err := requester(s).DiscoverResource(deadline(t), s.URL+c.ask)
			must(t, err)
			if got.Resource != strings.ReplaceAll(c.resource, "BASE", s.URL) || !slices.Equal(got.AuthorizationServers, []string{s.URL + "/as"}) ||
				!slices.Equal(got.ScopesSupported, []string{"a", "d"}) || !slices.Equal(got.ChallengeScope, c.scope) {
				t.Errorf("%+v", got)
			}
			for i, q := range s.seen() {
				accept := map[bool]string{true: "application/json, text/event-stream", false: "application/json"}[i == 0]
				if q.method != "GET" || q.body != "" || q.header.Get("Authorization") != "" || q.header.Get("Cookie") != "" || q.header.Get("Accept") != accept {
					t.Errorf("asked with %+v", q)
				}
			}
		})
	}
}

func TestMetadataOfAnotherResourceIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		place, ask, names string
		says              string
	}{
		"another host":              {wellKnown + "/mcp", "/mcp", "https://evil.example/mcp", "https://evil.example/mcp: give that with --url"},
		"another path":              {wellKnown + "/mcp", "/mcp", "BASE/other", "--url"},
		"the origin":                {wellKnown + "/mcp", "/mcp", "BASE", "--url"},
		"a slash more":              {wellKnown + "/mcp", "/mcp", "BASE/mcp/", "--url"},
		"a slash less":              {wellKnown + "/mcp/", "/mcp/", "BASE/mcp", "--url"},
		"a prefix":                  {wellKnown + "/mcp", "/mcp", "BASE/m", "--url"},
		"none":                      {wellKnown + "/mcp", "/mcp", "", "names none"},
		"the host, at the host's":   {wellKnown, "/mcp", "BASE", "--url"},
		"the URL, at the host's":    {wellKnown, "/mcp", "BASE/mcp", "may only name the host"},
		"another, at the host's":    {wellKnown, "/mcp", "BASE/x", "--url"},
		"what a terminal would eat": {wellKnown, "", "https://x.example/\x1b]0;pwned\x07", "https://x.example/ ]0;pwned"},
	} {
		s := site{documents: map[string]string{c.place: resourceDoc(c.names)}}.start(t)
		got, err := requester(s).DiscoverResource(deadline(t), s.URL+c.ask)
		if !errors.Is(err, oauthflow.ErrResource) || !strings.Contains(err.Error(), c.says) || got.Resource != "" || len(got.AuthorizationServers) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		checkText(t, asError(t, err).Text)
	}
	s := site{challenge: `Bearer resource_metadata="BASE` + wellKnown + `"`, documents: map[string]string{wellKnown: resourceDoc("BASE/other")}}.start(t)
	if _, err := requester(s).DiscoverResource(deadline(t), s.URL+"/mcp"); !errors.Is(err, oauthflow.ErrResource) {
		t.Errorf("by the challenge: %v", err)
	}
	for _, doc := range []string{`{}`, `{"Resource":"BASE","authorization_servers":["BASE"]}`, `{"resource":null}`} {
		s := site{documents: map[string]string{wellKnown: doc}}.start(t)
		if _, err := requester(s).DiscoverResource(deadline(t), s.URL); !errors.Is(err, oauthflow.ErrResource) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestAChallengeCannotPointElsewhere(t *testing.T) {
	other := serve(t, reply(404, "", ""))
	for _, place := range []string{other.URL + "/", "https://evil.example/x", "http://evil.example/x", "/relative", "javascript:alert(1)",
		"file:///etc/passwd", "BASE@evil.example/", "http://localhost:PORT/doc", "https://BASEHOST/doc", "BASE/doc#f"} {
		var base *recorder
		base = serve(t, func(w http.ResponseWriter, r *http.Request) {
			host := strings.TrimPrefix(base.URL, "http://")
			_, port, _ := strings.Cut(host, ":")
			w.Header().Set("WWW-Authenticate", strings.NewReplacer("BASEHOST", host, "PORT", port, "BASE", base.URL).Replace(`Bearer resource_metadata="`+place+`"`))
			w.WriteHeader(401)
		})
		_, err := requester(base).DiscoverResource(deadline(t), base.URL)
		if !errors.Is(err, oauthflow.ErrResourceMetadata) || len(base.seen()) != 1 {
			t.Errorf("%s: %v, %d requests", place, err, len(base.seen()))
		}
		checkText(t, asError(t, err).Text)
	}
	if n := len(other.seen()); n != 0 {
		t.Errorf("the other origin was asked %d times", n)
	}
}

func TestMetadataOfAResourceThatCannotBeUsedIsRefused(t *testing.T) {
	for name, servers := range map[string]string{
		"none":                       `[]`,
		"null":                       `null`,
		"no list":                    `"https://as.example"`,
		"numbers":                    `[7]`,
		"http":                       `["https://as.example","http://as.example"]`,
		"a script":                   `["javascript:alert(1)"]`,
		"with a user":                `["https://u:canary-code-3@as.example"]`,
		"a bare name":                `["as.example"]`,
		"an empty one":               `[""]`,
		"a colour":                   `["https://as.example/\u009b31m"]`,
		"backwards":                  `["https://as.example/\u202eelpmaxe"]`,
		"a host in Cyrillic letters": `["https://\u0430s.example"]`,
		"more than anybody has":      `["https://as.example"` + strings.Repeat(`,"https://as.example"`, 16) + `]`,
	} {
		s := site{documents: map[string]string{wellKnown: `{"resource":"BASE","authorization_servers":` + servers + `}`}}.start(t)
		got, err := requester(s).DiscoverResource(deadline(t), s.URL)
		if !errors.Is(err, oauthflow.ErrResourceMetadata) || got.Resource != "" || leaks(printings(err)) != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	const far = "https://rs.example/mcp"
	for _, near := range []string{"http://127.0.0.1:9/as", "https://localhost/as", "http://[::1]/as"} {
		doc := answer(200, "", fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, far, near))
		if _, err := oauthflow.ReadResource(doc, far, false); !errors.Is(err, oauthflow.ErrResourceMetadata) {
			t.Errorf("a remote resource sends us to %s: %v", near, err)
		}
	}
}

// They all end in one address, which is printed and handed to a browser.
func TestAServerCannotMakeUsAskForScopesWithoutEnd(t *testing.T) {
	scopes := strings.Repeat(`"`+strings.Repeat("s", 1000)+`",`, 100)
	s := site{documents: map[string]string{wellKnown: `{"resource":"BASE","authorization_servers":["BASE"],"scopes_supported":["a",` + scopes + `"z"]}`}}.start(t)
	got, err := requester(s).DiscoverResource(deadline(t), s.URL)
	if n := len(strings.Join(got.ScopesSupported, " ")); err != nil || n > 8<<10 || got.ScopesSupported[0] != "a" {
		t.Errorf("%d bytes of scopes, %v", n, err)
	}
}

func TestAResourceWithoutMetadataHasNone(t *testing.T) {
	other := site{}.start(t)
	for name, c := range map[string]struct {
		site
		says string
	}{
		"nothing there":           {site{challenge: `Bearer scope="a"`}, "status 404"},
		"a page for every path":   {site{challenge: `Bearer scope="a"`, documents: map[string]string{wellKnown + "/mcp": "<html>", wellKnown: "<html>"}}, "web page"},
		"a huge document":         {site{challenge: `Bearer scope="a"`, documents: map[string]string{wellKnown + "/mcp": `{"x":"` + strings.Repeat("x", 1<<20) + `"}`}}, "1 MiB"},
		"a list":                  {site{challenge: `Bearer scope="a"`, documents: map[string]string{wellKnown + "/mcp": `[]`}}, "not a JSON object"},
		"a redirect":              {site{challenge: `Bearer scope="a"`, redirect: other.URL}, "redirect"},
		"nothing where it points": {site{challenge: `Bearer scope="a", resource_metadata="BASE/.well-known/x"`, documents: map[string]string{wellKnown + "/mcp": resourceDoc("BASE/mcp")}}, "status 404"},
	} {
		s := c.start(t)
		got, err := requester(s).DiscoverResource(deadline(t), s.URL+"/mcp")
		if !errors.Is(err, oauthflow.ErrNoResourceMetadata) || !strings.Contains(err.Error(), c.says) || !slices.Equal(got.ChallengeScope, []string{"a"}) || got.Resource != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if n := len(other.seen()); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

func TestAResourceThatCannotBeAskedNowIsNoResourceWithoutMetadata(t *testing.T) {
	down := serve(t, reply(503, "", ""))
	if _, err := requester(down).DiscoverResource(deadline(t), down.URL); asError(t, err).Class != oauthflow.ClassTemporary || errors.Is(err, oauthflow.ErrNoResourceMetadata) {
		t.Error(err)
	}
	down.Close()
	if _, err := requester(down).DiscoverResource(deadline(t), down.URL); !asError(t, err).NotSent || errors.Is(err, oauthflow.ErrNoResourceMetadata) {
		t.Error(err)
	}
	for _, bad := range []string{"http://rs.example", "rs.example", "https://u:canary-code-3@rs.example", "https://rs.example/#f", ""} {
		_, err := (&oauthflow.Requester{}).DiscoverResource(deadline(t), bad)
		if e := asError(t, err); !e.NotSent || e.Class != oauthflow.ClassWrongRequest || leaks(printings(err)) != "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAStreamOfEventsOrSilenceDoesNotHoldUpDiscovery(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a stream": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"silence": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		var s *recorder
		s = serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/mcp" {
				h(w, r)
				return
			}
			_, _ = w.Write([]byte(strings.ReplaceAll(resourceDoc("BASE/mcp"), "BASE", s.URL)))
		})
		r := requester(s)
		r.ShrinkProbe(map[string]time.Duration{"a stream": time.Hour, "silence": 50 * time.Millisecond}[name])
		if got, err := r.DiscoverResource(deadline(t), s.URL+"/mcp"); err != nil || got.Resource != s.URL+"/mcp" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
