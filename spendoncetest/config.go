package spendoncetest

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// Defaults of a [TokenServerConfig] whose fields are zero.
const (
	DefaultClientID = "spendonce-test"
	DefaultUser     = "alice"
	DefaultPassword = "correct horse"
	DefaultLifetime = time.Hour
	DefaultCodeLife = 60 * time.Second
	DefaultLogSize  = 4096
)

// TokenServerConfig says how strict a [TokenServer] is. The zero value works:
// every refresh token is good for one use, a second use revokes its family,
// access tokens live for an hour, and one public client and one user exist.
type TokenServerConfig struct {
	// Listen is a loopback address, "127.0.0.1:0" if empty. Any other is
	// refused.
	Listen string
	// URL is the origin at which clients reach the server, if that is not the
	// listener's: behind a proxy, for example. The control API stays at the
	// listener's.
	URL string
	// TLS, if set, makes the server speak https. See [SelfSigned].
	TLS *tls.Config
	// IssuerPath is appended to the server's URL to make the issuer: "",
	// "/" (an issuer with a trailing slash), "/tenant", "/tenant/".
	IssuerPath string
	// Clients are the registered clients. None: DefaultClientID, public,
	// redirecting to /callback or / of 127.0.0.1 or [::1] at any port; with
	// a secret if RequireClientSecret is set. More come by dynamic
	// registration.
	Clients []Client
	// Users maps names to passwords. None: DefaultUser, DefaultPassword.
	Users map[string]string
	// Org is what the hypaware dialect answers as org; "" leaves it out.
	Org string
	// LogSize bounds the request log, DefaultLogSize if 0.
	LogSize int
	// DocumentTLS is for fetching client-id documents; nil: system roots.
	DocumentTLS *tls.Config

	// The fields below may change while the server runs, by
	// [TokenServer.Configure].

	// Lifetime of access tokens, DefaultLifetime if 0.
	Lifetime time.Duration
	// CodeLifetime of authorization codes, DefaultCodeLife if 0.
	CodeLifetime time.Duration
	// NoRotation keeps a refresh token valid after use; the answer then has
	// no refresh_token.
	NoRotation bool
	// NoFamilyRevocation only refuses a spent refresh token.
	NoFamilyRevocation bool
	// ReuseGrace, counted from the first use of a refresh token: within it
	// the same token gets the same pair again and nothing is revoked.
	ReuseGrace time.Duration
	// LatencyBefore delays each token request before it is processed: a
	// client that is gone by then has spent nothing.
	LatencyBefore time.Duration
	// Latency delays the answer to each token request after it has been
	// processed and its rotation is final.
	Latency time.Duration
	// RequireClientSecret makes every client authenticate; a public client
	// is refused.
	RequireClientSecret bool
	// JWTAccessTokens makes the access tokens of the oauth2 dialect JWTs
	// (ES256, with exp); those of the hypaware dialect always are.
	JWTAccessTokens bool
	// IDTokenOnRefresh answers a refresh of a session with the scope openid
	// with an ID token, too (OpenID Connect Core 12.2 leaves that open).
	IDTokenOnRefresh bool
	// RFC3339Expiry makes the hypaware dialect give expires_at as RFC 3339
	// instead of epoch seconds.
	RFC3339Expiry bool
	// RejectResource makes the resource refuse every token.
	RejectResource bool
	// RequiredScope, space-separated: the resource refuses a token that was
	// granted less with 403 and insufficient_scope (RFC 6750, section 3.1).
	RequiredScope string
	// ChallengeScope is the scope in the challenge of the resource's 401.
	ChallengeScope string
	// RequireResource is the one resource (RFC 8707) that every authorization,
	// device authorization and token request must name, else it is refused
	// with invalid_target. What starts with a slash is a path of this server.
	RequireResource string
	// ClientIDMetadata takes https URLs, and http ones of loopback addresses,
	// as client ids: the document there is the registration
	// (draft-ietf-oauth-client-id-metadata-document). It is fetched for every
	// authorization request, and later if the client was forgotten.
	ClientIDMetadata bool
	// NoRegistration: there is no dynamic registration.
	NoRegistration bool
	// CallbackIssuer replaces the iss parameter of authorization responses;
	// "-" leaves it out, in the metadata too.
	CallbackIssuer string
	// DeviceInterval is the poll interval of the device grant, 5 s if 0. A
	// client that polls faster is told to slow down.
	DeviceInterval time.Duration
}

// Client is an OAuth client known to the server.
type Client struct {
	ID string `json:"client_id"`
	// Secret is empty for a public client.
	Secret string `json:"client_secret,omitempty"`
	// RedirectURIs match exactly, but for the port of a loopback literal
	// (RFC 8252, section 7.3).
	RedirectURIs []string `json:"redirect_uris"`
	// GrantTypes are the only ones it may use; none: all of them.
	GrantTypes []string `json:"grant_types,omitempty"`
	// AuthMethod is the only way in which it may show its secret,
	// client_secret_basic or client_secret_post; "": either.
	AuthMethod string `json:"token_endpoint_auth_method,omitempty"`
}

// withDefaults returns the config with zero fields filled in, or what is
// wrong with it.
func (c TokenServerConfig) withDefaults() (TokenServerConfig, error) {
	listen, err := loopback(c.Listen)
	if err != nil {
		return c, err
	}
	c.Listen = listen
	if u, err := url.Parse(c.URL); c.URL != "" && (err != nil || u.Host == "" || c.URL != u.Scheme+"://"+u.Host) {
		return c, fmt.Errorf("URL %q is no origin like https://as.example.test", c.URL)
	}
	if c.IssuerPath != "" && !strings.HasPrefix(c.IssuerPath, "/") {
		return c, fmt.Errorf("issuer path %q does not start with a slash", c.IssuerPath)
	}
	if len(c.Clients) == 0 {
		c.Clients = []Client{{ID: DefaultClientID, RedirectURIs: []string{
			"http://127.0.0.1/callback", "http://127.0.0.1/", "http://127.0.0.1",
			"http://[::1]/callback", "http://[::1]/", "http://[::1]",
		}}}
		if c.RequireClientSecret {
			c.Clients[0].Secret = "cs_" + random()
		}
	}
	if len(c.Users) == 0 {
		c.Users = map[string]string{DefaultUser: DefaultPassword}
	}
	if c.LogSize <= 0 {
		c.LogSize = DefaultLogSize
	}
	return c.withBehaviour()
}

// withBehaviour fills in and checks what may change while the server runs.
func (c TokenServerConfig) withBehaviour() (TokenServerConfig, error) {
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"lifetime", &c.Lifetime, DefaultLifetime},
		{"code lifetime", &c.CodeLifetime, DefaultCodeLife},
		{"device interval", &c.DeviceInterval, 5 * time.Second},
		{"reuse grace", &c.ReuseGrace, 0},
		{"latency", &c.Latency, 0},
		{"latency before processing", &c.LatencyBefore, 0},
	} {
		if *d.value < 0 {
			return c, fmt.Errorf("%s %v is negative", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	return c, nil
}

// loopback refuses every address that other machines could reach. Names are
// not resolved, but for localhost: what they mean is not ours to decide.
func loopback(addr string) (string, error) {
	if addr == "" {
		return "127.0.0.1:0", nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("listen address %q: %w", addr, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return "", fmt.Errorf("listen address %q is not a loopback address", addr)
	}
	return net.JoinHostPort(host, port), nil
}
