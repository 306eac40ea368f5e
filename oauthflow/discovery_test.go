package oauthflow_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/oauthflow"
)

func TestIssuersAreEqualButForARootSlash(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://h", "https://h", true}, {"https://h", "https://h/", true}, {"https://h/", "https://h", true},
		{"https://h:8443/", "https://h:8443", true}, {"https://h/t", "https://h/t", true}, {"https://h/t/", "https://h/t/", true},
		{"https://h/t", "https://h/t/", false}, {"https://h//", "https://h", false}, {"https://h//", "https://h/", false},
		{"https://h/", "http://h/", false}, {"https://h", "https://H", false}, {"https://h", "https://h:443", false},
		{"https://h", "https://h.evil.example", false}, {"https://h", "https://h/?x", false}, {"https://h", "https://h?/", false},
		{"", "", false}, {"", "https://h", false}, {"https:///", "https://", false},
	} {
		if got := oauthflow.SameIssuer(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}

// metadataAt serves metadata at one path, naming issuer (BASE stands for the
// server's address).
func metadataAt(t *testing.T, path, issuer, extra string) *recorder {
	var s *recorder
	s = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != path {
			http.NotFound(w, r)
			return
		}
		doc := fmt.Sprintf(`{"issuer":%q,"token_endpoint":"BASE/token","authorization_endpoint":"BASE/auth"%s}`, issuer, extra)
		_, _ = w.Write([]byte(strings.ReplaceAll(doc, "BASE", s.URL)))
	})
	return s
}

func TestMetadataIsFoundInFrontOfAndBehindThePath(t *testing.T) {
	const as, oidc = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	for _, c := range []struct{ ask, place, names string }{
		{"", as, "BASE"}, {"", oidc, "BASE"}, {"/", as, "BASE"}, {"", as, "BASE/"}, {"/", oidc, "BASE/"},
		{"/tenant", as + "/tenant", "BASE/tenant"},
		{"/tenant", oidc + "/tenant", "BASE/tenant"},
		{"/tenant", "/tenant" + oidc, "BASE/tenant"},
		{"/tenant", "/tenant" + as, "BASE/tenant"},
		{"/tenant/", as + "/tenant", "BASE/tenant/"},
		{"/tenant/", "/tenant" + oidc, "BASE/tenant/"},
		{"/a/b%2Fc", as + "/a/b%2Fc", "BASE/a/b%2Fc"},
	} {
		s := metadataAt(t, c.place, c.names, `,"revocation_endpoint":"BASE/rev","authorization_response_iss_parameter_supported":true,
			"token_endpoint_auth_methods_supported":["client_secret_basic"],"scopes_supported":["a"],"registration_endpoint":null`)
		got, err := requester(s).Discover(deadline(t), s.URL+c.ask)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if got.TokenEndpoint != s.URL+"/token" || got.RevocationEndpoint != s.URL+"/rev" || !got.IssParameterSupported ||
			len(got.TokenAuthMethods) != 1 || len(got.ScopesSupported) != 1 || got.Issuer != strings.ReplaceAll(c.names, "BASE", s.URL) {
			t.Errorf("%+v: %+v", c, got)
		}
		for _, q := range s.seen() {
			if q.method != "GET" || q.body != "" || q.header.Get("Authorization") != "" {
				t.Errorf("%+v: asked with %+v", c, q)
			}
		}
	}
}

func TestAnotherIssuersMetadataIsRefused(t *testing.T) {
	const as = "/.well-known/oauth-authorization-server"
	for _, c := range []struct{ ask, place, names string }{
		{"", as, "https://evil.example"}, {"", as, ""}, {"", as, "BASE/tenant"}, {"", as, "BASE//"},
		{"/tenant", as + "/tenant", "BASE/tenant/"}, {"/tenant/", as + "/tenant", "BASE/tenant"}, {"/tenant", as + "/tenant", "BASE"},
	} {
		s := metadataAt(t, c.place, c.names, "")
		_, err := requester(s).Discover(deadline(t), s.URL+c.ask)
		if !errors.Is(err, oauthflow.ErrIssuer) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, doc := range []string{`{}`, `{"token_endpoint":"https://x"}`, `{"Issuer":"BASE","token_endpoint":"BASE/t"}`} {
		var s *recorder
		s = serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.ReplaceAll(doc, "BASE", s.URL)))
		})
		if _, err := requester(s).Discover(deadline(t), s.URL); !errors.Is(err, oauthflow.ErrIssuer) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestMetadataWithUnsafeEndpointsIsRefused(t *testing.T) {
	for _, extra := range []string{
		`,"token_endpoint":"http://as.example/token"`, `,"revocation_endpoint":"http://as.example/"`, `,"token_endpoint":""`,
		`,"registration_endpoint":"javascript:alert(1)"`, `,"device_authorization_endpoint":"/relative"`,
		`,"authorization_endpoint":"file:///etc/passwd"`, `,"token_endpoint":"https://u:p@as.example/"`, `,"token_endpoint":7`,
		`,"authorization_endpoint":"https://as.example/\u009b31m"`, `,"device_authorization_endpoint":"https://\u0430s.example/"`,
	} {
		s := metadataAt(t, "/.well-known/oauth-authorization-server", "BASE", extra)
		if _, err := requester(s).Discover(deadline(t), s.URL); !errors.Is(err, oauthflow.ErrMetadata) {
			t.Errorf("%s: %v", extra, err)
		}
	}
	for _, issuer := range []string{"http://as.example", "https://as.example/?q", "https://as.example/#f", "as.example", "https://u:p@as.example"} {
		_, err := (&oauthflow.Requester{}).Discover(deadline(t), issuer)
		if e := asError(t, err); !e.NotSent || strings.Contains(e.Error(), "u:p") {
			t.Errorf("%s: %v", issuer, e)
		}
	}
}

