package credstore

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// fileChange is a change of the files, under the store lock.
type fileChange struct {
	*files
	lock *lockfile.Lock
	warn func(format string, args ...any)
}

// fileRoom is where the next versions of the two files are written.
type fileRoom struct{ record, session *durable.Temp }

// tempsOf are the files of a reserved room; without one they are made when
// they are needed.
func tempsOf(in room) fileRoom {
	if r, ok := in.(*fileRoom); ok {
		return *r
	}
	return fileRoom{}
}

func (r *fileRoom) spoilt() { r.record.Discard() }

func (r *fileRoom) discard() {
	r.record.Discard()
	r.session.Discard()
}

func (f *files) prepare() error { return f.openAll() }

func (f *files) forNew() (err error) {
	f.newKind, err = f.store.newKind()
	return err
}

// reserve makes the temporary files, as large as what is there and the margin.
func (f *files) reserve(target string, form *form) (room, error) {
	size := func(dir *durable.Dir, name string, margin int64) int64 {
		margin = form.room(margin)
		id, err := dir.Stat(name)
		if err != nil {
			return margin
		}
		return id.Size + margin
	}
	r := &fileRoom{}
	var err error
	if r.record, err = f.dir.Prepare(f.at.base, size(f.dir, f.at.base, f.store.cfg.Margin)); err != nil {
		return r, err
	}
	r.session, err = f.sessions.Prepare(target+".json", size(f.sessions, target+".json", sessionMargin))
	return r, err
}

func (f *files) appendAudit(line []byte) error { return f.state.Append(auditName, line) }

// begin takes the store lock.
func (f *files) begin(ctx context.Context, _ string, under mutex, req lockfile.Request, warn func(string, ...any)) (transaction, error) {
	lock, err := f.lockStore(ctx, under != nil, req)
	if err != nil {
		return nil, err
	}
	return &fileChange{f, lock, warn}, nil
}

func (t *fileChange) end(err error) error {
	release(t.lock, t.warn)
	return err
}

func (t *fileChange) check() error { return t.lock.Check() }

func (t *fileChange) ring() { t.lock.Ring() }

func (t *fileChange) sync() error { return errors.Join(t.dir.Sync(), t.sessions.Sync()) }

func (t *fileChange) tidy(audit bool) {
	t.removeOldTemps()
	if audit {
		_ = t.state.Rotate(auditName, auditLimit) // the next one tries again
	}
}

func (t *fileChange) readSession(target string) (*session, error) {
	return t.store.readSession(target, false)
}

func (t *fileChange) removeSession(target string) error {
	t.store.sessions.Delete(target)
	switch err := t.sessions.Remove(target + ".json"); {
	case err == nil:
		return t.sessions.Sync()
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}

func (t *fileChange) writable(target string) error {
	temp, err := t.dir.Prepare(t.at.base, t.form.room(t.store.cfg.Margin))
	if err != nil {
		return err
	}
	temp.Discard()
	if temp, err = t.sessions.Prepare(target+".json", t.form.room(sessionMargin)); err != nil {
		return err
	}
	temp.Discard()
	return nil
}

// introduce makes the target's guard: a target that was ever signed in to is
// told from one that nobody knows, and a refresh on a full disk finds the one
// file it writes in place.
func (t *fileChange) introduce(target string) error {
	if _, err := t.locks.Stat(guardName(target)); err == nil {
		return nil
	}
	guard, err := t.locks.OpenKept(guardName(target))
	if err != nil {
		return err
	}
	guard.Close()
	return nil
}

func guardName(target string) string { return target + ".lock.guard" }

// replaceStore re-reads the store, lets change build the next version and
// puts it in place, under the store lock. change returns nil to leave
// everything as it is. Right before the rename the lock file must still be
// ours and the store still the one that was read; else it starts again,
// guard kept. temp may be nil.
func (t *fileChange) replaceStore(ctx context.Context, in room, change func(*snapshot) *document) error {
	f, temp := t.files, tempsOf(in).record
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
		again, err := f.moved(ctx, t.lock, v)
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
func (t *fileChange) replaceSession(ctx context.Context, in room, target string, change func(*session) *session) error {
	f, temp := t.files, tempsOf(in).session
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
		again, err := lost(ctx, t.lock)
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
