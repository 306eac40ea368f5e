package movein

import (
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// readFile reads a token response (RFC 6749 section 5.1) with, beside it, what
// must be known of its server and client:
//
//	{"access_token": "...", "refresh_token": "...", "expires_in": 3600, "scope": "a b",
//	 "issuer": "https://login.example.com", "client_id": "abc", "url": "https://api.example.com"}
//
// and, as they are needed, id_token, expires_at (RFC 3339 or epoch seconds),
// token_endpoint, client_secret, redirect_uri and resource. expires_in counts
// from when the file was written.
func readFile(members map[string]jsontext.Value, mtime time.Time) (Session, error) {
	r := reader{members: members}
	var s Session
	if id := r.token("id_token"); !id.Empty() {
		s.readIDToken(id)
		s.IDToken = id
	}
	s.AccessToken, s.RefreshToken = r.token("access_token"), r.token("refresh_token")
	if issuer := r.text("issuer"); issuer != "" {
		s.Issuer = issuer
	}
	s.TokenEndpoint, s.URL, s.Resource = r.text("token_endpoint"), r.text("url"), r.text("resource")
	s.ClientID, s.ClientSecret, s.RedirectURI = r.text("client_id"), r.token("client_secret"), r.text("redirect_uri")
	s.Scope = strings.Fields(r.text("scope"))
	s.Lifetime = r.lifetime()
	switch v := r.value("expires_at"); {
	case v == nil && s.Lifetime > 0 && !mtime.IsZero():
		s.ExpiresAt = mtime.UTC().Add(s.Lifetime)
	case v.Kind() == '"':
		at, err := time.Parse(time.RFC3339, r.text("expires_at"))
		if err != nil {
			r.complain("its member expires_at is neither RFC 3339 nor a number of seconds")
		}
		s.ExpiresAt = at.UTC()
	case v != nil:
		if n, ok := r.number("expires_at"); ok && math.Abs(n) < 1<<40 {
			s.ExpiresAt = time.Unix(int64(n), 0).UTC()
		}
	}
	if !plausible(s.ExpiresAt) {
		s.ExpiresAt = time.Time{}
	}
	s.Rest = r.rest("token_type", "issuer", "token_endpoint", "url", "resource", "client_id", "redirect_uri")
	if s.AccessToken.Empty() && s.IDToken.Empty() && s.RefreshToken.Empty() {
		r.complain("it holds no token")
	}
	return s, r.err
}

func writeFile(g Given, now time.Time) ([]byte, error) {
	out := builder{rest: g.Rest}
	name := "access_token"
	if g.AccessIsIDToken {
		name = "id_token"
	}
	out.set(name, g.AccessToken.Reveal())
	out.kept("token_type", "Bearer")
	if !g.ExpiresAt.IsZero() {
		out.set("expires_in", int64(max(g.ExpiresAt.Sub(now), 0).Seconds()))
		out.set("expires_at", g.ExpiresAt.UTC().Format(time.RFC3339))
	}
	out.set("refresh_token", g.RefreshToken.Reveal())
	if len(g.Scope) > 0 {
		out.set("scope", strings.Join(g.Scope, " "))
	}
	if !g.ClientSecret.Empty() {
		out.set("client_secret", g.ClientSecret.Reveal())
	}
	out.others()
	b, err := out.encode()
	return append(b, '\n'), err
}
