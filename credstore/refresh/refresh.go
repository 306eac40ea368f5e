// Package refresh is the way from a store of sessions to their authorization
// servers. credstore knows neither HTTP nor OAuth and oauthflow keeps nothing:
// a program that uses both hands [Exchange] to the one, and it calls the other.
package refresh

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

// Exchange sends refresh requests by r, or by a zero Requester if r is nil.
// It sends at most once each, and what no answer came to is told apart from
// what was never sent: see [oauthflow.Requester.Refresh].
func Exchange(r *oauthflow.Requester) credstore.Exchange {
	if r == nil {
		r = &oauthflow.Requester{}
	}
	return func(ctx context.Context, g credstore.Grant) (credstore.Tokens, error) {
		var t oauthflow.Tokens
		var err error
		if g.Pin.Grant == credstore.ClientCredentials && g.RefreshToken.Empty() {
			t, err = r.ClientCredentials(ctx, oauthflow.ClientCredentialsRequest{
				Server: Server(g.Pin), Client: Client(g.Pin), Scopes: g.Scope, Resource: g.Resource,
			})
		} else {
			t, err = r.Refresh(ctx, oauthflow.RefreshRequest{
				Server: Server(g.Pin), Client: Client(g.Pin), RefreshToken: g.RefreshToken, Scope: g.Scope, Resource: g.Resource,
			})
		}
		if err != nil {
			return credstore.Tokens{}, failure(err)
		}
		return TokensOf(g.Pin, t), nil
	}
}

// Register registers the client of a session anew by r, or by a zero
// Requester if r is nil (RFC 7591), with the redirect that it had.
func Register(r *oauthflow.Requester) credstore.Register {
	if r == nil {
		r = &oauthflow.Requester{}
	}
	return func(ctx context.Context, p credstore.Pin) (credstore.Pin, error) {
		server := Server(p)
		server.TokenAuthMethods = nil // the old client's, not the server's
		reg := oauthflow.Registration{Scopes: p.Scope}
		if p.RedirectURI != "" {
			reg.RedirectURIs = []string{p.RedirectURI}
		} else {
			reg.GrantTypes = []string{"urn:ietf:params:oauth:grant-type:device_code", "refresh_token"}
		}
		made, err := r.Register(ctx, server, reg)
		if err != nil {
			return credstore.Pin{}, err
		}
		p.ClientID, p.ClientSecret, p.ClientAuth = made.Client.ID, made.Client.Secret, ""
		if !made.Client.Secret.Empty() {
			p.ClientAuth = made.AuthMethod
		}
		return p, nil
	}
}

// TokensOf is what a store keeps of an answer to a session with this pin: of
// one that hands out ID tokens, the ID token is in the place of the access
// token. An answer without one keeps such a session going all the same: its
// refresh token is new, and the store says what is missing.
func TokensOf(p credstore.Pin, t oauthflow.Tokens) credstore.Tokens {
	c := Tokens(t)
	if p.TokenUse != credstore.UseIDToken {
		return c
	}
	now := time.Now()
	c.AccessToken, c.ExpiresAt, c.Lifetime = t.IDToken, oauthflow.IDTokenExpiry(t.IDToken, now), 0
	if !c.ExpiresAt.IsZero() {
		c.Lifetime = max(c.ExpiresAt.Sub(now), 0)
	}
	return c
}

// Revoke ends sessions at their servers by r, or by a zero Requester if r is
// nil (RFC 7009): the refresh token first, for many servers end the access
// token with it. A server that has no revocation endpoint is
// [oauthflow.ErrNoRevocation].
func Revoke(r *oauthflow.Requester) credstore.Revoke {
	if r == nil {
		r = &oauthflow.Requester{}
	}
	return func(ctx context.Context, e credstore.Ended) error {
		if e.Pin.RevocationEndpoint == "" {
			return oauthflow.ErrNoRevocation
		}
		var failed []error
		for _, t := range []struct {
			token secret.Secret
			hint  string
		}{{e.RefreshToken, "refresh_token"}, {e.AccessToken, "access_token"}} {
			if !t.token.Empty() {
				failed = append(failed, r.Revoke(ctx, Server(e.Pin), Client(e.Pin), t.token, t.hint))
			}
		}
		return errors.Join(failed...)
	}
}

// Server is the authorization server that a session was made at.
func Server(p credstore.Pin) oauthflow.Server {
	s := oauthflow.Server{
		Issuer: p.Issuer, AuthorizationEndpoint: p.AuthorizationEndpoint, TokenEndpoint: p.TokenEndpoint,
		RevocationEndpoint: p.RevocationEndpoint, RegistrationEndpoint: p.RegistrationEndpoint, Dialect: oauthflow.Dialect(p.Dialect),
	}
	if p.ClientAuth != "" {
		s.TokenAuthMethods = []string{p.ClientAuth}
	}
	return s
}

// Client is the registration that a session was made with.
func Client(p credstore.Pin) oauthflow.Client {
	return oauthflow.Client{ID: p.ClientID, Secret: p.ClientSecret}
}

// Tokens is what a store keeps of an answer.
func Tokens(t oauthflow.Tokens) credstore.Tokens {
	return credstore.Tokens{
		AccessToken: t.AccessToken, RefreshToken: t.RefreshToken, ExpiresAt: t.ExpiresAt, Lifetime: t.Lifetime,
		Scope: strings.Fields(t.Scope), Org: t.Org, ServerDate: t.ServerDate, Warnings: t.Warnings,
	}
}

func failure(err error) *credstore.Failure {
	var e *oauthflow.Error
	if !errors.As(err, &e) {
		return &credstore.Failure{Class: credstore.ClassTemporary, Text: "the request failed"}
	}
	f := &credstore.Failure{
		Status: e.Status, Code: e.Code, Text: e.Text, RetryAfter: e.RetryAfter, ServerDate: e.ServerDate,
		Broken: e.Broken || e.NotSent, Unprocessed: e.NotSent || e.Status == 429 || e.Status/100 == 3,
	}
	switch e.Class {
	case oauthflow.ClassRefused:
		f.Class = credstore.ClassRefused
	case oauthflow.ClassClientDead:
		f.Class = credstore.ClassClientDead
	case oauthflow.ClassWrongRequest:
		f.Class = credstore.ClassRequest
	default:
		f.Class = credstore.ClassTemporary
	}
	return f
}
