package credstore

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

// commit saves what came back for sent, by compare-and-swap on it. The
// caller gets its token in any case.
func (h *hold) commit(v view, d decision, sent secret.Secret, tokens Tokens) (Token, bool, error) {
	next := v.record
	next.Org = tokens.Org
	bare := tokens.AccessToken.Empty() // see [UseIDToken]: the session goes on, and there is nothing to hand out
	if !bare {
		next.AccessToken, next.ExpiresAt = tokens.AccessToken, tokens.ExpiresAt
	}
	next.RefreshToken = after(sent, tokens.RefreshToken)
	token, err := h.src.meets(Token{AccessToken: next.AccessToken, ExpiresAt: next.ExpiresAt, Kind: KindOIDC}, time.Now(), h.req)

	_ = h.targetLock.Step() // only waiters look at it
	unstage := h.store.stage("saving the new token of %s", v.target)
	defer unstage()
	save := func() error { return h.save(v, d, sent, next, tokens) }
	saveErr := h.withKey(save)
	if saveErr != nil && !errors.Is(saveErr, lockfile.ErrNotObtained) && !errors.Is(saveErr, ErrShared) { // these have been waited for once
		h.room.spoilt()
		saveErr = h.withKey(save)
	}
	if saveErr != nil {
		if markErr := h.targetLock.SetMark(v.markAs(lockfile.MarkSpent)); markErr != nil {
			h.warn("that the refresh token of %s is spent could not be recorded either: %v", v.target, markErr)
		}
		token.AccessToken = next.AccessToken
		if v.renewsByClient() {
			return token, false, failing(ErrNotSaved, []error{saveErr},
				"the new token of %s is valid and could not be saved (%v): make the store writable, or every call asks the server anew", v.target, saveErr)
		}
		return token, false, failing(ErrNotSaved, []error{saveErr},
			"the token of %s was refreshed but not saved (%v): this token is valid, but the session is lost; sign in again with 'spendonce login %s' once the store can be written", v.target, saveErr, v.target)
	}
	_ = h.targetLock.SetMark(lockfile.Mark{}) // words messages only
	if bare {
		return Token{}, false, outcomeError(v.target, bareOutcome(time.Now(), sent, tokens), time.Time{})
	}
	return token, false, err
}

// save is one attempt under the store lock, which is waited for with a
// received token in hand.
func (h *hold) save(v view, d decision, sent secret.Secret, next Record, tokens Tokens) error {
	ctx := context.WithoutCancel(h.ctx)
	return h.change(ctx, lockfile.Request{Brief: true, Patient: true, Until: h.stepping(nil)}, func(tx transaction) error {
		// A login that was cut short is decided by the token that is stored,
		// which is about to go.
		err := h.settle(ctx, tx)
		if needed(err) != nil {
			return err
		}
		if err != nil {
			h.warn("the session file of %s could not be settled before the commit: %v", v.target, err)
		}
		newer, there := false, false
		var r Record
		var ok bool
		err = tx.replaceStore(ctx, h.room, func(now *snapshot) *document {
			r, ok = now.record(v.target)
			there = ok && sameCredential(r, next) && r.ExpiresAt.UnixMilli() == next.ExpiresAt.UnixMilli() && (next.Org == "" || r.Org == next.Org)
			newer = !there && !(ok && r.Kind == KindOIDC && r.RefreshToken.Equal(sent) && (!sent.Empty() || sameCredential(r, v.record)))
			if there || newer {
				// An attempt that was reported failed went through; or the
				// target was logged out, signed in anew or refreshed
				// elsewhere, and that stays.
				return nil
			}
			old, _ := now.doc.get(v.target)
			doc := now.doc.clone()
			doc.set(v.target, next.write(old))
			return doc
		})
		if err == nil && there {
			err = tx.sync()
		}
		if err == nil {
			h.ring()
		}
		if err == nil && newer {
			// Without its session file it is not known whose the newer state
			// is, and nothing is revoked.
			if s, err := tx.readSession(v.target); err == nil {
				h.overtake(v, r, ok, s, next)
			}
		}
		if err != nil || newer {
			return err
		}
		// The tokens are safe. What the session file knows beyond them is
		// worth a warning, not the session.
		err = tx.replaceSession(ctx, h.room, v.target, func(old *session) *session {
			return h.refreshed(old.settled(v.record), d, sent, next, tokens)
		})
		if err != nil {
			h.warn("the session file of %s could not be written after the refresh: %v", v.target, err)
		}
		return nil
	})
}

// withKey runs save, and again with the key that it turned out to need. A
// rekey waits for the targets that are stored; who logs out meanwhile, or
// breaks our lock, takes the target from among them. What we then save is
// little or nothing, and still it is a token that was paid for: this is the
// one place where a key is fetched under a lock, that of the target, for as
// long as an exchange may take. Others see a holder that is alive.
func (h *hold) withKey(save func() error) error {
	err := save()
	need := needed(err)
	if need == nil {
		return err
	}
	_ = h.targetLock.Step() // only waiters look at it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), h.settings.StaleAfter/2)
	defer cancel()
	if err := h.store.fetch(ctx, need); err != nil {
		return err
	}
	return save()
}

// refreshed is the session after a success.
func (h *hold) refreshed(old *session, d decision, sent secret.Secret, next Record, tokens Tokens) *session {
	now := time.Now()
	s := old.clone()
	s.RefreshToken = next.RefreshToken.Fingerprint()
	s.LoginRequired, s.NotBefore, s.Failures = "", time.Time{}, 0
	if !tokens.AccessToken.Empty() {
		s.ObtainedAt, s.LifetimeSeconds = now, tokens.Lifetime.Seconds()
	}
	if s.Pin == nil { // pinned on first use
		pin := h.settings.Pin
		s.Pin = &pin
		if s.URL == "" {
			s.URL = h.settings.URL
		}
	}
	h.keepRegistration(s)
	if len(tokens.Scope) > 0 {
		s.Pin.Scope = tokens.Scope
	}
	s.noteForced(d.forced, now, h.store.cfg.ForcedWindow)
	s.LastOutcome = &Outcome{ID: rand.Text(), Time: now, RefreshToken: sent.Fingerprint(), Class: ClassSuccess, ServerDate: tokens.ServerDate}
	if tokens.AccessToken.Empty() {
		_, _, failures := old.about(sent)
		s.LastOutcome, s.Failures = bareOutcome(now, sent, tokens), failures+1
		s.NotBefore = backoff(now, s.Failures, 0, mathrand.N[time.Duration])
	}
	return s
}

// bareOutcome is an exchange that renewed the session and gave no token to
// hand out. Its successor's back-off keeps everybody from spending one refresh
// token after the other for nothing.
func bareOutcome(now time.Time, sent secret.Secret, tokens Tokens) *Outcome {
	return &Outcome{
		ID: rand.Text(), Time: now, RefreshToken: sent.Fingerprint(), Class: ClassRequest, ServerDate: tokens.ServerDate,
		Text: "it gave no ID token, which is what this target hands out",
	}
}
