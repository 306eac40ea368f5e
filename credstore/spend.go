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

// spend is section 4 of docs/locking.md.
func (h *hold) spend(v view, d decision) (Token, bool, error) {
	set, err := h.src.settings(v)
	if err != nil {
		return h.unless(h.changedSince(v), err)
	}
	if set.Scope != h.settings.Scope || set.StaleAfter != h.settings.StaleAfter {
		return Token{}, true, nil // other locks than those that are held are asked for now
	}
	h.settings = set
	defer func() { discard(h.room) }()
	if err := h.proveCommit(v); err != nil {
		return Token{}, false, err
	}
	if err := h.store.beginSpending(h.ctx); err != nil {
		return Token{}, false, err
	}
	h.flight.spending = true

	// What a dead sender left says that this token may be spent already.
	sent := v.record.RefreshToken
	h.unanswered = v.marked(lockfile.MarkSent)
	if err := h.targetLock.SetMark(v.markAs(lockfile.MarkSent)); err != nil {
		return Token{}, false, err
	}
	if again, err := h.recheck(v); err != nil || again {
		_ = h.targetLock.SetMark(v.mark)
		return Token{}, again, err
	}

	// The caller's context ends its wait, not this.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), h.settings.StaleAfter/2)
	defer cancel()
	unstage := h.store.stage("refreshing %s", v.target)
	tokens, again, f := h.send(ctx, v, d, sent)
	unstage()
	if again {
		return Token{}, true, nil
	}
	if f != nil {
		return h.fail(v, d, sent, f)
	}
	for _, w := range tokens.Warnings {
		h.warn("%s: %s", v.target, w)
	}
	return h.commit(v, d, sent, tokens)
}

// proveCommit shows that what comes back can be saved, before anything is
// sent: room in the final directories, and the store lock to be had.
func (h *hold) proveCommit(v view) error {
	target := h.src.cfg.Target
	var err error
	if h.room, err = h.access.reserve(target, v.form); err != nil {
		return err
	}
	unstage := h.store.stage("waiting for the store lock")
	defer unstage()
	return h.change(h.ctx, h.patience(), func(tx transaction) error {
		tx.tidy(true)
		if v.session != nil && v.session.Pin != nil {
			return nil
		}
		// Pinned on first use, before the use: from here on no edited
		// configuration sends the token elsewhere.
		if _, err := tx.read(); err != nil { // for the form of the store as it is now
			return err
		}
		return tx.replaceSession(h.ctx, nil, target, func(old *session) *session {
			if old != nil && old.Pin != nil {
				return nil
			}
			next, pin := old.clone(), h.settings.Pin
			next.Pin = &pin
			if next.URL == "" {
				next.URL = h.settings.URL
			}
			return next
		})
	})
}

// recheck is the last look before the send. again: the record has changed,
// nothing is sent.
func (h *hold) recheck(v view) (again bool, err error) {
	if err := h.targetLock.Check(); err != nil {
		return false, err
	}
	if h.whole != nil {
		if err := h.whole.check(); err != nil {
			return false, err
		}
	}
	return h.changedSince(v), nil
}

// unless gives err, unless the ground it stands on has moved.
func (h *hold) unless(again bool, err error) (Token, bool, error) {
	if again {
		return Token{}, true, nil
	}
	return Token{}, false, err
}

// changedSince reports whether the store now holds something else for the
// target, or cannot be read any more.
func (h *hold) changedSince(v view) bool {
	now, err := h.src.medium.read(v.target, true)
	if err != nil {
		return true
	}
	r, ok := now.record(v.target)
	return !ok || !sameCredential(r, v.record)
}

func sameCredential(a, b Record) bool {
	return a.Kind == b.Kind && a.RefreshToken.Equal(b.RefreshToken) && a.AccessToken.Equal(b.AccessToken)
}

// send sends the token once, and a second time only where the first one got no
// answer: section 4, step 6 of docs/locking.md.
//
// again: the record was removed or replaced meanwhile, and the first answer
// no longer matters.
func (h *hold) send(ctx context.Context, v view, d decision, sent secret.Secret) (t Tokens, again bool, f *Failure) {
	g := Grant{Pin: h.settings.Pin, RefreshToken: sent, Resource: h.settings.Pin.Resource}
	if h.settings.RefreshScope || g.Pin.Grant == ClientCredentials {
		g.Scope = g.Pin.Scope
	}
	t, f = h.exchange(ctx, g, d)
	if f == nil {
		return t, false, nil
	}
	switch {
	case f.Broken && ctx.Err() == nil:
		h.unanswered = h.unanswered || !f.Unprocessed
	case f.Class == ClassRequest && f.Code == "invalid_target" && g.Resource != "":
		g.Resource = ""
	case f.Class == ClassClientDead && h.reregister(ctx):
		g.Pin = h.settings.Pin
	default:
		return t, false, f
	}
	_ = h.targetLock.Step() // only waiters look at it
	// A login or logout does not wait for us: the ground may have moved.
	if again, lost := h.recheck(v); again || lost != nil {
		return t, again, f
	}
	t, f = h.exchange(ctx, g, d)
	return t, false, f
}

