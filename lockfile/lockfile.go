// Package lockfile is a mutex between processes whose crash recovery is safe.
//
// Its rules are normative in docs/locking.md. In short: the lock is granted
// only by exclusive creation of the lock file and released only by the nonce
// that created it; beside it stands a guard, a file that is never deleted and
// is locked with flock(2) for as long as the lock is wanted and held. The
// guard makes recovery instant and serial: whoever has it and finds a lock
// file that was made under it knows, from the kernel, that its maker is dead.
//
// A program that knows only the older rules (exclusive creation, break by age
// after [Config.StaleAfter], release by nonce) can share the lock: its files
// carry no mark and are broken by age alone, after having been watched.
//
// Never delete a guard. Who finds none makes a new one, takes a marked lock
// file beside it for a dead process's and breaks it: a holder that lives keeps
// a kernel lock on a file that nobody finds any more, and learns of its loss
// only from [Lock.Check].
//
// No process id is recorded and none decides anything.
package lockfile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// DefaultStaleAfter is the one constant that every other time derives from.
const DefaultStaleAfter = 60 * time.Second

var (
	// ErrNotObtained is in the tree of every error that says that the lock
	// could not be had in bounded time, or at all. See [HeldError].
	ErrNotObtained = errors.New("lock not obtained")
	// ErrLost says that the lock file is no longer ours: somebody else broke
	// it. A guard that was held is still held.
	ErrLost = errors.New("lock file lost")
	// ErrStopped says that [Request.Until] ended the wait.
	ErrStopped = errors.New("wait ended by its own condition")
)

// Config holds what is the same for every acquisition of a program.
type Config struct {
	// StaleAfter is the age beyond which an unmarked lock file may be broken
	// and the time after which a wait behind one step of a living holder
	// ends. The zero value means [DefaultStaleAfter]. Others derive from it:
	// files are watched for StaleAfter/30 before they are broken, and no wait
	// is longer than 2 x StaleAfter.
	StaleAfter time.Duration
	// Hold, when set, is called before the guard is tried and its result when
	// that failed or the lock is released: a program defers in between what
	// must not happen to a holder, such as a stop from the terminal.
	Hold func() (release func())
}

func (c Config) staleAfter() time.Duration {
	if c.StaleAfter <= 0 {
		return DefaultStaleAfter
	}
	return c.StaleAfter
}

func (c Config) watch() time.Duration { return c.staleAfter() / 30 }

func (c Config) backstop() time.Duration { return 2 * c.staleAfter() }

// Request says which lock is wanted and how to wait for it.
type Request struct {
	Dir  *durable.Dir
	Name string // of the lock file; its guard is Name + ".guard"
	// Until, when set, is asked between two polls and ends the wait with
	// [ErrStopped] when it returns true: a waiter that only wants the
	// holder's result looks for it there.
	Until func() bool
	// Bell is for locks that are held for long: the holder hangs a bell, a
	// FIFO beside the lock file, that rings at its [Lock.Ring], its release
	// or its death, and waiters poll every 25 to 50 ms only. Where there is
	// no bell to be had, they poll as ever.
	Bell bool
	// Brief is for locks that are held for milliseconds: it polls every 1 to
	// 2 ms instead of backing off to 8.
	Brief bool
	// Patient lifts the limits behind one step of a living holder: only the
	// backstop ends the wait. It is for a caller that has something in hand
	// which is lost if it gives up.
	Patient bool
}

// Lock is a held lock. It is not safe for concurrent use.
type Lock struct {
	cfg     Config
	req     Request
	guard   *durable.Kept
	guarded bool // the guard's kernel lock is ours
	record  record
	content string // of our lock file
	bell    *durable.Bell
	release func()
}

// Acquire waits for the lock and returns it, or ends with the context's
// error, [ErrStopped], an error in whose tree [ErrNotObtained] stands, or an
// error of the disk. After any error nothing of ours is left behind.
//
// A waiter never breaks a lock file behind a guard that another process
// holds and never goes on without a guard that can be had: a stopped process
// can still send or rename when it is continued.
func Acquire(ctx context.Context, cfg Config, req Request) (*Lock, error) {
	l := &Lock{cfg: cfg, req: req}
	w := newWait(cfg, req)
	defer w.end()
	if err := l.takeGuard(ctx, w); err != nil {
		l.giveUp()
		return nil, err
	}
	if err := l.create(ctx, w); err != nil {
		_ = l.Release()
		return nil, err
	}
	return l, nil
}

// takeGuard returns nil when the guard is ours, or when the file system has
// no kernel locks and the older rules must do.
func (l *Lock) takeGuard(ctx context.Context, w *wait) error {
	name := l.req.Name + ".guard"
	for {
		if l.guard == nil {
			var err error
			if l.guard, err = l.req.Dir.OpenKept(name); err != nil {
				return notObtainedIfNotRegular(err)
			}
		}
		if l.cfg.Hold != nil && l.release == nil {
			l.release = l.cfg.Hold()
		}
		got, err := l.guard.TryLock()
		switch {
		case errors.Is(err, durable.ErrNoKernelLocks):
			return nil
		case err != nil:
			return err
		case got && !l.guard.Current():
			// Somebody removed the guard: the lock we have is on a file that
			// nobody else will find.
			l.guard.Close()
			l.guard = nil
			continue
		case got:
			l.guarded = true
			return nil
		}
		l.endHold()
		if !l.guard.Current() {
			l.guard.Close()
			l.guard = nil
			continue
		}
		if err := w.behindGuard(ctx, l.guard); err != nil {
			return err
		}
	}
}

