package credstore

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// files are the directories that a change needs, held by descriptor. They are
// made and opened when they are asked for: a process that only waits needs
// one of them.
type files struct {
	store                       *Store
	staleAfter                  time.Duration
	newKind                     string // of the key of a store that is missing; "": in plain
	form                        *form  // of the store when it was read last, in this hold
	at                          place
	state, locks, sessions, dir *durable.Dir // dir: where the store file really is
}

func (s *Store) openFiles(staleAfter time.Duration) (*files, error) {
	at, err := s.locate()
	return &files{store: s, staleAfter: staleAfter, at: at}, err
}

// openLocks opens what the target locks stand in: beside the target of a
// link, for whoever gets there by another path.
func (f *files) openLocks() (err error) {
	if f.locks == nil {
		f.locks, err = f.store.cfg.Disk.MakeDir(filepath.Join(f.at.path, locksDir))
	}
	return err
}

// openAll opens the rest. Nothing is made where a link leads.
func (f *files) openAll() (err error) {
	disk := f.store.cfg.Disk
	if f.dir == nil && f.at.linked {
		f.dir, err = disk.OpenDir(f.at.path)
	} else if f.dir == nil {
		f.dir, err = disk.MakeDir(f.at.path)
	}
	if err == nil && f.state == nil {
		if f.state = f.dir; f.at.linked {
			f.state, err = disk.MakeDir(f.store.cfg.Dir)
		}
	}
	if err == nil && f.sessions == nil {
		f.sessions, err = disk.MakeDir(filepath.Join(f.store.cfg.Dir, sessionsDir))
	}
	if err == nil {
		err = f.openLocks()
	}
	return err
}

func (f *files) close() {
	if f.state != f.dir {
		f.state.Close()
	}
	for _, d := range []*durable.Dir{f.locks, f.sessions, f.dir} {
		d.Close()
	}
}

// changeError gives an error on the way to a change its kind.
func (s *Store) changeError(err error) error {
	var held *lockfile.HeldError
	switch {
	case err == nil, kindOf(err) != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &held):
		return failing(ErrLocked, []error{err}, "%v", err)
	case errors.Is(err, lockfile.ErrNotObtained):
		return failing(ErrLocked, []error{err}, "%v: look at it and move it aside", err)
	case errors.Is(err, durable.ErrUnsafe), errors.Is(err, durable.ErrNotRegular), errors.Is(err, durable.ErrTooLarge):
		return failing(ErrUnsafe, []error{err}, "%v", err)
	default:
		return failing(ErrNotWritable, []error{err}, "the store is not writable, so nothing was changed and no refresh was attempted: %v", err)
	}
}

// kindOf reports whether err already has a sentence of its own.
func kindOf(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}

func (f *files) lockConfig() lockfile.Config {
	return lockfile.Config{StaleAfter: f.staleAfter, Hold: f.store.cfg.Hold}
}

// lockStore takes the store lock. nested says that another lock is held, so
// that the program already defers what a holder must not be disturbed by.
func (f *files) lockStore(ctx context.Context, nested bool, req lockfile.Request) (*lockfile.Lock, error) {
	cfg := f.lockConfig()
	if nested {
		cfg.Hold = nil
	}
	req.Dir, req.Name = f.dir, f.at.base+".lock"
	return lockfile.Acquire(ctx, cfg, req)
}

func (f *files) lockTarget(ctx context.Context, target string, until func() bool) (mutex, error) {
	if err := f.openLocks(); err != nil {
		return nil, err
	}
	lock, err := lockfile.Acquire(ctx, f.lockConfig(), lockfile.Request{Dir: f.locks, Name: target + ".lock", Until: until, Bell: true})
	if err != nil {
		return nil, err
	}
	return lock, nil
}

// release gives a lock up. That its file could not be removed is no error of
// the call: the next process finds a marked file whose maker has let go.
func release(lock mutex, warn func(format string, args ...any)) {
	if err := lock.Release(); err != nil {
		warn("a lock could not be removed (%v); the next process recovers it", err)
	}
}

// removeOldTemps sweeps what crashed writers left; the store lock is held.
func (f *files) removeOldTemps() {
	now, age := time.Now(), 2*f.staleAfter
	last := f.store.swept.Load()
	if last != nil && now.Sub(*last) < age/2 {
		return // what is not old yet will not be for a while
	}
	f.store.swept.Store(&now)
	// Best effort: what stays is found by the next one.
	_ = f.dir.RemoveOldTemps(f.at.base, now, age)
	_ = f.sessions.RemoveOldTemps("", now, age)
}