// exchange is one send.
func (h *hold) exchange(ctx context.Context, g Grant, d decision) (Tokens, *Failure) {
	began := time.Now()
	t, err := h.src.cfg.Exchange(ctx, g)
	var f *Failure
	if err != nil && !errors.As(err, &f) {
		// Nobody vouches for what stands in such an error.
		f = &Failure{Class: ClassTemporary, Text: "the exchange failed"}
	}
	h.audit(began, g, d.forced, t, f)
	return t, f
}

// fail records how the exchange ended and words it.
func (h *hold) fail(v view, d decision, sent secret.Secret, f *Failure) (Token, bool, error) {
	now := time.Now()
	_, _, failures := v.session.about(sent)
	o := &Outcome{
		ID: rand.Text(), Time: now, RefreshToken: sent.Fingerprint(), Class: f.Class, Status: f.Status, Code: f.Code, Text: f.Text,
		ServerDate: f.ServerDate, Unknown: f.Class == ClassRefused && h.unanswered,
	}
	notBefore := backoff(now, failures+1, f.RetryAfter, mathrand.N[time.Duration])
	switch {
	case o.Unknown:
		h.mark(v.markAs(lockfile.MarkUnknown))
	case f.Class == ClassRefused:
		h.mark(v.markAs(lockfile.MarkRefused))
	case !h.unanswered && (f.Unprocessed || f.Class == ClassClientDead || f.Class == ClassRequest):
		_ = h.targetLock.SetMark(lockfile.Mark{}) // words messages only
	}

	changed := false
	// Everybody who waits wants this result: without it each sends anew.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), h.settings.StaleAfter/2)
	defer cancel()
	record := func(tx transaction) error {
		snap, err := tx.read()
		if err != nil {
			return err
		}
		r, ok := snap.record(v.target)
		if !ok || !r.RefreshToken.Equal(sent) {
			changed = true // the answer spoke of a token that is no longer stored
			return nil
		}
		return tx.replaceSession(ctx, h.room, v.target, func(old *session) *session {
			// Another program may have broken the lock and refreshed since.
			if changed = h.changedSince(v); changed {
				return nil
			}
			next := old.settled(r).clone()
			if next.RefreshToken != sent.Fingerprint() {
				next.LoginRequired = "" // it spoke of another token
			}
			h.keepRegistration(next)
			if h.registered && f.Class == ClassClientDead {
				next.Pin.Registered = false // one more would end the same way
			}
			next.RefreshToken, next.LastOutcome = sent.Fingerprint(), o
			next.NotBefore, next.Failures = notBefore, failures+1
			if f.Class == ClassRefused {
				next.LoginRequired = refusedOutcome
				if o.Unknown {
					next.LoginRequired = unknownOutcome
				}
			}
			next.noteForced(d.forced, now, h.store.cfg.ForcedWindow)
			return next
		})
	}
	saveErr := h.withKey(func() error {
		return h.change(ctx, lockfile.Request{Brief: true, Until: h.stepping(nil)}, record)
	})
	h.ring()
	if saveErr != nil {
		h.warn("the outcome of the refresh of %s could not be recorded: %v", v.target, saveErr)
	}
	if changed {
		return Token{}, true, nil
	}
	t, err := h.src.standIn(v, decision{fallback: d.fallback, err: outcomeError(v.target, o, notBefore)}, h.warn)
	return t, false, err
}

// mark says at once that the token is dead, in case that the session file
// cannot be written: nobody needs to hear it twice.
func (h *hold) mark(m lockfile.Mark) {
	if err := h.targetLock.SetMark(m); err != nil {
		h.warn("that the refresh token of %s was refused could not be noted: %v", h.src.cfg.Target, err)
	}
}

func (s *session) noteForced(forced bool, now time.Time, window time.Duration) {
	kept := s.Forced[:0]
	for _, at := range s.Forced {
		if since := now.Sub(at); since >= 0 && since < window {
			kept = append(kept, at)
		}
	}
	s.Forced = kept
	if forced {
		s.Forced = append(s.Forced, now)
	}
}