func TestMetadataTellsWhatTheServerCanDo(t *testing.T) {
	read := func(extra string) oauthflow.Server {
		t.Helper()
		s := metadataAt(t, "/.well-known/oauth-authorization-server", "BASE", extra)
		got, err := requester(s).Discover(deadline(t), s.URL)
		must(t, err)
		return got
	}
	got := read(`,"client_id_metadata_document_supported":true,"grant_types_supported":["authorization_code","x"],
		"code_challenge_methods_supported":["plain","S256"],"scopes_supported":["a","b c","\u001b[31m","c\"d",""]`)
	if !got.ClientIDMetadataSupported || !slices.Equal(got.GrantTypes, []string{"authorization_code", "x"}) ||
		!slices.Equal(got.CodeChallengeMethods, []string{"plain", "S256"}) || !slices.Equal(got.ScopesSupported, []string{"a"}) {
		t.Errorf("%+v", got)
	}
	if got := read(`,"Client_ID_Metadata_Document_Supported":true,"Grant_Types_Supported":["x"],"Code_Challenge_Methods_Supported":["plain"]`); got.ClientIDMetadataSupported || got.GrantTypes != nil || got.CodeChallengeMethods != nil {
		t.Errorf("names in other letters: %+v", got)
	}
	for methods, want := range map[string]error{
		``: nil, `null`: nil, `["S256"]`: nil, `["plain","S256"]`: nil,
		`[]`: oauthflow.ErrNoPKCE, `["plain"]`: oauthflow.ErrNoPKCE, `["s256"]`: oauthflow.ErrNoPKCE,
	} {
		extra := ""
		if methods != "" {
			extra = `,"code_challenge_methods_supported":` + methods
		}
		if err := read(extra).SupportsPKCE(); !errors.Is(err, want) {
			t.Errorf("%q: %v", methods, err)
		}
	}
}

func TestWhatIsNoMetadataIsNone(t *testing.T) {
	other := metadataAt(t, "/", "x", "")
	for name, c := range map[string]struct {
		h     http.HandlerFunc
		class oauthflow.Class
		says  string
	}{
		"404":      {reply(404, "", "no"), oauthflow.ClassWrongRequest, "status 404"},
		"HTML":     {reply(200, "application/json", "<html>"), oauthflow.ClassWrongRequest, "a web page"},
		"array":    {reply(200, "", "[]"), oauthflow.ClassWrongRequest, "not a JSON object"},
		"null":     {reply(200, "", "null"), oauthflow.ClassWrongRequest, "not a JSON object"},
		"cut off":  {reply(200, "", `{"issuer":"x"`), oauthflow.ClassWrongRequest, "not a JSON object"},
		"two":      {reply(200, "", `{} {}`), oauthflow.ClassWrongRequest, "not a JSON object"},
		"too long": {reply(200, "", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`), oauthflow.ClassWrongRequest, "more than 1 MiB"},
		"trailing": {reply(200, "", `{"issuer":"x"}`+strings.Repeat(" ", 1<<20)), oauthflow.ClassWrongRequest, "more than 1 MiB"},
		"503":      {reply(503, "", ""), oauthflow.ClassTemporary, "status 503"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, oauthflow.ClassWrongRequest, "a redirect, which is not followed"},
	} {
		s := serve(t, c.h)
		server, err := requester(s).Discover(deadline(t), s.URL)
		e := asError(t, err)
		if e.Class != c.class || server.TokenEndpoint != "" || c.class != oauthflow.ClassTemporary && !errors.Is(err, oauthflow.ErrNoMetadata) || !strings.Contains(e.Text, c.says) {
			t.Errorf("%s: %+v", name, *e)
		}
	}
	if n := len(other.seen()); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}
