package spendoncetest

import (
	"net/http"
	"strings"
)

const (
	wellKnownOAuth     = "/.well-known/oauth-authorization-server"
	wellKnownOpenID    = "/.well-known/openid-configuration"
	wellKnownProtected = "/.well-known/oauth-protected-resource"
)

// discovery serves the metadata of the issuer in both places where clients
// look for it, path inserted (RFC 8414) and path appended (OpenID Connect
// Discovery), and that of the resource (RFC 9728).
func (s *TokenServer) discovery(q *request) *response {
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		return notAllowed(http.MethodGet)
	}
	path := q.r.URL.Path
	tenant := strings.TrimSuffix(q.cfg.IssuerPath, "/")
	for _, doc := range []string{wellKnownOAuth, wellKnownOpenID} {
		switch path {
		case doc + tenant, tenant + doc, doc + tenant + "/":
			return s.metadata(q.cfg)
		}
	}
	if rest, ok := strings.CutPrefix(q.r.URL.EscapedPath(), wellKnownProtected); ok {
		return s.protected(q, rest)
	}
	return s.notFound(q)
}

func (s *TokenServer) metadata(cfg TokenServerConfig) *response {
	methods := []string{"client_secret_basic", "client_secret_post"}
	if !cfg.RequireClientSecret {
		methods = append(methods, "none")
	}
	members := map[string]any{
		"issuer":                                         s.issuer,
		"authorization_endpoint":                         s.base + pathAuthorize,
		"token_endpoint":                                 s.base + pathToken,
		"revocation_endpoint":                            s.base + pathRevoke,
		"registration_endpoint":                          s.base + pathRegister,
		"device_authorization_endpoint":                  s.base + pathDevice,
		"jwks_uri":                                       s.base + pathJWKS,
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          []string{"authorization_code", "refresh_token", grantDevice, grantClient},
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          methods,
		"revocation_endpoint_auth_methods_supported":     methods,
		"scopes_supported":                               cfg.scopes(),
		"subject_types_supported":                        []string{"public"},
		"id_token_signing_alg_values_supported":          []string{"ES256"},
		"authorization_response_iss_parameter_supported": cfg.CallbackIssuer != "-",
	}
	if cfg.ClientIDMetadata {
		members["client_id_metadata_document_supported"] = true
	}
	if cfg.NoRegistration {
		delete(members, "registration_endpoint")
	}
	return jsonResponse(200, members)
}
