package credstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

// hold is one attempt to refresh a target: locks, the decision under them,
// and at most two sends.
type hold struct {
	src      *Source
	store    *Store
	flight   *flight
	ctx      context.Context //nolint:containedctx // the caller's, for waits only: what is spent is not bound to it
	first    view            // what the caller saw first
	seen     view            // what it saw last
	req      Request
	fallback bool // the stored token is valid: do not wait for a lock

	files       *files
	settings    Settings
	targetLock  *lockfile.Lock
	storeLock   *lockfile.Lock // held throughout in ScopeStore, else only for the commit
	storeTemp   *durable.Temp
	sessionTemp *durable.Temp
	unanswered  bool // a send of this token may have been processed without our learning it
	stepped     time.Time
	found       bool // a token, while waiting
	token       Token
	warnings    []string
	sends       []audited
}

// warn keeps a warning until the locks are released: whoever listens may
// take its time.
func (h *hold) warn(format string, args ...any) {
	h.warnings = append(h.warnings, fmt.Sprintf(format, args...))
}

// start takes the target lock, in the caller's own goroutine: most who come
// here wait for somebody else's result, and should do no more than that. It
// returns nil if the lock is had; else the flight is over with [hold.end].
func (h *hold) start() (err error) {
	if h.settings, err = h.src.settings(h.seen); err != nil {
		if h.changedSince(h.seen) {
			return lockfile.ErrStopped // it stands on ground that has moved
		}
		return err
	}
	if h.files, err = h.store.openFiles(h.settings.StaleAfter); err != nil {
		return err
	}
	if err = h.files.openLocks(); err != nil {
		return err
	}
	return h.lockTarget()
}

func (h *hold) lockTarget() (err error) {
	defer h.store.stage("waiting for another process that refreshes %s", h.src.cfg.Target)()
	h.targetLock, err = h.files.lockTarget(h.ctx, h.src.cfg.Target, h.enough)
	return err
}

// finish goes on under the lock that start took.
func (h *hold) finish() {
	t, again, err := h.once()
	if errors.Is(err, lockfile.ErrLost) { // a source program took it: once more
		if err = h.lockTarget(); err == nil {
			t, again, err = h.once()
		}
	}
	h.end(t, again, err)
}

// end is the result: a token, or to look again, or an error.
func (h *hold) end(t Token, again bool, err error) {
	if h.files != nil {
		h.files.close()
	}
	switch {
	case errors.Is(err, lockfile.ErrStopped):
		t, again, err = h.token, !h.found, nil
	case errors.Is(err, lockfile.ErrLost):
		err = failing(ErrLocked, []error{err}, "the lock of %s was broken by another program before the refresh began, so nothing was sent: try again", h.src.cfg.Target)
	}
	h.flight.token, h.flight.again, h.flight.err = t, again, h.store.changeError(err)
	for _, w := range h.warnings {
		h.store.warn("%s", w)
	}
}

// once is one hold of the locks, of which the first is there.
func (h *hold) once() (t Token, again bool, err error) {
	defer h.release(&h.targetLock)
	if err := h.files.openAll(); err != nil {
		return Token{}, false, err
	}
	defer h.writeAudit()
	if h.settings.Scope == ScopeStore || !h.targetLock.Guarded() {
		unstage := h.store.stage("waiting for the store lock")
		h.storeLock, err = h.files.lockStore(h.ctx, true, lockfile.Request{Until: h.stepping(h.enough), Bell: true})
		unstage()
		if err != nil {
			return Token{}, false, err
		}
	}
	defer h.release(&h.storeLock)

	v, err := h.viewUnderLock()
	if err != nil {
		return Token{}, false, err
	}
	d := h.store.decide(v, h.req)
	if d.action == serve {
		return v.token(), false, nil
	}
	if t, ok, err := h.src.taken(h.first, v, h.req); ok {
		return t, false, err
	}
	if d.action == refuse {
		t, err := h.src.standIn(v, d, h.warn)
		return t, false, err
	}
	return h.spend(v, d)
}

// ring wakes those who wait: there is a result to be seen.
func (h *hold) ring() {
	h.targetLock.Ring()
	if h.storeLock != nil {
		h.storeLock.Ring()
	}
}

// stepping shows those who wait for the target that its holder, who waits for
// the store lock, is alive.
func (h *hold) stepping(until func() bool) func() bool {
	return func() bool {
		if now := time.Now(); now.Sub(h.stepped) > h.settings.StaleAfter/30 {
			h.stepped = now
			_ = h.targetLock.Step() // only waiters look at it
		}
		return until != nil && until()
	}
}

// patience is how a hold waits for the store lock before anything is spent.
func (h *hold) patience() lockfile.Request {
	req := lockfile.Request{Brief: true, Until: h.stepping(nil)}
	if h.fallback {
		req.Until = h.enough // a valid token is not held back by a busy lock
	}
	return req
}

// enough ends a wait: there is a valid token, or what is wanted is decided
// without the lock.
func (h *hold) enough() bool {
	if h.fallback {
		return true
	}
	// The store is replaced before the session file; a fresh token in it is
	// all that is needed.
	look := lookAt{bytes: !h.req.Rejected.Empty()}
	v, err := h.src.view(look)
	if err != nil {
		return true
	}
	if h.store.decide(v, h.req).action == serve {
		h.found, h.token = true, v.token()
		return true
	}
	look.session = true
	if v, err = h.src.view(look); err != nil || h.store.decide(v, h.req).action != refresh {
		return true
	}
	_, ok, _ := h.src.taken(h.first, v, h.req)
	return ok
}

