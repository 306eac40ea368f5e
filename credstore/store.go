package credstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

const (
	storeName     = "remote-credentials.json"
	sessionsDir   = "sessions"
	locksDir      = "locks"
	maxStore      = 64 << 20
	maxSession    = 1 << 20
	defaultMargin = 16 << 10 // reserved beyond the old size before a token is spent
	sessionMargin = 4 << 10  // no token is in there
)

// Config says where the store is and how its owner is talked to. The zero
// value is the user's own store.
type Config struct {
	// Dir is the state directory. Empty: $SPENDONCE_STATE_DIR, else
	// $XDG_STATE_HOME/spendonce, else ~/.local/state/spendonce. It is made
	// with mode 0700 when something is first written.
	Dir string
	// StaleAfter is the lock's one constant; the bound of all network calls
	// of one exchange is half of it. Zero means [lockfile.DefaultStaleAfter].
	StaleAfter time.Duration
	// Margin is the room, in bytes, that must be free beyond the size of the
	// old file before a token is sent. Zero means 16 KiB.
	Margin int64
	// MaxForced is how many sends within ForcedWindow a rejected token may
	// force. Zero means 5 within 60 s.
	MaxForced    int
	ForcedWindow time.Duration
	// Warn, when set, is told what the user should know though the call
	// succeeds. Texts hold no secret.
	Warn func(text string)
	// Stage, when set, is told what is being waited for, and "" when the wait
	// is over.
	Stage func(text string)
	// Hold: see [lockfile.Config].
	Hold func() (release func())
	// OtherNames, when set, returns target names that are defined outside
	// the store, to find two that share one override variable.
	OtherNames func() []string
	// Disk is where faults are injected by tests.
	Disk durable.Disk
}

// Store is the shared store of one user. It is safe for concurrent use, holds
// no file open between calls and takes no lock to read.
type Store struct {
	cfg  Config
	path string // of the store file, as configured

	probe func() *durable.Probe // of the path

	cache    atomic.Pointer[snapshot]
	sessions sync.Map                  // target -> *cachedSession
	warned   sync.Map                  // what was warned of -> struct{}
	swept    atomic.Pointer[time.Time] // when old temporary files were last looked for

	mu       sync.Mutex
	flights  map[string]*flight
	spending int    // exchanges that must end before this process does
	deferred func() // what Interrupt was asked for meanwhile
	closed   bool
	flying   int // flights and what they do after their result
	running  sync.WaitGroup

	closing context.Context //nolint:containedctx // ends the waits of all flights
	close   context.CancelFunc
}

// Open returns the store. Nothing is read or made yet: a missing store is an
// empty one.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		dir, err := DefaultDir()
		if err != nil {
			return nil, err
		}
		cfg.Dir = dir
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, failing(ErrConfig, []error{err}, "cannot find the state directory %q: %v", cfg.Dir, err)
	}
	cfg.Dir = dir
	if cfg.StaleAfter <= 0 {
		cfg.StaleAfter = lockfile.DefaultStaleAfter
	}
	if cfg.Margin <= 0 {
		cfg.Margin = defaultMargin
	}
	if cfg.MaxForced <= 0 {
		cfg.MaxForced = 5
	}
	if cfg.ForcedWindow <= 0 {
		cfg.ForcedWindow = time.Minute
	}
	s := &Store{cfg: cfg, path: filepath.Join(dir, storeName), flights: map[string]*flight{}}
	s.probe = sync.OnceValue(func() *durable.Probe { return durable.NewProbe(s.path) })
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// DefaultDir returns the state directory that the environment names.
func DefaultDir() (string, error) {
	if dir := os.Getenv("SPENDONCE_STATE_DIR"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "spendonce"), nil
	}
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", failing(ErrConfig, nil, "HOME is not set, so there is no place for the store: set HOME or SPENDONCE_STATE_DIR")
	}
	return filepath.Join(home, ".local", "state", "spendonce"), nil
}

