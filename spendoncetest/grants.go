package spendoncetest

import (
	"crypto/sha256"
	"errors"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// ErrUnknownToken is what revoking a token that was never issued gives.
var ErrUnknownToken = errors.New("the token was not issued by this server")

// Session is a signed-in family as its client would hold it.
type Session struct {
	Account      string
	ClientID     string
	AccessToken  secret.Secret
	RefreshToken secret.Secret
	ExpiresAt    time.Time
}

// family is everything that one login gave: it lives and dies together.
type family struct {
	account  string
	client   string
	scope    string
	resource []string
	nonce    string
	authTime time.Time
	revoked  bool
}

// digest stands for a token in the tables: a long run remembers every token
// it ever spent, and needs none of them back.
type digest [16]byte

func digestOf(token string) digest {
	sum := sha256.Sum256([]byte(token))
	return digest(sum[:16])
}

type refreshToken struct {
	family  *family
	spent   bool
	spentAt time.Time
	next    *pair // for the grace; nil without one
}

type accessToken struct {
	family     *family
	expires    time.Time
	generation int
	revoked    bool
}

// pair is what a token request is answered with.
type pair struct {
	family  *family
	access  string
	refresh string // "" without rotation
	expires time.Time
	idToken string
}

// grants is the table of all tokens. Its methods are plain state transitions:
// the caller holds the server's lock.
type grants struct {
	refresh    map[digest]*refreshToken
	access     map[digest]*accessToken
	generation int // access tokens of an earlier one are expired
	issued     []string
}

func newGrants() grants {
	return grants{refresh: map[digest]*refreshToken{}, access: map[digest]*accessToken{}}
}

func (g *grants) addAccess(f *family, token string, expires time.Time) {
	g.access[digestOf(token)] = &accessToken{family: f, expires: expires, generation: g.generation}
	g.issued = append(g.issued, token)
}

func (g *grants) addRefresh(f *family, token string) {
	g.refresh[digestOf(token)] = &refreshToken{family: f}
	g.issued = append(g.issued, token)
}

// live returns the family of an access token that opens the resource.
func (g *grants) live(token string, now time.Time) *family {
	a := g.access[digestOf(token)]
	if a == nil || a.revoked || a.family.revoked || a.generation != g.generation || !now.Before(a.expires) {
		return nil
	}
	return a.family
}

// verdict is what presenting a refresh token means.
type verdict int

const (
	spendIt     verdict = iota // first use
	replayIt                   // within the grace: the old pair again
	refuseIt                   // unknown, or of a revoked family
	doubleSpent                // used before
)

func (g *grants) judge(token string, now time.Time, grace time.Duration) (*refreshToken, verdict) {
	r := g.refresh[digestOf(token)]
	switch {
	case r == nil:
		return nil, refuseIt
	case r.spent && !r.family.revoked && r.next != nil && now.Sub(r.spentAt) < grace:
		return r, replayIt
	case r.spent:
		return r, doubleSpent
	case r.family.revoked:
		return r, refuseIt
	}
	return r, spendIt
}

// issue mints tokens for a family. mu is held.
func (s *TokenServer) issue(f *family, now time.Time, jwt, rotate bool) *pair {
	p := &pair{family: f, expires: now.Add(s.cfg.Lifetime)}
	if jwt || s.cfg.JWTAccessTokens {
		p.access = s.accessJWT(f, now, p.expires)
	} else {
		p.access = "at_" + random()
	}
	s.grants.addAccess(f, p.access, p.expires)
	if rotate {
		p.refresh = "rt_" + random()
		s.grants.addRefresh(f, p.refresh)
	}
	return p
}

// revoke ends a family, once. mu is held.
func (s *TokenServer) revoke(f *family) {
	if f == nil || f.revoked {
		return
	}
	f.revoked = true
	s.update(func(c *Counters) { c.FamiliesRevoked++; c.LiveFamilies-- })
}

// Issued returns every access and refresh token that there ever was, for a test
// that looks for them where none should be.
func (s *TokenServer) Issued() []secret.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]secret.Secret, len(s.grants.issued))
	for i, token := range s.grants.issued {
		all[i] = secret.New(token)
	}
	return all
}

// NewSession makes a family as if account had signed in to the first client,
// with scope "openid offline_access".
func (s *TokenServer) NewSession(account string) Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.newSession(account)
	return Session{Account: account, ClientID: s.clientID, ExpiresAt: p.expires,
		AccessToken: secret.New(p.access), RefreshToken: secret.New(p.refresh)}
}

func (s *TokenServer) newSession(account string) *pair {
	now := time.Now()
	f := &family{account: account, client: s.clientID, scope: "openid offline_access", authTime: now}
	s.update(func(c *Counters) { c.Sessions++; c.LiveFamilies++ })
	return s.issue(f, now, false, true)
}

// ExpireAccessTokens makes every access token issued so far count as expired.
func (s *TokenServer) ExpireAccessTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants.generation++
}

// RevokeAccessToken makes the resource refuse this access token; its family
// lives on.
func (s *TokenServer) RevokeAccessToken(token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.grants.access[digestOf(token)]
	if a == nil {
		return ErrUnknownToken
	}
	a.revoked = true
	return nil
}

// RevokeFamily ends the session that the access or refresh token belongs to.
func (s *TokenServer) RevokeFamily(token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.familyOf(token)
	if f == nil {
		return ErrUnknownToken
	}
	s.revoke(f)
	return nil
}

func (s *TokenServer) familyOf(token string) *family {
	d := digestOf(token)
	if r := s.grants.refresh[d]; r != nil {
		return r.family
	}
	if a := s.grants.access[d]; a != nil {
		return a.family
	}
	return nil
}

// Live reports whether the resource would serve this access token by the
// rules, whatever is scripted.
func (s *TokenServer) Live(accessToken string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants.live(accessToken, time.Now()) != nil
}

// Spendable reports whether a refresh with this token would be granted now,
// as its first use.
func (s *TokenServer) Spendable(refreshToken string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, v := s.grants.judge(refreshToken, time.Now(), s.cfg.ReuseGrace)
	return v == spendIt
}
