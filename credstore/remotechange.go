package credstore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/lockfile"
)

// remoteAccess is what a change of a shared target is made with.
type remoteAccess struct {
	*remote
	staleAfter time.Duration
	forms      bool      // what does not exist yet may be made
	fresh      *form     // for it
	patience   time.Time // until when what was paid for is tried to be saved; zero: there is nothing yet
	nested     bool      // another lock is held, so that stops are deferred already
}

// readBound is that of the lock that is held.
func (a *remoteAccess) readBound() time.Duration { return a.staleAfter / 6 }

func (a *remoteAccess) lockTarget(ctx context.Context, target string, until func() bool) (mutex, error) {
	hold := a.store.cfg.Hold
	unhold := func() {}
	if hold != nil && !a.nested {
		unhold = hold()
	}
	lock, err := a.in.Lock(ctx, SharedRequest{Target: target, StaleAfter: a.staleAfter, Until: until})
	if err != nil {
		unhold()
		return nil, a.failure(err)
	}
	return &remoteMutex{lock, a.remote, unhold}, nil
}

// remoteMutex is the lock of a shared target.
type remoteMutex struct {
	SharedLock
	in     *remote
	unhold func()
}

func (m *remoteMutex) Check() error { return m.in.failure(m.SharedLock.Check()) }

func (m *remoteMutex) SetMark(mark lockfile.Mark) error {
	return m.in.failure(m.SharedLock.SetMark(mark))
}

// Guarded: no other program takes part, so that nobody takes it by age.
func (*remoteMutex) Guarded() bool { return true }

// Ring does nothing: who waits is told of the value's change.
func (*remoteMutex) Ring() {}

func (m *remoteMutex) Release() error {
	defer m.unhold()
	return m.SharedLock.Release()
}

func (*remoteAccess) prepare() error { return nil }

func (*remoteAccess) close() {}

// reserve has nothing to do: that a mark was put is the proof that a value
// can be.
func (*remoteAccess) reserve(string, *form) (room, error) { return remoteRoom{}, nil }

type remoteRoom struct{}

func (remoteRoom) spoilt()  {}
func (remoteRoom) discard() {}

func (a *remoteAccess) forNew() error {
	a.forms = true
	return nil
}

func (a *remoteAccess) getKey(ctx context.Context) func(*keyNeeded) error {
	return func(need *keyNeeded) error {
		if !need.make {
			return a.store.fetch(ctx, need)
		}
		fresh, err := a.newForm(ctx, need.path)
		a.fresh = fresh
		return err
	}
}

// newForm makes a key for the value that path names.
func (r *remote) newForm(ctx context.Context, path string) (*form, error) {
	ref, key, err := r.keys.Make(ctx, func(sealed.Ref) error { return nil })
	if err != nil {
		return nil, failing(ErrKey, []error{err}, "no key for %s could be made, so nothing was changed: %v", path, err)
	}
	r.store.keys.Store(ref.ID, key)
	return &form{ref, key}, nil
}

// appendAudit writes to this machine's log: each has that of its own sends.
func (a *remoteAccess) appendAudit(line []byte) error {
	f, err := a.store.openFiles(a.staleAfter)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.openAll(); err != nil {
		return err
	}
	return f.appendAudit(line)
}

// begin reads the value. What the transaction changes is put when it ends,
// all of it or nothing.
func (a *remoteAccess) begin(ctx context.Context, target string, under mutex, req lockfile.Request, _ func(string, ...any)) (transaction, error) {
	t := &remoteChange{remoteAccess: a, ctx: ctx, target: target, until: req.Until, bound: time.Now().Add(a.readBound())}
	if m, ok := under.(*remoteMutex); ok {
		t.under = m.SharedLock
	}
	if req.Patient { // with something in hand that was paid for
		if a.patience.IsZero() {
			a.patience = time.Now().Add(2 * a.staleAfter)
		}
		t.patient, t.bound = true, a.patience
	}
	for {
		base, err := a.get(ctx, target, a.readBound())
		if err == nil {
			t.base, t.now = base, *base
			return t, nil
		}
		if !errors.Is(err, ErrShared) {
			return nil, err
		}
		if err := t.pause(err); err != nil {
			return nil, err
		}
	}
}

