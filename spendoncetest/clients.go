package spendoncetest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// ClientSecret is the secret of the first client, empty if it is public.
func (s *TokenServer) ClientSecret() secret.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return secret.New(s.clients[s.clientID].Secret)
}

// ForgetClient makes a client unknown, as servers do that purge their
// registrations; its sessions stay. It reports whether it was known.
func (s *TokenServer) ForgetClient(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.clients[id]
	delete(s.clients, id)
	return known
}

// register makes a client (RFC 7591): public, unless it asks for a secret or
// the server wants all clients to have one.
func (s *TokenServer) register(q *request) *response {
	var asked struct {
		RedirectURIs []string `json:"redirect_uris"`
		AuthMethod   string   `json:"token_endpoint_auth_method"`
		GrantTypes   []string `json:"grant_types"`
		ClientName   string   `json:"client_name"`
		Scope        string   `json:"scope"`
	}
	refuse := func(description string) *response {
		return oauthError(400, "invalid_client_metadata", description)
	}
	switch {
	case q.cfg.NoRegistration:
		return s.notFound(q)
	case q.r.Method != http.MethodPost:
		return notAllowed(http.MethodPost)
	case q.bad != "" || !isType(q, "application/json"):
		return refuse("the body must be a JSON object")
	}
	if err := json.Unmarshal(q.body, &asked); err != nil {
		return refuse("a member has the wrong type")
	}
	for _, uri := range asked.RedirectURIs {
		u, err := url.Parse(uri)
		if err != nil || !u.IsAbs() || u.Fragment != "" {
			return oauthError(400, "invalid_redirect_uri", "a redirect URI is not absolute or has a fragment")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Client{ID: "client_" + random(), RedirectURIs: asked.RedirectURIs, GrantTypes: asked.GrantTypes}
	if len(c.GrantTypes) == 0 {
		c.GrantTypes = []string{"authorization_code", "refresh_token"}
	}
	switch asked.AuthMethod {
	case "none":
		if s.cfg.RequireClientSecret {
			return refuse("public clients are not taken")
		}
	case "", "client_secret_basic", "client_secret_post":
		// RFC 7591: no method named means client_secret_basic.
		c.Secret = "cs_" + random()
		c.AuthMethod = cmp.Or(asked.AuthMethod, "client_secret_basic")
	default:
		return refuse("that way to authenticate is not known here")
	}
	s.clients[c.ID] = c
	s.update(func(c *Counters) { c.Registrations++ })
	members := map[string]any{"client_id": c.ID, "client_id_issued_at": time.Now().Unix(),
		"redirect_uris": append([]string{}, c.RedirectURIs...), "token_endpoint_auth_method": cmp.Or(c.AuthMethod, "none"),
		"grant_types": c.GrantTypes, "response_types": []string{}}
	if c.mayUse("authorization_code") {
		members["response_types"] = []string{"code"}
	}
	if asked.ClientName != "" {
		members["client_name"] = asked.ClientName
	}
	if asked.Scope != "" {
		members["scope"] = asked.Scope
	}
	if c.Secret != "" {
		members["client_secret"] = c.Secret
		members["client_secret_expires_at"] = 0
	}
	return jsonResponse(201, members)
}

// revocation ends the session of a refresh token, or one access token (RFC
// 7009): 200 also for what is not known, since the aim is reached.
func (s *TokenServer) revocation(q *request) *response {
	if bad := s.checkForm(q); bad != nil {
		return bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(func(c *Counters) { c.Revocations++ })
	client, bad := s.authenticate(q)
	if bad != nil {
		return bad
	}
	token := q.params.Get("token")
	if token == "" {
		return oauthError(400, "invalid_request", "token is missing")
	}
	done := &response{status: 200, outcome: "ok"}
	f := s.familyOf(token)
	if f == nil {
		done.outcome = "unknown token"
		return done
	}
	if owner := s.clients[f.client]; client.ID == "" && (owner.Secret != "" || s.cfg.RequireClientSecret) {
		return invalidClient(q, "the client did not authenticate")
	}
	if client.ID != "" && client.ID != f.client {
		return oauthError(400, "invalid_grant", "the token belongs to another client")
	}
	if a := s.grants.access[digestOf(token)]; a != nil {
		a.revoked = true
	} else {
		s.revoke(f)
	}
	return done
}
