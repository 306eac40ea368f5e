package spendoncetest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"time"
)

// code is an authorization code: one use, bound to client, redirect URI and
// PKCE challenge.
type code struct {
	*authorization
	account string
	expires time.Time
	used    bool
	family  *family // what it gave
}

// newCode makes the code that ends a login. mu is held.
func (s *TokenServer) newCode(a *authorization, account string, now time.Time) string {
	value := "code_" + random()
	s.codes[digestOf(value)] = &code{authorization: a, account: account, expires: now.Add(s.cfg.CodeLifetime)}
	return value
}

// redeemCode turns a code into tokens. Any attempt that gets as far as naming
// the code uses it up, also a wrong one; another attempt after a good one
// revokes what that gave (RFC 6749, section 4.1.2). mu is held.
func (s *TokenServer) redeemCode(q *request, client Client, now time.Time) (*pair, *response) {
	if client.ID == "" {
		return nil, invalidClient(q, "the client did not say who it is")
	}
	p := q.params
	for _, name := range []string{"code", "redirect_uri", "code_verifier"} {
		if p.Get(name) == "" {
			return nil, oauthError(400, "invalid_request", name+" is missing")
		}
	}
	c := s.codes[digestOf(p.Get("code"))]
	if c == nil {
		return nil, oauthError(400, "invalid_grant", "the code is not known")
	}
	if c.used {
		s.update(func(c *Counters) { c.DoubleSpends++ })
		s.revoke(c.family)
		return nil, oauthError(400, "invalid_grant", "the code was used before")
	}
	c.used = true
	sum := sha256.Sum256([]byte(p.Get("code_verifier")))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	switch {
	case now.After(c.expires):
		return nil, oauthError(400, "invalid_grant", "the code has expired")
	case c.client != client.ID:
		return nil, oauthError(400, "invalid_grant", "the code was given to another client")
	case c.redirect != p.Get("redirect_uri"):
		return nil, oauthError(400, "invalid_grant", "the redirect URI is not the one of the request")
	case !isVerifier(p.Get("code_verifier")) || subtle.ConstantTimeCompare([]byte(challenge), []byte(c.challenge)) != 1:
		return nil, oauthError(400, "invalid_grant", "the code verifier does not match")
	}
	f := &family{account: c.account, client: c.client, scope: c.scope, resource: c.resource,
		nonce: c.nonce, authTime: now}
	if bad := s.refuseTarget(q, f.resource); bad != nil {
		return nil, bad
	}
	c.family = f
	return s.signIn(f, now), nil
}

// signIn gives a new family its first tokens; a refresh token only if its
// client may use one. mu is held.
func (s *TokenServer) signIn(f *family, now time.Time) *pair {
	s.update(func(c *Counters) { c.CodeExchanges++; c.LiveFamilies++ })
	pair := s.issue(f, now, false, s.clients[f.client].mayUse("refresh_token"))
	if hasScope(f.scope, "openid") {
		pair.idToken = s.idToken(f, now, pair.expires)
	}
	return pair
}