func (h *hold) release(lock **lockfile.Lock) {
	if *lock != nil {
		release(*lock, h.warn)
		*lock = nil
	}
}

// viewUnderLock reads the bytes of both files, settling a login that was cut
// short between them.
func (h *hold) viewUnderLock() (view, error) {
	look := lookAt{bytes: true, session: true}
	v, err := h.src.view(look)
	if err != nil {
		return view{}, err
	}
	raw, err := h.store.readSession(h.src.cfg.Target, false)
	if err != nil {
		return view{}, err
	}
	if raw != nil && raw.Pending != nil {
		err := h.withStoreLock(h.ctx, h.patience(), func(lock *lockfile.Lock) error { return h.settle(h.ctx, lock) })
		if err != nil {
			return view{}, err
		}
		if v, err = h.src.view(look); err != nil {
			return view{}, err
		}
	}
	v.mark = h.targetLock.Mark()
	return v, nil
}

// settle decides a login that was cut short, by the refresh token that the
// store holds now. The store lock is held.
func (h *hold) settle(ctx context.Context, lock *lockfile.Lock) error {
	now, err := h.files.read()
	if err != nil {
		return err
	}
	r, ok := now.record(h.src.cfg.Target)
	return h.files.replaceSession(ctx, lock, nil, h.src.cfg.Target, func(old *session) *session {
		if !ok || old == nil || old.Pending == nil {
			return nil
		}
		return old.settled(r)
	})
}

// withStoreLock runs f under the store lock, taking it if this hold does not
// have it anyway.
func (h *hold) withStoreLock(ctx context.Context, req lockfile.Request, f func(*lockfile.Lock) error) error {
	if h.storeLock != nil {
		return f(h.storeLock)
	}
	lock, err := h.files.lockStore(ctx, true, req)
	if err != nil {
		return err
	}
	defer release(lock, h.warn)
	return f(lock)
}

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
	defer func() {
		h.storeTemp.Discard()
		h.sessionTemp.Discard()
	}()
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
	size := func(dir *durable.Dir, name string, margin int64) int64 {
		id, err := dir.Stat(name)
		if err != nil {
			return margin
		}
		return id.Size + margin
	}
	var err error
	if h.storeTemp, err = h.files.dir.Prepare(h.files.at.base, size(h.files.dir, h.files.at.base, h.store.cfg.Margin)); err != nil {
		return err
	}
	if h.sessionTemp, err = h.files.sessions.Prepare(target+".json", size(h.files.sessions, target+".json", sessionMargin)); err != nil {
		return err
	}
	unstage := h.store.stage("waiting for the store lock")
	defer unstage()
	return h.withStoreLock(h.ctx, h.patience(), func(lock *lockfile.Lock) error {
		h.files.removeOldTemps()
		_ = h.files.state.Rotate(auditName, auditLimit) // the next one tries again
		if v.session != nil && v.session.Pin != nil {
			return nil
		}
		// Pinned on first use, before the use: from here on no edited
		// configuration sends the token elsewhere.
		return h.files.replaceSession(h.ctx, lock, nil, target, func(old *session) *session {
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
	if h.storeLock != nil {
		if err := h.storeLock.Check(); err != nil {
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
	now, err := h.store.readNow()
	if err != nil {
		return true
	}
	r, ok := now.record(v.target)
	return !ok || !sameCredential(r, v.record)
}

func sameCredential(a, b Record) bool {
	return a.Kind == b.Kind && a.RefreshToken.Equal(b.RefreshToken) && a.AccessToken.Equal(b.AccessToken)
}

// send sends the token once, and a second time only where the first send
// surely left no answer to lose: see rule 8.
//
// again: the record was removed or replaced meanwhile, and the first answer
// no longer matters.
func (h *hold) send(ctx context.Context, v view, d decision, sent secret.Secret) (t Tokens, again bool, f *Failure) {
	g := Grant{Pin: h.settings.Pin, RefreshToken: sent, Resource: h.settings.Pin.Resource}
	t, f = h.exchange(ctx, g, d)
	if f == nil {
		return t, false, nil
	}
	switch {
	case f.Broken && ctx.Err() == nil:
		h.unanswered = h.unanswered || !f.Unprocessed
	case f.Class == ClassRequest && f.Code == "invalid_target" && g.Resource != "":
		g.Resource = ""
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
	saveErr := h.withStoreLock(ctx, lockfile.Request{Brief: true, Until: h.stepping(nil)}, func(lock *lockfile.Lock) error {
		snap, err := h.store.readNow()
		if err != nil {
			return err
		}
		r, ok := snap.record(v.target)
		if !ok || !r.RefreshToken.Equal(sent) {
			changed = true // the answer spoke of a token that is no longer stored
			return nil
		}
		return h.files.replaceSession(ctx, lock, h.sessionTemp, v.target, func(old *session) *session {
			// Another program may have broken the lock and refreshed since.
			if changed = h.changedSince(v); changed {
				return nil
			}
			next := old.settled(r).clone()
			if next.RefreshToken != sent.Fingerprint() {
				next.LoginRequired = "" // it spoke of another token
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
