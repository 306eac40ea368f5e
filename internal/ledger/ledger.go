//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/wire"
)

// The names of the ledger's files in the state directory.
const (
	StateFile = "broker-state.json"
	LockFile  = StateFile + ".lock" // never deleted
)

var (
	// ErrHeld says that another process has the ledger open.
	ErrHeld = errors.New("another broker holds the state")
	// ErrUnsafe says that the state file, its lock or the directory could be,
	// or have been, changed by others, or is something else than a regular
	// file, or may not be read by us. Nothing in it was believed, and it was
	// left as it is.
	ErrUnsafe = errors.New("state file unsafe")
	// ErrDamaged says that the state file breaks its schema or an invariant, or
	// is larger than may be. Nothing in it was believed, and it was left as it
	// is.
	ErrDamaged = errors.New("state file damaged")
	// ErrNotCommitted says that what Open changed in the state could not be
	// made durable.
	ErrNotCommitted = errors.New("state not committed at start")
)

// Anchor is the process that a session belongs to.
type Anchor struct {
	PID       int
	StartTime uint64 // in clock ticks since boot, see proc_pid_stat(5)
}

// Session is an anchor that registered, and the latest incarnation it told of.
type Session struct {
	ID         secret.Secret
	Anchor     Anchor
	UID, GID   uint32
	Generation uint64
}

// Binding is what a token was minted for.
type Binding struct {
	CompactionEpoch uint64
	RequestEpoch    uint64
	HSource         string
	HPayload        string
	SchemaVersion   uint64
}

// Config says how a ledger is kept. Only BootID has no default.
type Config struct {
	// BootID is the kernel's name for this boot, as in
	// /proc/sys/kernel/random/boot_id: a UUID in lower case. Sessions of
	// another boot are dropped.
	BootID string

	// Alive reports whether the very process that a session was made for
	// still runs. It is asked by Open, when an anchor registers whose number
	// and start time a session already has, and before a request is refused
	// for want of room; also about sessions that are just being made. The
	// ledger's own goroutine asks: Alive must not wait for it. With nil all
	// are taken to be alive.
	Alive func(Session) bool

	// NewID makes session ids and tokens, valid by [wire.ValidID]. Default:
	// [wire.NewID].
	NewID func() secret.Secret

	MaxSessions int // 1,024 if 0
	MaxTokens   int // pending in all; 256 if 0
	MaxBytes    int // of the file; 4 MiB if 0
}

func (c Config) withDefaults() Config {
	if c.Alive == nil {
		c.Alive = func(Session) bool { return true }
	}
	if c.NewID == nil {
		c.NewID = wire.NewID
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 1024
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = 256
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 4 << 20
	}
	return c
}

func (c Config) limits() limits { return limits{c.MaxSessions, c.MaxTokens, c.MaxBytes} }

// Ledger is the open state. It is safe for concurrent use.
type Ledger struct {
	dir  *durable.Dir
	cfg  Config
	lock *durable.Kept

	committed atomic.Pointer[state]
	wake      chan struct{} // one slot: there is something to do
	ended     chan struct{} // closed when the committer has returned
	writer    writer        // of the committer alone

	mu      sync.Mutex
	queue   []*request
	closing bool
	stats   Stats
}