// pause lets some time go by before another attempt. When there is none left
// it returns why the last one failed.
func (t *remoteChange) pause(failed error) error {
	if !time.Now().Before(t.bound) || t.ctx.Err() != nil {
		return failed
	}
	if t.until != nil && t.until() {
		return lockfile.ErrStopped
	}
	select {
	case <-time.After(retryPause):
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// retryPause is the time between two attempts to reach the shared store.
const retryPause = 100 * time.Millisecond

// remoteChange is a change of a shared target.
type remoteChange struct {
	*remoteAccess
	ctx     context.Context //nolint:containedctx // that of the one change
	target  string
	under   SharedLock // nil: none is held
	patient bool
	bound   time.Time // of all attempts to reach the shared store
	until   func() bool
	base    *kept
	now     kept // base with what was changed
	dirty   bool
}

func (t *remoteChange) read() (*snapshot, error) {
	if t.now.snap.form == nil && t.forms && t.fresh == nil {
		return nil, needing(&keyNeeded{path: t.in.Name(t.target), make: true, keys: t.keys})
	}
	return t.now.snap, nil
}

func (t *remoteChange) readSession(string) (*session, error) { return t.now.snap.session, nil }

func (t *remoteChange) replaceStore(_ context.Context, _ room, change func(*snapshot) *document) error {
	snap, err := t.read()
	if err != nil {
		return err
	}
	doc := change(snap)
	if doc == nil {
		return nil
	}
	next := &snapshot{form: snap.form, doc: doc, records: map[string]Record{}, session: snap.session}
	if value, ok := doc.get(t.target); ok {
		next.exists, next.records[t.target] = true, readRecord(value)
	}
	t.now.snap, t.dirty = next, true
	return nil
}

func (t *remoteChange) replaceSession(_ context.Context, _ room, _ string, change func(*session) *session) error {
	if next := change(t.now.snap.session); next != nil {
		t.setSession(next)
	}
	return nil
}

func (t *remoteChange) setSession(s *session) {
	next := *t.now.snap
	next.session = s
	t.now.snap, t.dirty = &next, true
}

func (t *remoteChange) removeSession(string) error {
	t.setSession(nil)
	return nil
}

// reseal puts the value again, in another form.
func (t *remoteChange) reseal(to *form) {
	next := *t.now.snap
	next.form = to
	t.now.snap, t.dirty = &next, true
}

// introduce has nothing to do, see [remote.known].
func (*remoteChange) introduce(string) error { return nil }

// writable puts the value again as it is, or finds out that it cannot be.
func (t *remoteChange) writable(string) error {
	t.dirty = t.base.version != 0
	return nil
}

func (*remoteChange) sync() error  { return nil } // what was read is what most members have on their disks
func (*remoteChange) tidy(bool)    {}
func (*remoteChange) check() error { return nil }
func (*remoteChange) ring()        {}

// end puts the value. Where it is not known whether that happened, the same
// bytes are put for the same version again, which changes the value once,
// however often it is done: once more, as one member of many may hang, and with
// something in hand that was paid for until the bound for that has passed.
func (t *remoteChange) end(err error) error {
	if err != nil || !t.dirty {
		return err
	}
	b, err := t.next()
	if err != nil {
		return err
	}
	bound := t.readBound() / 10 // a store that is well answers in milliseconds
	for again := false; ; again, bound = true, t.readBound() {
		err := t.put(b, bound)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrMoved) && again:
			return t.moved(b)
		case errors.Is(err, ErrMoved):
			return errAgain
		case !errors.Is(err, ErrShared):
			return t.failure(err)
		case !t.patient && again:
			return t.unknown(err)
		}
		if failed := t.pause(err); failed != nil {
			return t.unknown(failed)
		}
	}
}

func (t *remoteChange) put(b []byte, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(t.ctx, bound)
	defer cancel()
	return t.in.Put(ctx, t.target, t.base.version, b, t.under)
}

// moved tells how an attempt ended of which nothing was heard, now that the
// value has another version.
func (t *remoteChange) moved(b []byte) error {
	ctx, cancel := context.WithTimeout(t.ctx, t.readBound())
	defer cancel()
	now, err := t.in.Get(ctx, t.target)
	switch {
	case err == nil && bytes.Equal(now.Bytes, b):
		return nil
	case t.under != nil:
		return errAgain // whoever commits knows by the token what became of it
	case err == nil:
		return t.unknown(ErrMoved)
	default:
		return t.unknown(err)
	}
}

func (t *remoteChange) unknown(err error) error {
	return failing(ErrNotWritable, []error{err}, "it is not known whether the change of %s was saved: %v", t.target, err)
}

// next is the value as it is to be; no bytes if nothing is left of it.
func (t *remoteChange) next() ([]byte, error) {
	if _, ok := t.now.snap.doc.get(t.target); !ok && t.now.snap.session == nil {
		return nil, nil
	}
	form := t.now.snap.form
	if form == nil {
		form = t.fresh
	}
	if form == nil {
		return nil, needing(&keyNeeded{path: t.in.Name(t.target), make: true, keys: t.keys})
	}
	plain, err := t.now.encode(t.target)
	if err != nil {
		return nil, err
	}
	return form.seal(sharedRole(t.target), plain, maxSession)
}
