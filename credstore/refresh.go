package credstore

import (
	"context"
	"errors"
	"fmt"
	"time"

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

	access     access
	settings   Settings
	targetLock mutex
	whole      transaction // open throughout in ScopeStore; else there is one for each change
	room       room
	registered bool // the client was registered anew in this hold
	unanswered bool // a send of this token may have been processed without our learning it
	stepped    time.Time
	found      bool // a token, while waiting
	token      Token
	warnings   []string
	sends      []audited
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
	if h.access, err = h.src.medium.open(h.settings.StaleAfter); err != nil {
		return err
	}
	return h.lockTarget()
}

func (h *hold) lockTarget() (err error) {
	defer h.store.stage("waiting for another process that refreshes %s", h.src.cfg.Target)()
	h.targetLock, err = h.access.lockTarget(h.ctx, h.src.cfg.Target, h.enough)
	return err
}

// finish goes on under the lock that start took.
func (h *hold) finish() {
	t, again, err := h.once()
	if lostUnsent(err) { // a source program took it, or its lease ended: once more
		if err = h.lockTarget(); err == nil {
			t, again, err = h.once()
		}
	}
	h.end(t, again, err)
}

// lostUnsent reports that the lock was lost before anything was sent. What
// came back for a token stays its caller's, whoever has the lock by then.
func lostUnsent(err error) bool {
	return errors.Is(err, lockfile.ErrLost) && !errors.Is(err, ErrNotSaved)
}

// end is the result: a token, or to look again, or an error.
func (h *hold) end(t Token, again bool, err error) {
	if h.access != nil {
		h.access.close()
	}
	switch {
	case errors.Is(err, lockfile.ErrStopped):
		t, again, err = h.token, !h.found, nil
	case needed(err) != nil:
		t, again, err = Token{}, true, nil // it is fetched without the locks
	case lostUnsent(err):
		err = failing(ErrLocked, []error{err}, "the lock of %s was lost to another program before the refresh began, so nothing was sent: try again", h.src.cfg.Target)
	}
	h.flight.token, h.flight.again, h.flight.err = t, again, h.store.changeError(err)
	for _, w := range h.warnings {
		h.store.warn("%s", w)
	}
}

// once is one hold of the locks, of which the first is there.
func (h *hold) once() (t Token, again bool, err error) {
	defer h.release()
	if err := h.access.prepare(); err != nil {
		return Token{}, false, err
	}
	defer h.writeAudit()
	if h.settings.Scope == ScopeStore || !h.targetLock.Guarded() {
		unstage := h.store.stage("waiting for the store lock")
		h.whole, err = h.begin(h.ctx, lockfile.Request{Until: h.stepping(h.enough), Bell: true})
		unstage()
		if err != nil {
			return Token{}, false, err
		}
	}
	defer h.endWhole()

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
	if h.whole != nil {
		h.whole.ring()
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

func (h *hold) release() {
	release(h.targetLock, h.warn)
	h.targetLock = nil
}

func (h *hold) begin(ctx context.Context, req lockfile.Request) (transaction, error) {
	return h.access.begin(ctx, h.src.cfg.Target, h.targetLock, req, h.warn)
}

func (h *hold) endWhole() {
	if h.whole != nil {
		_ = h.whole.end(nil) // each of its changes has been made, and has told how that went
		h.whole = nil
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
		err := h.change(h.ctx, h.patience(), func(tx transaction) error { return h.settle(h.ctx, tx) })
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
// store holds now.
func (h *hold) settle(ctx context.Context, tx transaction) error {
	now, err := tx.read()
	if err != nil {
		return err
	}
	r, ok := now.record(h.src.cfg.Target)
	return tx.replaceSession(ctx, nil, h.src.cfg.Target, func(old *session) *session {
		if !ok || old == nil || old.Pending == nil {
			return nil
		}
		return old.settled(r)
	})
}

// change runs f in a transaction: that of the whole hold, if there is one.
func (h *hold) change(ctx context.Context, req lockfile.Request, f func(transaction) error) error {
	if h.whole != nil {
		return f(h.whole)
	}
	return transact(func() (transaction, error) { return h.begin(ctx, req) }, f)
}
