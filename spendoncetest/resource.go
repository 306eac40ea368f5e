package spendoncetest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// resource serves any method under /resource to a live access token that was
// granted the scope that is required (RFC 6750). Its challenges point to the
// metadata of the very URL that was asked for (RFC 9728, section 5.1).
func (s *TokenServer) resource(q *request) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := q.bearer()
	f := s.grants.live(shown, time.Now())
	metadata := s.base + wellKnownProtected + q.r.URL.EscapedPath()
	if f == nil || s.cfg.RejectResource {
		s.update(func(c *Counters) { c.ResourceRejected++ })
		r := oauthError(401, "invalid_token", "the access token is missing, expired or revoked")
		params := []string{"realm", "spendonce-test", "resource_metadata", metadata, "scope", s.cfg.ChallengeScope}
		if shown != "" {
			params = append(params, "error", "invalid_token")
		}
		r.header = challengeHeader(params)
		return r
	}
	for word := range strings.FieldsSeq(s.cfg.RequiredScope) {
		if !hasScope(f.scope, word) {
			s.update(func(c *Counters) { c.ResourceForbidden++ })
			r := oauthError(403, "insufficient_scope", "the access token was not granted the scope "+word)
			r.header = challengeHeader([]string{"realm", "spendonce-test", "error", "insufficient_scope",
				"scope", s.cfg.RequiredScope, "resource_metadata", metadata})
			return r
		}
	}
	s.update(func(c *Counters) { c.ResourceServed++ })
	return jsonResponse(200, map[string]any{"account": f.account, "client_id": f.client,
		"scope": f.scope, "method": q.r.Method, "path": clip(q.r.URL.Path, 200)})
}

// challengeHeader writes names and values that hold no quotes; empty values
// are left out.
func challengeHeader(kv []string) http.Header {
	var params []string
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] != "" {
			params = append(params, kv[i]+`="`+kv[i+1]+`"`)
		}
	}
	return http.Header{"Www-Authenticate": {"Bearer " + strings.Join(params, ", ")}}
}

// protected is the metadata of one resource. The place without a path would
// be that of a resource at the root, and there is none.
func (s *TokenServer) protected(q *request, path string) *response {
	if path != pathResource && !strings.HasPrefix(path, pathResource+"/") {
		return s.notFound(q)
	}
	return jsonResponse(200, map[string]any{
		"resource":                 s.base + path,
		"authorization_servers":    []string{s.issuer},
		"bearer_methods_supported": []string{"header"},
		"scopes_supported":         q.cfg.scopes(),
	})
}

// scopes are those that metadata names: any other is granted just the same.
func (c TokenServerConfig) scopes() []string {
	all := []string{"openid", "offline_access"}
	for word := range strings.FieldsSeq(c.RequiredScope + " " + c.ChallengeScope) {
		if !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	return all
}

// requiredResource is RequireResource as a URL, "" if any will do.
func (s *TokenServer) requiredResource(cfg TokenServerConfig) string {
	if strings.HasPrefix(cfg.RequireResource, "/") {
		return s.base + cfg.RequireResource
	}
	return cfg.RequireResource
}

// wrongTarget says what is wrong with the resources that a request names (RFC
// 8707), "" if nothing: each must be an absolute URI without fragment, one
// granted at login (if any was named there), and exactly the required one
// where one is. mu is held.
func (s *TokenServer) wrongTarget(q *request, granted []string) string {
	named := q.params["resource"]
	problem := ""
	for _, target := range named {
		if u, err := url.Parse(target); err != nil || !u.IsAbs() || strings.Contains(target, "#") {
			problem = "the resource is not an absolute URI without fragment"
		} else if len(granted) > 0 && !slices.Contains(granted, target) {
			problem = "that resource was not granted at login"
		}
	}
	if want := s.requiredResource(s.cfg); want != "" && !slices.Equal(named, []string{want}) {
		problem = "the request must name the resource " + want + " and no other"
	}
	if problem != "" {
		s.update(func(c *Counters) { c.WrongTargets++ })
	}
	return problem
}

// refuseTarget is wrongTarget as the answer of a token endpoint. mu is held.
func (s *TokenServer) refuseTarget(q *request, granted []string) *response {
	if problem := s.wrongTarget(q, granted); problem != "" {
		return oauthError(400, "invalid_target", problem)
	}
	return nil
}
