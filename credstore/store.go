package credstore

import (
	"context"
	"fmt"
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
	// Keys, when set, opens sealed files and says whether new stores are
	// sealed. Without it a sealed store is [ErrKey].
	Keys Keys
	// Shared, when set, keeps some targets where several machines reach them.
	Shared *SharedTargets
	// Disk is where faults are injected by tests.
	Disk durable.Disk
}

// Store is the shared store of one user. It is safe for concurrent use, holds
// no file open between calls and takes no lock to read.
type Store struct {
	cfg  Config
	path string // of the store file, as configured

	shared *remote // nil: no target is shared

	probe func() *durable.Probe // of the path

	cache    atomic.Pointer[snapshot]
	sessions sync.Map                  // target -> *cachedSession
	warned   sync.Map                  // what was warned of -> struct{}
	swept    atomic.Pointer[time.Time] // when old temporary files were last looked for
	keys     sync.Map                  // id -> sealed.Key
	fresh    atomic.Pointer[form]      // made for a store that was missing

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
	if cfg.Shared != nil {
		s.shared = &remote{store: s, in: cfg.Shared.In, keys: cfg.Shared.Keys}
	}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// DefaultDir returns the state directory that the environment names.
func DefaultDir() (string, error) {
	dir, err := durable.StateDir()
	if err != nil {
		return "", failing(ErrConfig, nil, "%v", err)
	}
	return dir, nil
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
