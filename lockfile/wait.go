package lockfile

import (
	"context"
	"errors"
	"fmt"
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

	step    sighting      // of the guard's record, behind a guard
	file    sighting      // of the lock file
	still   time.Duration // how long nothing changed that was looked at
	old     bool          // the marked lock file was stale on arrival and nothing changed since
	since   time.Time     // mtime of the lock file seen last
	arrived bool
	stepped time.Duration // all, at the last due

	bell  *durable.Bell // nil: only polls
	tried bool          // to have one
	asked bool          // Until, since the bell is heard
}

func (w *wait) end() { w.bell.Ring() }

// sighting is what stands at one place and how long it was watched there
// unchanged.
type sighting struct {
	what  any // comparable
	stood time.Duration
}

func (s *sighting) see(what any, gap time.Duration) {
	if what != s.what {
		*s = sighting{what: what}
		return
	}
	s.stood += gap
}

func newWait(cfg Config, req Request) *wait {
	return &wait{cfg: cfg, req: req, last: time.Now()}
}

// gap returns the time since the last look, as far as it counts.
func (w *wait) gap() time.Duration {
	now := time.Now()
	gap := min(now.Sub(w.last), max(w.cfg.watch()/2, 10*time.Millisecond))
	w.last = now
	w.all += gap
	return gap
}

// lockFile is what can be told of a lock file from outside.
type lockFile struct {
	id      durable.ID
	content string
}

// behindGuard waits one poll behind a guard that another process holds.
func (w *wait) behindGuard(ctx context.Context, guard *durable.Kept) error {
	if w.req.Bell && !w.tried {
		return w.poll(ctx, true) // gets to hear the bell, and looks at nothing yet
	}
	// A record that cannot be read just now only keeps us from seeing steps.
	r, _ := readRecord(guard)
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
	type step struct {
		nonce string
		step  uint32
	}
	before, gap := *w, w.gap()
	w.step.see(step{r.nonce, r.step}, gap)
	w.file.see(there, gap)
	w.still = min(w.step.stood, w.file.stood)
	if before.step.what != nil && before.step.what != w.step.what || before.file.what != nil && before.file.what != w.file.what {
		w.old = false
	}
	stuck := w.step.stood >= w.cfg.staleAfter() || w.old && w.file.stood >= w.cfg.watch()
	if w.req.Patient {
		stuck = false
	}
	if stuck || w.all >= w.cfg.backstop() {
		e := &HeldError{Path: w.req.Dir.Join(w.req.Name), Since: w.since, Watched: w.step.stood, Guarded: true}
		e.PID, e.Stopped = guardHolder(guard)
		return e
	}
	return w.poll(ctx, true)
}

// breakable looks at the lock file and reports whether nothing stands there
// any more: because nothing did, or because what did was broken by the rules.
func (w *wait) breakable(dir *durable.Dir, guarded bool) (gone bool, err error) {
	f, err := dir.Read(w.req.Name, maxLockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if errors.Is(err, durable.ErrTooLarge) || errors.Is(err, fs.ErrPermission) {
		// Nobody's lock file, or one whose maker died before it could give it
		// the mode that the umask took; judged by age like any unmarked one.
		f.ID, err = dir.Stat(w.req.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
	}
	if err != nil {
		return false, err
	}
	w.since = time.Unix(0, f.ID.MtimeNsec)
	w.file.see(lockFile{f.ID, string(f.Bytes)}, w.gap())
	w.still = w.file.stood
	switch {
	case guarded && isMarked(f.Bytes):
		// Its maker had the guard that we have now.
	case time.Since(w.since) > w.cfg.staleAfter() && w.file.stood >= w.cfg.watch():
	case w.file.stood >= w.cfg.staleAfter():
		// A clock was set back, and what the file's time says of its age is
		// too little or lies in the future: the age we watched is the least.
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
	w.file = sighting{}
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
		return &HeldError{Path: w.req.Dir.Join(w.req.Name), Since: w.since, Watched: w.file.stood}
	}
	return w.poll(ctx, false) // another program's, which rings no bell
}

// poll waits until it is time to look again; with listen a bell may say so.
func (w *wait) poll(ctx context.Context, listen bool) error {
	listen = listen && w.req.Bell
	// Who hears a bell has asked when it woke up.
	if !(listen && w.asked) && w.req.Until != nil && w.req.Until() {
		return ErrStopped
	}
	if listen && !w.tried {
		w.tried = true
		var err error
		if w.bell, err = w.req.Dir.HearBell(bellName(w.req.Name)); err == nil {
			return nil // what happened before is rung by nobody: look again
		}
	}
	if listen && w.bell != nil {
		w.asked = true
		pause := min(25*time.Millisecond+rand.N(25*time.Millisecond), w.cfg.watch()/4) //nolint:gosec // jitter, not a secret
		if err := w.bell.Wait(ctx, pause); err != nil {
			w.bell.Ring()
			w.bell, w.asked = nil, false
		}
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if w.req.Until != nil && w.req.Until() {
			return ErrStopped // most often that is what woke us
		}
		return nil
	}
	t := time.NewTimer(w.pause())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ended(ctx)
	case <-t.C:
		return nil
	}
}

// ended is a context's error, with its cause where one was given.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}

// pause is an eighth of what was waited so far, 1 to 8 ms, or 1 to 2 ms for a
// brief lock that moves. The jitter keeps waiters from marching in step: with
// a fixed interval one of them can lose every race.
func (w *wait) pause() time.Duration {
	const least, most = time.Millisecond, 8 * time.Millisecond
	longest := min(max(w.all/8, 2*least), most)
	if w.req.Brief && w.still < time.Second {
		longest = 2 * least
	}
	shortest := max(least, longest/2)
	return shortest + rand.N(longest-shortest+1) //nolint:gosec // jitter, not a secret
}
