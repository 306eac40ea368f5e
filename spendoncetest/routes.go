package spendoncetest

import (
	"net/http"
	"strings"
)

func (s *TokenServer) routes() http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]http.HandlerFunc{
		pathToken:          s.handle(OAuth2Endpoint, s.token),
		pathHypaware:       s.handle(HypawareEndpoint, s.hypaware),
		pathAuthorize:      s.handle(AuthorizationEndpoint, s.authorize),
		pathLogin:          s.handle(LoginEndpoint, s.login),
		pathRevoke:         s.handle(RevocationEndpoint, s.revocation),
		pathRegister:       s.handle(RegistrationEndpoint, s.register),
		pathDevice:         s.handle(DeviceEndpoint, s.deviceAuthorization),
		pathVerify:         s.handle(LoginEndpoint, s.verify),
		pathResource:       s.handle(ResourceEndpoint, s.resource),
		pathResource + "/": s.handle(ResourceEndpoint, s.resource),
		pathJWKS:           s.handle(DiscoveryEndpoint, s.jwks),
		pathControl:        s.control(),
	} {
		mux.HandleFunc(path, h)
	}
	discovery, other := s.handle(DiscoveryEndpoint, s.discovery), s.handle("other", s.notFound)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// The issuer's path may come before or after the well-known part.
		if strings.Contains(r.URL.Path, "/.well-known/") {
			discovery(w, r)
			return
		}
		other(w, r)
	})
	return mux
}

func (s *TokenServer) notFound(*request) *response {
	return &response{status: http.StatusNotFound, body: "there is nothing here\n",
		contentType: "text/plain; charset=utf-8", outcome: "not found"}
}
