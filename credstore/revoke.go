package credstore

import (
	"context"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// Ended is a session that nobody will use again: it was removed, replaced or
// overtaken. Its tokens may still be alive at its server.
type Ended struct {
	Pin                       Pin // of the server; without a TokenEndpoint it is not known
	RefreshToken, AccessToken secret.Secret
}

// Revoke ends a session at its server (RFC 7009), as far as that is possible.
type Revoke func(ctx context.Context, e Ended) error

// revocationBound is how long the end of a session at its server may take.
const revocationBound = 10 * time.Second

// ended is what r leaves behind, without what next goes on to use.
func ended(r Record, s *session, next Record) Ended {
	var e Ended
	if r.Kind != KindOIDC {
		return e
	}
	if s = s.settled(r); s != nil && s.Pin != nil {
		e.Pin = *s.Pin
	}
	if !r.RefreshToken.Equal(next.RefreshToken) {
		e.RefreshToken = r.RefreshToken
	}
	if !r.AccessToken.Equal(next.AccessToken) {
		e.AccessToken = r.AccessToken
	}
	return e
}

// Empty reports whether there is nothing to revoke.
func (e Ended) Empty() bool { return e.RefreshToken.Empty() && e.AccessToken.Empty() }

// overtake notes that nobody will use what came back: the target was logged
// out, signed in anew or given a static token during the exchange. After
// another refresh nothing is revoked, for that may be the same session.
func (h *hold) overtake(v view, now Record, stored bool, s *session, next Record) {
	sameLogin := s == nil || v.session == nil || s.LoginID == "" || v.session.LoginID == "" || s.LoginID == v.session.LoginID
	if stored && now.Kind == KindOIDC && sameLogin {
		return
	}
	h.flight.orphan = Ended{Pin: h.settings.Pin, RefreshToken: next.RefreshToken, AccessToken: next.AccessToken}
	if stored && now.Kind == KindOIDC {
		if now.RefreshToken.Equal(next.RefreshToken) {
			h.flight.orphan.RefreshToken = secret.Secret{}
		}
		if now.AccessToken.Equal(next.AccessToken) {
			h.flight.orphan.AccessToken = secret.Secret{}
		}
	}
}

// revoke ends an overtaken session, best effort, when all locks are released
// and the caller has its answer. [Store.Close] waits for it.
func (src *Source) revoke(e Ended) {
	if e.Empty() || src.cfg.Revoke == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), revocationBound)
	defer cancel()
	if err := src.cfg.Revoke(ctx, e); err != nil {
		src.store.warn("the tokens that a logout or a new login of %s overtook could not be revoked: %v", src.cfg.Target, err)
	}
}
