package spendoncetest

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	grantDevice = "urn:ietf:params:oauth:grant-type:device_code"
	grantClient = "client_credentials"
)

// token is the endpoint of the oauth2 dialect: RFC 6749, form in, JSON out.
func (s *TokenServer) token(q *request) *response {
	if bad := s.checkForm(q); bad != nil {
		return bad
	}
	s.fetchClient(q, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	client, bad := s.authenticate(q)
	if bad != nil {
		return bad
	}
	var p *pair
	now := time.Now()
	grant := q.params.Get("grant_type")
	if !client.mayUse(grant) {
		return oauthError(400, "unauthorized_client", "the client is not registered for that grant type")
	}
	switch grant {
	case "refresh_token":
		p, bad = s.refresh(q, client, now, false)
	case "authorization_code":
		p, bad = s.redeemCode(q, client, now)
	case grantDevice:
		p, bad = s.redeemDevice(q, client, now)
	case grantClient:
		p, bad = s.grantToClient(q, client, now)
	case "":
		return oauthError(400, "invalid_request", "grant_type is missing")
	default:
		return oauthError(400, "unsupported_grant_type", "this server does not know that grant type")
	}
	if bad != nil {
		return bad
	}
	members := map[string]any{"access_token": p.access, "token_type": "Bearer",
		"expires_in": secondsLeft(p.expires, now)}
	if p.refresh != "" {
		members["refresh_token"] = p.refresh
	}
	if p.family.scope != "" {
		members["scope"] = p.family.scope
	}
	if p.idToken != "" {
		members["id_token"] = p.idToken
	}
	return jsonResponse(200, members)
}

// hypaware is the endpoint of the hypaware dialect: JSON both ways, refresh
// only.
func (s *TokenServer) hypaware(q *request) *response {
	switch {
	case q.r.Method != http.MethodPost:
		return notAllowed(http.MethodPost)
	case q.bad != "":
		return oauthError(400, "invalid_request", q.bad)
	case !isType(q, "application/json"):
		return oauthError(415, "invalid_request", "the body must be JSON")
	case q.params.Get("grant_type") != "refresh_token":
		return oauthError(400, "unsupported_grant_type", "only refresh_token is known here")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p, bad := s.refresh(q, Client{}, now, true)
	if bad != nil {
		return bad
	}
	members := map[string]any{"access_jwt": p.access}
	if s.cfg.RFC3339Expiry {
		members["expires_at"] = p.expires.UTC().Format(time.RFC3339)
	} else {
		members["expires_at"] = p.expires.Unix()
	}
	if p.refresh != "" {
		members["refresh_token"] = p.refresh
	}
	if s.cfg.Org != "" {
		members["org"] = s.cfg.Org
	}
	return jsonResponse(200, members)
}

// refresh spends a refresh token, as one step: the rotation is final before
// anything of the answer exists. mu is held.
func (s *TokenServer) refresh(q *request, client Client, now time.Time, jwt bool) (*pair, *response) {
	shown := q.params.Get("refresh_token")
	if shown == "" {
		return nil, oauthError(400, "invalid_request", "refresh_token is missing")
	}
	refuse := func(description string) (*pair, *response) {
		s.update(func(c *Counters) { c.RefusedRefreshes++ })
		return nil, oauthError(400, "invalid_grant", description)
	}
	rt, v := s.grants.judge(shown, now, s.cfg.ReuseGrace)
	if rt != nil && client.ID != "" && rt.family.client != client.ID {
		return refuse("the refresh token belongs to another client")
	}
	switch v {
	case refuseIt:
		return refuse("the refresh token is not known or its session was ended")
	case doubleSpent:
		s.update(func(c *Counters) { c.DoubleSpends++ })
		if !s.cfg.NoFamilyRevocation {
			s.revoke(rt.family)
		}
		return refuse("the refresh token was used before")
	case replayIt:
		s.update(func(c *Counters) { c.GraceReplays++ })
		return rt.next, nil
	}
	if client.ID == "" && !jwt {
		// A client that sends no client_id is taken for the one that signed
		// in, if that one has nothing to prove.
		owner, known := s.clients[rt.family.client]
		if !known || owner.Secret != "" || s.cfg.RequireClientSecret {
			return nil, invalidClient(q, "the client is not known or did not authenticate")
		}
	}
	for word := range strings.FieldsSeq(q.params.Get("scope")) {
		if !hasScope(rt.family.scope, word) {
			return nil, oauthError(400, "invalid_scope", "more was asked for than was granted")
		}
	}
	if bad := s.refuseTarget(q, rt.family.resource); bad != nil {
		return nil, bad
	}
	p := s.issue(rt.family, now, jwt, !s.cfg.NoRotation)
	if s.cfg.IDTokenOnRefresh && hasScope(rt.family.scope, "openid") {
		p.idToken = s.idToken(rt.family, now, p.expires)
	}
	if !s.cfg.NoRotation {
		rt.spent, rt.spentAt = true, now
		if s.cfg.ReuseGrace > 0 {
			rt.next = p
		}
	}
	s.update(func(c *Counters) { c.Exchanges++ })
	return p, nil
}

// checkForm refuses what RFC 6749 forbids about the shape of a request.
func (s *TokenServer) checkForm(q *request) *response {
	switch {
	case q.r.Method != http.MethodPost:
		return notAllowed(http.MethodPost)
	case q.bad != "":
		return oauthError(400, "invalid_request", q.bad)
	case !isType(q, "application/x-www-form-urlencoded"):
		return oauthError(400, "invalid_request", "the body must be form-encoded")
	}
	return repeated(q)
}

// repeated refuses parameters given twice (RFC 6749, section 3.1); resource
// alone may be (RFC 8707).
func repeated(q *request) *response {
	for name, values := range q.params {
		if len(values) > 1 && name != "resource" {
			return oauthError(400, "invalid_request", "a parameter is given twice")
		}
	}
	return nil
}

// authenticate finds the client of a form request by HTTP Basic or by its
// parameters; none at all is left to the grant to judge. mu is held.
func (s *TokenServer) authenticate(q *request) (Client, *response) {
	id, given := q.params.Get("client_id"), q.params.Get("client_secret")
	way := "client_secret_post"
	if user, pass, ok := q.r.BasicAuth(); ok {
		if given != "" {
			return Client{}, oauthError(400, "invalid_request", "the client authenticates in two ways")
		}
		basicID, err1 := url.QueryUnescape(user)
		basicSecret, err2 := url.QueryUnescape(pass)
		if err1 != nil || err2 != nil || (id != "" && id != basicID) {
			return Client{}, invalidClient(q, "the client authentication is malformed")
		}
		id, given, way = basicID, basicSecret, "client_secret_basic"
	}
	if id == "" {
		return Client{}, nil
	}
	client, known := s.clients[id]
	if !known || subtle.ConstantTimeCompare([]byte(given), []byte(client.Secret)) != 1 ||
		(client.Secret == "" && s.cfg.RequireClientSecret) ||
		(client.Secret != "" && client.AuthMethod != "" && client.AuthMethod != way) {
		return Client{}, invalidClient(q, "the client is not known or did not authenticate")
	}
	return client, nil
}

// mayUse reports whether the client is registered for a grant type. The zero
// Client, one that did not say who it is, is judged by the grant.
func (c Client) mayUse(grant string) bool {
	return grant == "" || len(c.GrantTypes) == 0 || slices.Contains(c.GrantTypes, grant)
}

// grantToClient gives a client a token in its own name (RFC 6749, section
// 4.4): only to one that can prove who it is, and without a refresh token. mu
// is held.
func (s *TokenServer) grantToClient(q *request, client Client, now time.Time) (*pair, *response) {
	switch {
	case client.ID == "":
		return nil, invalidClient(q, "the client did not authenticate")
	case client.Secret == "":
		return nil, oauthError(400, "unauthorized_client", "a public client cannot act in its own name")
	}
	if bad := s.refuseTarget(q, nil); bad != nil {
		return nil, bad
	}
	f := &family{account: client.ID, client: client.ID, scope: q.params.Get("scope"), resource: q.params["resource"], authTime: now}
	s.update(func(c *Counters) { c.ClientCredentials++; c.LiveFamilies++ })
	return s.issue(f, now, false, false), nil
}

func invalidClient(q *request, description string) *response {
	r := oauthError(401, "invalid_client", description)
	if q.r.Header.Get("Authorization") != "" {
		r.header = http.Header{"Www-Authenticate": {`Basic realm="spendonce-test"`}}
	}
	return r
}

func notAllowed(allow string) *response {
	r := oauthError(405, "invalid_request", "use "+allow)
	r.header = http.Header{"Allow": {allow}}
	return r
}

func isType(q *request, want string) bool {
	kind, _, _ := strings.Cut(q.r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), want)
}

func secondsLeft(expires, now time.Time) int64 {
	return max(0, int64(expires.Sub(now).Round(time.Second)/time.Second))
}
