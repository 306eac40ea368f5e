package credstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
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
	registered  bool // the client was registered anew in this hold
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
	case needed(err) != nil:
		t, again, err = Token{}, true, nil // it is fetched without the locks
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
	if v.sessionError != nil {
		return view{}, v.sessionError
	}
	if v.pending {
		err := h.withStoreLock(h.ctx, h.patience(), func(lock *lockfile.Lock) error { return h.settle(h.ctx, lock) })
		if err != nil {
			return view{}, err
		}
		if v, err = h.src.view(look); err != nil {
			return view{}, err
		}
	}
	h.files.form = v.form // for what is reserved; who writes has read it again
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