// Open takes the ledger's kernel lock, loads the state in dir and starts to
// serve it. Whoever opens must close; dir must stay open until then, and is not
// closed.
//
// It fails with [ErrHeld] if another process has the ledger, [ErrUnsafe] or
// [ErrDamaged] if there is any doubt about the file, which is then left as it
// is, and [ErrNotCommitted] if its own changes could not be made durable: the
// first, empty file, the sessions of another boot dropped, and those whose
// anchors have exited. Temporary files that a crash left are removed unread.
func Open(dir *durable.Dir, cfg Config) (*Ledger, error) {
	cfg = cfg.withDefaults()
	if !canonicalUUID(cfg.BootID) {
		return nil, errors.New("opening the ledger: the boot id is not a UUID in lower case")
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	l := &Ledger{
		dir: dir, cfg: cfg, lock: lock,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), writer: writer{dir: dir},
	}
	if err := l.load(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	go l.serve()
	return l, nil
}

// takeLock gets the kernel lock that says whose the state is.
func takeLock(dir *durable.Dir) (*durable.Kept, error) {
	// The file is never deleted by us. Where somebody else did so between our
	// opening and our locking it, the lock on the old one excludes nobody.
	const tries = 3
	for range tries {
		k, err := dir.OpenKept(LockFile)
		if err != nil {
			return nil, unsafe(err)
		}
		got, err := k.TryLock()
		if err == nil && got && k.Current() {
			return k, nil
		}
		k.Close()
		switch {
		case errors.Is(err, durable.ErrNoKernelLocks):
			return nil, fmt.Errorf("%w: the state directory cannot be locked: %w", ErrUnsafe, err)
		case err != nil:
			return nil, err
		case !got:
			return nil, fmt.Errorf("%s: %w", dir.Join(LockFile), ErrHeld)
		}
	}
	return nil, fmt.Errorf("%w: %s is deleted again and again", ErrUnsafe, dir.Join(LockFile))
}

// load reads the state and commits what has to change in it before anybody is
// served.
func (l *Ledger) load() error {
	found, err := readState(l.dir, l.cfg.limits())
	if err != nil {
		return err
	}
	if err := l.dir.RemoveOldTemps(StateFile, sweepAt, sweepAge); err != nil {
		return fmt.Errorf("%w: %w", ErrNotCommitted, err)
	}
	s := found
	if s == nil || s.bootID != l.cfg.BootID {
		s = &state{bootID: l.cfg.BootID}
	}
	s, _ = s.without(l.gone(s.sessions))
	if s != found {
		if err := l.writer.replace(s); err != nil {
			return fmt.Errorf("%w: %w", ErrNotCommitted, err)
		}
	}
	l.committed.Store(s)
	return nil
}

// gone returns those of the sessions whose anchors have exited.
func (l *Ledger) gone(of []*session) []digest {
	var keys []digest
	for _, x := range of {
		if !l.cfg.Alive(x.Session) {
			keys = append(keys, x.key)
		}
	}
	return keys
}

// Session returns the committed session with this id.
func (l *Ledger) Session(id secret.Secret) (Session, bool) {
	s := l.committed.Load()
	if i, ok := s.find(digestOf(id)); ok {
		return s.sessions[i].Session, true
	}
	return Session{}, false
}

// SessionOf returns the committed session of an anchor.
func (l *Ledger) SessionOf(a Anchor) (Session, bool) {
	s := l.committed.Load()
	if i := s.anchored(a); i >= 0 {
		return s.sessions[i].Session, true
	}
	return Session{}, false
}

// Sessions returns all committed sessions, in no particular order.
func (l *Ledger) Sessions() []Session {
	s := l.committed.Load()
	all := make([]Session, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x.Session)
	}
	return all
}

// PendingOf counts the committed tokens of a session that wait to be spent.
func (l *Ledger) PendingOf(id secret.Secret) int {
	key, n := digestOf(id), 0
	for _, t := range l.committed.Load().tokens {
		if t.owner.key == key {
			n++
		}
	}
	return n
}

// Close refuses from now on with [ErrClosed], also what waits and was not
// admitted; it finishes the commit that runs, whose requests get their answers,
// and gives the kernel lock up. The error is [ErrUnavailable] if the file may
// hold requests that were answered with that: the next Open takes them for
// committed. Closing twice is safe, and says the same.
func (l *Ledger) Close() error {
	l.mu.Lock()
	first := !l.closing
	l.closing = true
	waiting := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, r := range waiting {
		r.answer(result{err: ErrClosed})
	}
	l.rouse()
	<-l.ended
	if first {
		l.lock.Close()
	}
	if l.writer.doubt {
		return fmt.Errorf("closing the ledger: %w: %w", ErrUnavailable, l.Stats().LastError)
	}
	return nil
}