// create makes the lock file, breaking what may be broken.
func (l *Lock) create(ctx context.Context, w *wait) error {
	nonce := rand.Text()
	content := nonce + "\n"
	if l.guarded {
		content = markedContent(nonce)
		if err := l.begin(nonce); err != nil {
			return err
		}
	}
	for {
		switch gone, err := w.breakable(l.req.Dir, l.guarded); {
		case err != nil:
			return notObtainedIfNotRegular(err)
		case gone:
			err := l.req.Dir.CreateExclusive(l.req.Name, []byte(content))
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			if err != nil {
				return err
			}
			l.content = content
			if l.req.Bell {
				l.bell, _ = l.req.Dir.HangBell(bellName(l.req.Name)) // without one waiters poll
			}
			if !l.guarded {
				// Without the guard only the lock file makes the record ours.
				return l.begin(nonce)
			}
			return nil
		}
		if l.guarded && w.due() {
			// Those behind us time our steps; waiting out somebody else's
			// file is one as long as we are awake to do it.
			if err := l.Step(); err != nil {
				return err
			}
		}
		if err := w.behindFile(ctx); err != nil {
			return err
		}
	}
}

// begin writes the first step of an acquisition into the guard's record,
// keeping the mark that the last holder left. A record that cannot be read is
// not written over: its mark may forbid a send.
func (l *Lock) begin(nonce string) error {
	last, err := readRecord(l.guard)
	if err != nil {
		return err
	}
	l.record = record{nonce: nonce, mark: last.mark}
	if err := l.guard.Write(l.record.encode()); err != nil || last != (record{}) {
		return err
	}
	// A new guard: a mark in it is worth no more than its name.
	return l.req.Dir.Sync()
}

// Nonce names this acquisition.
func (l *Lock) Nonce() string { return l.record.nonce }

// Guarded reports whether the kernel lock of the guard is held. Without it
// (a file system that has none) only the older rules protect the caller.
func (l *Lock) Guarded() bool { return l.guarded }

// Check returns nil if the lock file is still ours, else [ErrLost],
// [ErrNotObtained] if it is no regular file any more, or the error of the
// disk.
func (l *Lock) Check() error {
	if l.content == "" {
		return fmt.Errorf("%s: %w", l.req.Dir.Join(l.req.Name), ErrLost)
	}
	f, err := l.req.Dir.Read(l.req.Name, maxLockFile)
	switch {
	case err == nil && string(f.Bytes) == l.content:
		return nil
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, durable.ErrTooLarge):
		return fmt.Errorf("%s: %w", l.req.Dir.Join(l.req.Name), ErrLost)
	}
	return notObtainedIfNotRegular(err)
}

// Again makes a lost lock file anew, under the guard that was kept; only the
// context and the backstop end the wait. Errors are those of [Acquire]; the
// lock must still be released after them.
func (l *Lock) Again(ctx context.Context) error {
	l.content = ""
	l.req.Until, l.req.Patient, l.req.Bell = nil, true, false
	return l.create(ctx, newWait(l.cfg, l.req))
}

// Ring wakes those who wait with a [Request.Bell], because there is something
// to see for them; once at most.
func (l *Lock) Ring() { l.bell.Ring() }

func bellName(lock string) string { return lock + ".bell" }

// Step tells waiters that the holder is alive and has come further.
func (l *Lock) Step() error {
	l.record.step++
	return l.guard.Write(l.record.encode())
}

// Mark returns what the guard's record says of a one-time token.
func (l *Lock) Mark() Mark { return l.record.mark }

// SetMark replaces the mark and makes it durable. After an error of the disk
// the guard may say either. A fingerprint that is not 16 hex digits is
// refused, and nothing written.
func (l *Lock) SetMark(m Mark) error {
	next := record{l.record.nonce, l.record.step + 1, m.wholeSeconds()}
	if decodeRecord(next.encode()) != next {
		return fmt.Errorf("marking %s: state %q, fingerprint of %d bytes, login of %d bytes, year %d: no such mark",
			l.req.Dir.Join(l.req.Name), m.State, len(m.Fingerprint), len(m.Login), m.At.Year())
	}
	err := l.guard.Write(next.encode())
	if err == nil {
		err = l.guard.Sync()
	}
	if err != nil {
		return err
	}
	l.record = next
	return nil
}

// Release unlinks the lock file if it is still ours and only then gives the
// guard up. The lock is released whatever it returns: after an error the
// next process recovers it.
func (l *Lock) Release() error {
	var err error
	if l.content != "" {
		if err = l.Check(); err == nil {
			err = l.req.Dir.Remove(l.req.Name)
		} else if errors.Is(err, ErrLost) {
			err = nil
		}
		l.content = ""
	}
	l.giveUp()
	return err
}

func (l *Lock) giveUp() {
	l.guard.Close()
	l.guard, l.guarded = nil, false
	l.bell.Ring()
	l.endHold()
}

func (l *Lock) endHold() {
	if l.release != nil {
		l.release()
		l.release = nil
	}
}
