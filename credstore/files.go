package credstore

import (
	"context"
	"errors"
	"io/fs"
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

func (f *files) lockTarget(ctx context.Context, target string, until func() bool) (*lockfile.Lock, error) {
	return lockfile.Acquire(ctx, f.lockConfig(), lockfile.Request{Dir: f.locks, Name: target + ".lock", Until: until, Bell: true})
}

// release gives a lock up. That its file could not be removed is no error of
// the call: the next process finds a marked file whose maker has let go.
func release(lock *lockfile.Lock, warn func(format string, args ...any)) {
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

// replaceStore re-reads the store, lets change build the next version and
// puts it in place, under the store lock. change returns nil to leave
// everything as it is. Right before the rename the lock file must still be
// ours and the store still the one that was read; else it starts again,
// guard kept. temp may be nil.
func (f *files) replaceStore(ctx context.Context, lock *lockfile.Lock, temp *durable.Temp, change func(*snapshot) *document) error {
	for range 3 {
		v, err := f.read()
		if err != nil {
			return err
		}
		doc := change(v)
		if doc == nil {
			return nil
		}
		b, err := doc.encode()
		if err == nil {
			b, err = f.form.seal(storeRole, b, maxStore)
		}
		if err != nil {
			return err
		}
		if !temp.Intact() {
			if temp, err = f.dir.Prepare(f.at.base, 0); err != nil {
				return err
			}
			defer temp.Discard()
		}
		if err := temp.Fill(b); err != nil {
			return err
		}
		again, err := f.moved(ctx, lock, v)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		f.store.cache.Store(nil)
		return temp.Publish()
	}
	return failing(ErrLocked, nil, "the store lock beside %s is broken by another program again and again", f.dir.Join(f.at.base))
}

// lost reports whether somebody broke the lock; it is then made anew, and what
// was read under the old one must be read again.
func lost(ctx context.Context, lock *lockfile.Lock) (bool, error) {
	err := lock.Check()
	if errors.Is(err, lockfile.ErrLost) {
		return true, lock.Again(ctx)
	}
	return false, err
}

// moved says whether the ground has moved since the store was read.
func (f *files) moved(ctx context.Context, lock *lockfile.Lock, v *snapshot) (again bool, err error) {
	if again, err := lost(ctx, lock); again || err != nil {
		return again, err
	}
	id, err := f.dir.Stat(f.at.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return v.exists, nil
	case err != nil:
		return false, err
	}
	return !v.exists || id != v.id, nil
}

// replaceSession re-reads the target's session file and replaces it, under
// the store lock. change returns nil to leave it as it is. temp may be nil.
func (f *files) replaceSession(ctx context.Context, lock *lockfile.Lock, temp *durable.Temp, target string, change func(*session) *session) error {
	for range 3 {
		old, err := f.store.readSession(target, false)
		if err != nil {
			return err
		}
		next := change(old)
		if next == nil {
			return nil
		}
		named := *next
		named.Target = target
		b, err := named.encode()
		if err == nil {
			b, err = f.form.seal(sessionRole(target), b, maxSession)
		}
		if err == nil {
			err = f.share()
		}
		if err != nil {
			return err
		}
		if !temp.Intact() {
			if temp, err = f.sessions.Prepare(target+".json", 0); err != nil {
				return err
			}
			defer temp.Discard()
		}
		if err := temp.Fill(b); err != nil {
			return err
		}
		again, err := lost(ctx, lock)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		f.store.sessions.Delete(target)
		return temp.Publish()
	}
	return failing(ErrLocked, nil, "the store lock beside %s is broken by another program again and again", f.dir.Join(f.at.base))
}
