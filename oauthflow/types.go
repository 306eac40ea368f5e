package oauthflow

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// Dialect names the words a server uses at its token endpoint.
type Dialect string

const (
	// OAuth2 is RFC 6749: a form goes out, JSON (or a form) comes back. It is
	// also what the empty Dialect means.
	OAuth2 Dialect = "oauth2"
	// Hypaware sends and receives JSON: {"grant_type":"refresh_token",
	// "refresh_token":...} is answered with access_jwt, expires_at and, where
	// given, refresh_token and org.
	Hypaware Dialect = "hypaware"
)

// Server is what must be known about an authorization server. The endpoints
// are https URLs; http is accepted for a loopback host only. An empty
// endpoint is one the server does not have.
type Server struct {
	Issuer                      string
	AuthorizationEndpoint       string
	TokenEndpoint               string // empty with Hypaware: <origin of Issuer>/v1/identity/token
	RevocationEndpoint          string
	RegistrationEndpoint        string
	DeviceAuthorizationEndpoint string

	// IssParameterSupported demands the iss parameter in the answer to an
	// authorization request (RFC 9207).
	IssParameterSupported bool
	// TokenAuthMethods is token_endpoint_auth_methods_supported. It decides
	// only how a client secret travels: in the form, unless the server offers
	// client_secret_basic and not client_secret_post.
	TokenAuthMethods []string
	// ScopesSupported is scopes_supported, for display and defaults. What is
	// not a scope by RFC 6749 was left out.
	ScopesSupported []string

	// ClientIDMetadataSupported: the URL of a document about a client may
	// serve as its id (client_id_metadata_document_supported).
	ClientIDMetadataSupported bool
	// GrantTypes is grant_types_supported; nil: not said.
	GrantTypes []string
	// CodeChallengeMethods is code_challenge_methods_supported; nil: not said.
	CodeChallengeMethods []string

	Dialect Dialect
}

// ErrNoPKCE: the server says that it does not know S256.
var ErrNoPKCE = errors.New("the server does not offer PKCE with S256, and a code without it could be stolen: " +
	"ask whoever runs the server to turn it on, or sign in with --device")

// SupportsPKCE returns [ErrNoPKCE] for a server whose metadata lists ways of
// PKCE (RFC 7636), and S256 is not one of them. Metadata that lists none at
// all, as that of servers older than the list, says nothing.
func (s Server) SupportsPKCE() error {
	if s.CodeChallengeMethods != nil && !slices.Contains(s.CodeChallengeMethods, "S256") {
		return ErrNoPKCE
	}
	return nil
}

// Client is our registration with a server. A public client has no Secret.
type Client struct {
	ID     string
	Secret secret.Secret
}

// Tokens is what a successful answer gave. RefreshToken, Scope and Org are
// empty if the answer left them out, or gave them empty or null: what was
// known before then stays true.
//
// Every token consists of bytes 0x21 to 0x7e.
type Tokens struct {
	AccessToken  secret.Secret
	RefreshToken secret.Secret
	IDToken      secret.Secret

	// ExpiresAt is when the access token ends, counted from the moment the
	// request was sent, so that time spent asleep before the answer was read
	// does not lengthen it. Zero: unknown. A token that is expired at receipt
	// has a time that is not in the future.
	ExpiresAt time.Time
	// Lifetime is ExpiresAt seen from the sending of the request, 0 if that
	// is unknown or not positive.
	Lifetime time.Duration

	Scope string // space-separated, as granted
	Org   string

	ServerDate time.Time // the Date header; zero: none or unreadable
	Warnings   []string  // what was odd about the answer, in our own words
}

// Class says what a failed exchange means for the session.
type Class int

const (
	// ClassTemporary: nothing is known against the session; try again later.
	ClassTemporary Class = iota
	// ClassRefused: the refresh token or code that was *sent* is not, or no
	// longer, accepted. It says nothing about a token stored since.
	ClassRefused
	// ClassClientDead: the server does not know our client, or not so; the
	// session may be alive under a new registration.
	ClassClientDead
	// ClassWrongRequest: the server understood the request and objects to it;
	// the same request will fail again.
	ClassWrongRequest
)

// String names the class for logs.
func (c Class) String() string {
	switch c {
	case ClassTemporary:
		return "temporary"
	case ClassRefused:
		return "refused"
	case ClassClientDead:
		return "client dead"
	case ClassWrongRequest:
		return "wrong request"
	}
	return "class " + strconv.Itoa(int(c))
}

// maxRetryAfter is the longest pause a server can impose.
const maxRetryAfter = 300 * time.Second

// Error is every failure of an exchange with a server.
type Error struct {
	Class  Class
	Status int    // HTTP status; 0 if there was no answer
	Code   string // OAuth error code, cleaned like Text; "" if there was none

	// Text is one short line of printable ASCII. It may quote the server; it
	// holds no secret that was sent or received, in whatever encoding.
	Text string

	// RetryAfter is the pause the server asked for, at most 300 s; 0: none.
	RetryAfter time.Duration
	ServerDate time.Time // the Date header; zero: none or unreadable

	// NotSent: no byte of the request left this process, so the server
	// surely has not processed it.
	NotSent bool
	// Broken: the request, or a part of it, was sent, and no whole answer
	// came back; whether it was processed is unknown.
	Broken bool

	op    string
	cause error // a sentinel of ours or the caller's context error, never the server's words
}

// Error returns Text, led by the kind of request.
func (e *Error) Error() string {
	if e.op == "" {
		return e.Text
	}
	return e.op + ": " + e.Text
}

// Unwrap returns the context's error if the context ended the exchange, or
// one of this package's sentinels, or nil.
func (e *Error) Unwrap() error { return e.cause }
