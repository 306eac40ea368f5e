package credstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// place is where the store file really is: behind links, if there are any.
type place struct {
	path   string // of the directory
	base   string
	linked bool
}

// linked reports whether the store's path is a link.
func (s *Store) linked() bool {
	_, err := os.Readlink(s.path)
	return err == nil
}

// locate follows the links at the store's path by hand, because the last
// file may be missing and because what stands beside the target (temporary
// files, the lock) must be shared by everybody who gets there.
func (s *Store) locate() (place, error) {
	path := s.path
	for range 40 {
		to, err := os.Readlink(path)
		if err != nil {
			return place{filepath.Dir(path), filepath.Base(path), path != s.path}, nil //nolint:nilerr // no link, or none yet
		}
		if !filepath.IsAbs(to) {
			// The directory may itself be reached through a link: ".." in the
			// link's text means the parent of the real one.
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return place{}, failing(ErrDamaged, []error{err}, "the link at %s leads nowhere: %v", s.path, err)
			}
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return place{}, failing(ErrDamaged, nil, "the link at %s leads in a circle: remove it or let it lead to a file", s.path)
}

// snapshot is one reading of the store.
type snapshot struct {
	id      durable.ID
	exists  bool
	mode    fs.FileMode
	size    int64
	form    *form
	doc     *document
	records map[string]Record
	session *session // of the one target, where a value holds both
}

func (v *snapshot) record(target string) (Record, bool) {
	r, ok := v.records[target]
	return r, ok
}

// granularity is how close to its own reading a file's mtime may be for the
// reading to be kept: a second write in the same tick would look the same.
const granularity = 20 * time.Millisecond

// read returns the store as it is now, from memory if the file is the one
// that was read before.
func (s *Store) read() (*snapshot, error) {
	if v := s.cache.Load(); v != nil {
		if id, err := s.probe().ID(); err == nil && id == v.id {
			return v, nil
		}
	}
	v, err := s.readNow()
	if err != nil {
		return nil, err
	}
	if v.exists && time.Since(time.Unix(0, v.id.MtimeNsec)) > granularity {
		s.cache.Store(v)
	} else {
		s.cache.Store(nil)
	}
	return v, nil
}

// readNow reads the bytes, always.
func (s *Store) readNow() (*snapshot, error) {
	at, err := s.locate()
	if err != nil {
		return nil, err
	}
	dir, err := s.cfg.Disk.OpenDir(at.path)
	if errors.Is(err, fs.ErrNotExist) {
		return &snapshot{doc: &document{}}, nil
	}
	if err != nil {
		return nil, s.fileError(err)
	}
	defer dir.Close()
	return s.readIn(dir, at.base)
}

func (s *Store) readIn(dir *durable.Dir, base string) (*snapshot, error) {
	f, err := dir.Read(base, maxStore)
	if errors.Is(err, fs.ErrNotExist) {
		return &snapshot{doc: &document{}}, nil
	}
	if err != nil {
		return nil, s.fileError(err)
	}
	plain, form, err := s.unseal(dir.Join(base), storeRole, f.Bytes)
	if err != nil {
		return nil, err
	}
	doc, err := parseDocument(plain)
	if err != nil {
		return nil, damagedFile(dir.Join(base), err)
	}
	if f.Mode&0o077 != 0 {
		s.warn("%s had mode %04o, so others may have read it; the next write makes it 0600", dir.Join(base), f.Mode)
	}
	v := &snapshot{id: f.ID, exists: true, mode: f.Mode, size: int64(len(f.Bytes)), form: form, doc: doc, records: make(map[string]Record, len(doc.members))}
	for _, m := range doc.members {
		v.records[m.name] = readRecord(m.value)
	}
	return v, nil
}

func damagedFile(path string, err error) error {
	return failing(ErrDamaged, []error{err}, "%s is damaged %v; it was left untouched: look at it, or move it aside (mv %s %s.damaged) and sign in again", path, err, path, path)
}

// fileError gives an error of the disk its kind.
func (s *Store) fileError(err error) error {
	switch {
	case errors.Is(err, durable.ErrUnsafe), errors.Is(err, durable.ErrNotRegular), errors.Is(err, durable.ErrTooLarge):
		return failing(ErrUnsafe, []error{err}, "%v", err)
	default:
		return failing(ErrDamaged, []error{err}, "the store cannot be read: %v", err)
	}
}

type cachedSession struct {
	id      durable.ID
	session *session
	form    *form
}

func (s *Store) sessionsPath() string { return filepath.Join(s.cfg.Dir, sessionsDir) }

func (s *Store) sessionPath(target string) string {
	return filepath.Join(s.sessionsPath(), target+".json")
}

// readSession returns the target's session file, nil if there is none. With
// cached, a reading of the same file is not repeated.
func (s *Store) readSession(target string, cached bool) (*session, error) {
	session, _, err := s.readSessionForm(target, cached)
	return session, err
}

func (s *Store) readSessionForm(target string, cached bool) (*session, *form, error) {
	path := s.sessionPath(target)
	id, err := durable.StatPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // no session file is a state of its own
	}
	if cached {
		if got, ok := s.sessions.Load(target); ok && err == nil {
			if c, ok := got.(*cachedSession); ok && c.id == id {
				return c.session, c.form, nil
			}
		}
	}
	dir, err := s.cfg.Disk.OpenDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // as above
	}
	if err != nil {
		return nil, nil, s.fileError(err)
	}
	defer dir.Close()
	f, err := dir.Read(filepath.Base(path), maxSession)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil // as above
	}
	if err != nil {
		return nil, nil, s.fileError(err)
	}
	plain, form, err := s.unseal(path, sessionRole(target), f.Bytes)
	if err != nil {
		return nil, nil, err
	}
	parsed, err := parseSession(plain, target)
	if err != nil {
		return nil, nil, failing(ErrDamaged, []error{err}, "%s is damaged %v; it was left untouched and nothing was sent: move it aside (mv %s %s.damaged) and sign in again", path, err, path, path)
	}
	if f.Mode&0o077 != 0 {
		s.warn("%s had mode %04o, so others may have read it; the next write makes it 0600", path, f.Mode)
	}
	if time.Since(time.Unix(0, f.ID.MtimeNsec)) > granularity {
		s.sessions.Store(target, &cachedSession{f.ID, parsed, form})
	}
	return parsed, form, nil
}
