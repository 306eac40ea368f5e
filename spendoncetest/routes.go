package spendoncetest

import (
	"net/http"
	"time"
)

func (s *TokenServer) routes() http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]http.HandlerFunc{
		pathToken:          s.handle(OAuth2Endpoint, s.token),
		pathHypaware:       s.handle(HypawareEndpoint, s.hypaware),
		pathResource:       s.handle(ResourceEndpoint, s.resource),
		pathResource + "/": s.handle(ResourceEndpoint, s.resource),
		pathJWKS:           s.handle(DiscoveryEndpoint, s.jwks),
		"/":                s.handle("other", s.notFound),
	} {
		mux.HandleFunc(path, h)
	}
	return mux
}

func (s *TokenServer) notFound(*request) *response {
	return &response{status: http.StatusNotFound, body: "there is nothing here\n",
		contentType: "text/plain; charset=utf-8", outcome: "not found"}
}

// resource serves any method under /resource to a live access token (RFC
// 6750).
func (s *TokenServer) resource(q *request) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := q.bearer()
	f := s.grants.live(shown, time.Now())
	if f == nil || s.cfg.RejectResource {
		s.update(func(c *Counters) { c.ResourceRejected++ })
		r := oauthError(401, "invalid_token", "the access token is missing, expired or revoked")
		challenge := `Bearer realm="spendonce-test", resource_metadata="` + s.base + pathProtected + pathResource + `"`
		if shown != "" {
			challenge += `, error="invalid_token"`
		}
		r.header = http.Header{"Www-Authenticate": {challenge}}
		return r
	}
	s.update(func(c *Counters) { c.ResourceServed++ })
	return jsonResponse(200, map[string]any{"account": f.account, "client_id": f.client,
		"scope": f.scope, "method": q.r.Method, "path": clip(q.r.URL.Path, 200)})
}

const pathProtected = "/.well-known/oauth-protected-resource"
