package lockfile

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// wait is one process's patience. All its times are of our own watching: a
// gap between two looks (this process was stopped, the machine slept) counts
// only up to half the watching time, so that after a wake-up the holder gets
// the first chance.
type wait struct {
	cfg  Config
	req  Request
	last time.Time
	all  time.Duration // watched since the start

	what    any           // what was seen last, comparable
	stood   time.Duration // how long it has stood unchanged
	old     bool          // the marked lock file was stale on arrival
	since   time.Time     // mtime of the lock file seen last
	arrived bool
	stepped time.Duration // all, at the last due
}

func newWait(cfg Config, req Request) *wait {
	return &wait{cfg: cfg, req: req, last: time.Now()}
}

// see counts the time since the last look and resets the count when
// something else stands there.
func (w *wait) see(what any) {
	now := time.Now()
	gap := min(now.Sub(w.last), max(w.cfg.watch()/2, 10*time.Millisecond))
	w.last = now
	w.all += gap
	if what != w.what {
		w.what, w.stood = what, 0
		return
	}
	w.stood += gap
}

// lockFile is what can be told of a lock file from outside.
type lockFile struct {
	id      durable.ID
	content string
}

// behindGuard waits one poll behind a guard that another process holds.
func (w *wait) behindGuard(ctx context.Context, r record, guard *durable.Kept) error {
	var there lockFile
	f, err := w.req.Dir.Read(w.req.Name, maxLockFile)
	switch {
	case err == nil:
		there = lockFile{f.ID, string(f.Bytes)}
		w.since = time.Unix(0, f.ID.MtimeNsec)
	case errors.Is(err, durable.ErrNotRegular):
		return notObtainedIfNotRegular(err)
	default:
		w.since = time.Time{}
	}
	if !w.arrived {
		w.arrived = true
		w.old = err == nil && isMarked(f.Bytes) && time.Since(w.since) > w.cfg.staleAfter()
	}
	type seen struct {
		nonce string
		step  uint32
		file  lockFile
	}
	before := w.what
	w.see(seen{r.nonce, r.step, there})
	if before != nil && before != w.what {
		w.old = false
	}
	stuck := w.stood >= w.cfg.staleAfter() || w.old && w.stood >= w.cfg.watch()
	if w.req.Patient {
		stuck = false
	}
	if stuck || w.all >= w.cfg.backstop() {
		e := &HeldError{Path: w.req.Dir.Join(w.req.Name), Since: w.since, Watched: w.stood, Guarded: true}
		e.PID, e.Stopped = guardHolder(guard)
		return e
	}
	return w.poll(ctx)
}

// breakable looks at the lock file and reports whether nothing stands there
// any more: because nothing did, or because what did was broken by the rules.
func (w *wait) breakable(dir *durable.Dir, guarded bool) (gone bool, err error) {
	f, err := dir.Read(w.req.Name, maxLockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if errors.Is(err, durable.ErrTooLarge) {
		// Nobody's lock file; judged by age like any unmarked one.
		f.ID, err = dir.Stat(w.req.Name)
	}
	if err != nil {
		return false, err
	}
	w.since = time.Unix(0, f.ID.MtimeNsec)
	w.see(lockFile{f.ID, string(f.Bytes)})
	age := time.Since(w.since)
	switch {
	case guarded && isMarked(f.Bytes):
		// Its maker had the guard that we have now.
	case age < 0 && w.stood >= w.cfg.staleAfter():
		// The clock was set back: the age is unknown, so it starts with us.
	case age > w.cfg.staleAfter() && w.stood >= w.cfg.watch():
	default:
		return false, nil
	}
	// The look and the unlink are two steps; a second look makes the window
	// between them as small as the older rules allow.
	if id, err := dir.Stat(w.req.Name); err != nil || id != f.ID {
		return errors.Is(err, fs.ErrNotExist), nil
	}
	if err := dir.Remove(w.req.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	w.what = nil
	return true, nil
}

// due reports, once in a watching time, that it is time to show life.
func (w *wait) due() bool {
	if w.all-w.stepped < w.cfg.watch() {
		return false
	}
	w.stepped = w.all
	return true
}

// behindFile waits one poll behind a lock file that may not be broken yet.
func (w *wait) behindFile(ctx context.Context) error {
	if w.all >= w.cfg.backstop() {
		return &HeldError{Path: w.req.Dir.Join(w.req.Name), Since: w.since, Watched: w.stood}
	}
	return w.poll(ctx)
}

func (w *wait) poll(ctx context.Context) error {
	if w.req.Until != nil && w.req.Until() {
		return ErrStopped
	}
	t := time.NewTimer(w.pause())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// pause is an eighth of what was waited so far, 1 to 8 ms, or 1 to 2 ms for a
// brief lock that moves. The jitter keeps waiters from marching in step: with
// a fixed interval one of them can lose every race.
func (w *wait) pause() time.Duration {
	const least, most = time.Millisecond, 8 * time.Millisecond
	p := min(max(w.all/8, least), most)
	if w.req.Brief && w.stood < time.Second {
		return least + rand.N(least) //nolint:gosec // jitter, not a secret
	}
	return p*3/4 + rand.N(p/2) //nolint:gosec // jitter, not a secret
}