// Path returns the path of the store file.
func (s *Store) Path() string { return s.path }

// Close ends all waits for locks, and returns when every exchange that was
// begun has been committed, or when ctx ends. A closed store starts no further
// exchange.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	idle := s.flying == 0
	s.mu.Unlock()
	if idle {
		return nil
	}
	s.close()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Interrupt calls cancel and returns true, unless an exchange is under way
// that must not be cut short: then it returns false, and cancel is called when
// that has ended and its result been handed out. No exchange begins between
// the question and the call.
func (s *Store) Interrupt(cancel func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spending > 0 {
		s.deferred = cancel
		return false
	}
	cancel()
	return true
}

// beginSpending makes the caller's exchange one that [Store.Interrupt] does
// not end; it fails if ctx has ended before.
func (s *Store) beginSpending(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed {
		return failing(ErrTemporary, nil, "the store is being closed, nothing was sent")
	}
	s.spending++
	return nil
}

func (s *Store) endSpending() {
	s.mu.Lock()
	s.spending--
	deferred := s.deferred
	if s.spending > 0 {
		deferred = nil
	}
	s.mu.Unlock()
	if deferred != nil {
		deferred()
	}
}

func (s *Store) warn(format string, args ...any) {
	// Once for each thing, whatever times its words name.
	key := format
	if len(args) > 0 {
		key += fmt.Sprint(args[0])
	}
	if _, again := s.warned.LoadOrStore(key, struct{}{}); !again && s.cfg.Warn != nil {
		s.cfg.Warn(fmt.Sprintf(format, args...))
	}
}

// stage says what is waited for until the function it returns is called.
func (s *Store) stage(format string, args ...any) func() {
	if s.cfg.Stage == nil {
		return func() {}
	}
	s.cfg.Stage(fmt.Sprintf(format, args...))
	return func() { s.cfg.Stage("") }
}

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
	doc     *document
	records map[string]Record
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
	doc, err := parseDocument(f.Bytes)
	if err != nil {
		return nil, damagedFile(dir.Join(base), err)
	}
	if f.Mode&0o077 != 0 {
		s.warn("%s had mode %04o, so others may have read it; the next write makes it 0600", dir.Join(base), f.Mode)
	}
	v := &snapshot{id: f.ID, exists: true, mode: f.Mode, size: int64(len(f.Bytes)), doc: doc, records: make(map[string]Record, len(doc.members))}
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
}

func (s *Store) sessionPath(target string) string {
	return filepath.Join(s.cfg.Dir, sessionsDir, target+".json")
}

// readSession returns the target's session file, nil if there is none. With
// cached, a reading of the same file is not repeated.
func (s *Store) readSession(target string, cached bool) (*session, error) {
	path := s.sessionPath(target)
	id, err := durable.StatPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no session file is a state of its own
	}
	if cached {
		if got, ok := s.sessions.Load(target); ok && err == nil {
			if c, ok := got.(*cachedSession); ok && c.id == id {
				return c.session, nil
			}
		}
	}
	dir, err := s.cfg.Disk.OpenDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, s.fileError(err)
	}
	defer dir.Close()
	f, err := dir.Read(filepath.Base(path), maxSession)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, s.fileError(err)
	}
	parsed, err := parseSession(f.Bytes, target)
	if err != nil {
		return nil, failing(ErrDamaged, []error{err}, "%s is damaged %v; it was left untouched and nothing was sent: move it aside (mv %s %s.damaged) and sign in again", path, err, path, path)
	}
	if f.Mode&0o077 != 0 {
		s.warn("%s had mode %04o, so others may have read it; the next write makes it 0600", path, f.Mode)
	}
	if time.Since(time.Unix(0, f.ID.MtimeNsec)) > granularity {
		s.sessions.Store(target, &cachedSession{f.ID, parsed})
	}
	return parsed, nil
}
