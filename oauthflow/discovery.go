package oauthflow

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/spendonce/spendonce/internal/egress"
)

var (
	// ErrNoMetadata: no well-known place of the issuer holds metadata.
	ErrNoMetadata = errors.New("no authorization server metadata found")
	// ErrIssuer: the metadata belongs to another issuer, or names none.
	ErrIssuer = errors.New("the metadata is not that of the issuer asked for")
	// ErrMetadata: the metadata is the issuer's, and cannot be used.
	ErrMetadata = errors.New("the metadata cannot be used")
)

// metadata is what is read of RFC 8414 and OpenID Connect Discovery.
type metadata struct {
	Issuer                      string   `json:"issuer"`
	AuthorizationEndpoint       string   `json:"authorization_endpoint"`
	TokenEndpoint               string   `json:"token_endpoint"`
	RevocationEndpoint          string   `json:"revocation_endpoint"`
	RegistrationEndpoint        string   `json:"registration_endpoint"`
	DeviceAuthorizationEndpoint string   `json:"device_authorization_endpoint"`
	IssParameterSupported       bool     `json:"authorization_response_iss_parameter_supported"`
	TokenAuthMethods            []string `json:"token_endpoint_auth_methods_supported"`
	ScopesSupported             []string `json:"scopes_supported"`
	ClientIDMetadataSupported   bool     `json:"client_id_metadata_document_supported"`
	GrantTypes                  []string `json:"grant_types_supported"`
	CodeChallengeMethods        []string `json:"code_challenge_methods_supported"`
}

var serverDocument = document{op: "discovery", none: ErrNoMetadata, unusable: ErrMetadata}

// Discover finds the endpoints of an issuer (RFC 8414, OpenID Connect
// Discovery) at the well-known places in front of and behind the issuer's
// path. Nothing secret is sent and no redirect is followed.
//
// The metadata must name the very issuer that was asked for, but for a single
// root slash: https://h and https://h/ are the same, https://h/t and
// https://h/t/ are not. Every endpoint must be https; http on a loopback host
// is accepted from an issuer that is on one itself.
func (r *Requester) Discover(ctx context.Context, issuer string) (Server, error) {
	u, err := parseEndpoint("issuer", issuer)
	if err == nil && (u.RawQuery != "" || u.ForceQuery) {
		err = errors.New("the issuer has a query")
	}
	if err != nil {
		return Server{}, &Error{op: "discovery", Class: ClassWrongRequest, NotSent: true, Text: "not sent: " + err.Error(), cause: err}
	}
	var last *Error
	for _, place := range wellKnown(u) {
		server, e := r.readMetadata(ctx, issuer, place)
		switch {
		case e == nil:
			return server, nil
		case e.Status == 0: // not reached: the other places are on the same host
			return Server{}, e
		case last == nil || serverDocument.severity(e) > serverDocument.severity(last):
			last = e
		}
	}
	return Server{}, last
}

// wellKnown lists where metadata may be: in front of the path first, as RFC
// 8414 has it, then behind it, as OpenID Connect has it. A terminating slash
// of the path is not part of the place.
func wellKnown(issuer *url.URL) []*url.URL {
	path := strings.TrimRight(issuer.EscapedPath(), "/")
	var places []*url.URL
	for _, p := range []string{
		"/.well-known/oauth-authorization-server" + path,
		"/.well-known/openid-configuration" + path,
		path + "/.well-known/openid-configuration",
		path + "/.well-known/oauth-authorization-server",
	} {
		place, err := url.Parse(issuer.Scheme + "://" + issuer.Host + p)
		if err == nil && !slices.ContainsFunc(places, func(o *url.URL) bool { return o.String() == place.String() }) {
			places = append(places, place)
		}
	}
	return places
}

func (r *Requester) readMetadata(ctx context.Context, issuer string, place *url.URL) (Server, *Error) {
	var m metadata
	a, e := r.readDocument(ctx, serverDocument, place, &m)
	if e != nil {
		return Server{}, e
	}
	if !SameIssuer(m.Issuer, issuer) {
		return Server{}, serverDocument.refuse(a, ErrIssuer, "; it names "+named(m.Issuer))
	}
	if err := m.check(issuer); err != nil {
		return Server{}, serverDocument.refuse(a, ErrMetadata, ": "+err.Error())
	}
	return Server{
		Issuer:                      m.Issuer,
		AuthorizationEndpoint:       m.AuthorizationEndpoint,
		TokenEndpoint:               m.TokenEndpoint,
		RevocationEndpoint:          m.RevocationEndpoint,
		RegistrationEndpoint:        m.RegistrationEndpoint,
		DeviceAuthorizationEndpoint: m.DeviceAuthorizationEndpoint,
		IssParameterSupported:       m.IssParameterSupported,
		TokenAuthMethods:            m.TokenAuthMethods,
		ScopesSupported:             scopesOf(m.ScopesSupported),
		ClientIDMetadataSupported:   m.ClientIDMetadataSupported,
		GrantTypes:                  m.GrantTypes,
		CodeChallengeMethods:        m.CodeChallengeMethods,
	}, nil
}

// check refuses endpoints to which no secret may go. A remote server that
// points at this machine is refused too: what listens there is not the server.
func (m metadata) check(issuer string) error {
	home, err := parseEndpoint("issuer", issuer)
	if err != nil {
		return err
	}
	if m.TokenEndpoint == "" {
		return errors.New("there is no token_endpoint")
	}
	for _, e := range []struct{ name, url string }{
		{"authorization_endpoint", m.AuthorizationEndpoint},
		{"token_endpoint", m.TokenEndpoint},
		{"revocation_endpoint", m.RevocationEndpoint},
		{"registration_endpoint", m.RegistrationEndpoint},
		{"device_authorization_endpoint", m.DeviceAuthorizationEndpoint},
	} {
		if e.url == "" {
			continue
		}
		u, err := parseEndpoint(e.name, e.url)
		if err != nil {
			return err
		}
		if egress.Loopback(u.Hostname()) && !egress.Loopback(home.Hostname()) {
			return errors.New("the " + e.name + " of a remote issuer is on this machine")
		}
	}
	return nil
}

// SameIssuer compares as RFC 8414 section 3.3 and RFC 9207 do, byte by byte,
// but for the slash after a bare host, which servers add and drop at will. An
// issuer that is not known is the same as none.
func SameIssuer(a, b string) bool {
	return a != "" && rootless(a) == rootless(b)
}

// rootless drops the slash of an issuer that consists of scheme and host.
func rootless(issuer string) string {
	_, rest, ok := strings.Cut(issuer, "://")
	if host, found := strings.CutSuffix(rest, "/"); ok && found && host != "" && !strings.ContainsAny(host, "/?#") {
		return strings.TrimSuffix(issuer, "/")
	}
	return issuer
}
