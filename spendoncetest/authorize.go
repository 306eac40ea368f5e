package spendoncetest

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// authorization is a request to sign somebody in, and later the code that
// came of it.
type authorization struct {
	client    string
	redirect  string
	scope     string
	state     string
	nonce     string
	challenge string
	resource  []string
	hint      string
	expires   time.Time
}

// pendingLife is how long a login page may stay open.
const pendingLife = 10 * time.Minute

// authorize shows the login form (RFC 6749, section 4.1.1; RFC 7636 with
// S256 only). What cannot be trusted to be sent back to its client is shown
// as a page, the rest goes back by redirect.
func (s *TokenServer) authorize(q *request) *response {
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		return notAllowed(http.MethodGet)
	}
	s.fetchClient(q, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := q.params
	client, known := s.clients[p.Get("client_id")]
	switch {
	case q.bad != "":
		return errorPage(q.bad)
	case len(p["client_id"]) > 1 || len(p["redirect_uri"]) > 1:
		return errorPage("a parameter is given twice")
	case !known:
		return errorPage("the client is not known here")
	case !redirectAllowed(client.RedirectURIs, p.Get("redirect_uri")):
		return errorPage("the redirect URI is not one of the client's")
	}
	a := &authorization{client: client.ID, redirect: p.Get("redirect_uri"), scope: p.Get("scope"),
		state: p.Get("state"), nonce: p.Get("nonce"), challenge: p.Get("code_challenge"),
		resource: p["resource"], hint: p.Get("login_hint"), expires: time.Now().Add(pendingLife)}
	refuse := func(code, description string) *response {
		return s.redirect(a, "error", code, "error_description", description)
	}
	switch {
	case repeated(q) != nil:
		return refuse("invalid_request", "a parameter is given twice")
	case p.Get("response_type") != "code":
		return refuse("unsupported_response_type", "only the code flow is known here")
	case p.Get("response_mode") != "" && p.Get("response_mode") != "query":
		return refuse("invalid_request", "only the query response mode is known here")
	case p.Get("code_challenge_method") != "S256" || !isVerifier(a.challenge) || len(a.challenge) != 43:
		return refuse("invalid_request", "PKCE with S256 is required")
	case p.Get("prompt") == "none":
		return refuse("login_required", "nobody is signed in here")
	case !client.mayUse("authorization_code"):
		return refuse("unauthorized_client", "the client is not registered for the code flow")
	}
	if problem := s.wrongTarget(q, nil); problem != "" {
		return refuse("invalid_target", problem)
	}
	now := time.Now()
	for id, old := range s.pending {
		if now.After(old.expires) {
			delete(s.pending, id)
		}
	}
	id := random()
	s.pending[id] = a
	return s.loginPage(q, id, a, "")
}

// redirect sends the browser back to the client, with state and iss. mu is
// held.
func (s *TokenServer) redirect(a *authorization, kv ...string) *response {
	add := url.Values{}
	for i := 0; i < len(kv); i += 2 {
		add.Set(kv[i], kv[i+1])
	}
	if a.state != "" {
		add.Set("state", a.state)
	}
	switch s.cfg.CallbackIssuer {
	case "":
		add.Set("iss", s.issuer)
	case "-":
	default:
		add.Set("iss", s.cfg.CallbackIssuer)
	}
	sep := "?"
	if strings.Contains(a.redirect, "?") {
		sep = "&"
	}
	outcome := add.Get("error")
	if outcome == "" {
		outcome = "ok"
	}
	// 303 after a form as after a link: the browser must come with GET.
	return &response{status: http.StatusSeeOther, outcome: outcome,
		header: http.Header{"Location": {a.redirect + sep + add.Encode()}}}
}

// redirectAllowed compares as strings; only the port of a loopback IP literal
// is free, because a program cannot know it beforehand (RFC 8252, 7.3; names
// such as localhost do not enjoy that, 8.3).
func redirectAllowed(registered []string, asked string) bool {
	u, err := url.Parse(asked)
	if err != nil || !u.IsAbs() || u.Fragment != "" || strings.Contains(asked, "#") {
		return false
	}
	return slices.ContainsFunc(registered, func(r string) bool {
		return r == asked || withoutLoopbackPort(r) == withoutLoopbackPort(asked)
	})
}

func withoutLoopbackPort(uri string) string {
	const scheme = "http://"
	u, err := url.Parse(uri)
	if err != nil || !strings.HasPrefix(uri, scheme+u.Host) || u.Port() == "" { // with a user part, the prefix is another
		return uri
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		return uri
	}
	return scheme + strings.TrimSuffix(u.Host, ":"+u.Port()) + strings.TrimPrefix(uri, scheme+u.Host)
}

// isVerifier checks the alphabet of RFC 7636, section 4.1.
func isVerifier(v string) bool {
	if len(v) < 43 || len(v) > 128 {
		return false
	}
	for i := range len(v) {
		c := v[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0) {
			return false
		}
	}
	return true
}
