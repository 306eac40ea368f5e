package credstore

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// medium is where the records and sessions of targets are kept, and how
// changes of them are kept apart: this machine's files, or a store that
// several machines share. What a token may be spent for, and when, is decided
// above it, and is the same for both.
type medium interface {
	// read returns the target's record, among others that may be there too. It
	// takes no lock. With bytes nothing is taken from memory on the word of
	// what a file looks like.
	read(target string, bytes bool) (*snapshot, error)
	// session returns the target's session as it is stored, nil if there is
	// none. beside is what read returned for the record.
	session(target string, beside *snapshot, bytes bool) (*session, error)
	// known reports whether somebody has signed in to the target before.
	known(target string) bool
	// scope is what a refresh of the target has to lock; an error if that
	// cannot be had here.
	scope(target string, set Settings, sealed bool) (Scope, error)
	// open returns what a change is made with. It has to be closed.
	open(staleAfter time.Duration) (access, error)
}

// access is what one change or one refresh needs of its medium.
type access interface {
	// lockTarget takes the target's lock. It ends with [lockfile.ErrStopped]
	// when until, which may be nil, returns true.
	lockTarget(ctx context.Context, target string, until func() bool) (mutex, error)
	// prepare makes everything ready that a change needs and a waiter does not.
	prepare() error
	// reserve proves that there is room for what comes back.
	reserve(target string, f *form) (room, error)
	// begin starts a change of one target, under its lock where that is held.
	begin(ctx context.Context, target string, under mutex, req lockfile.Request, warn func(string, ...any)) (transaction, error)
	// forNew decides the form of what does not exist yet.
	forNew() error
	// getKey gets keys for who changes something, between two transactions.
	getKey(ctx context.Context) func(*keyNeeded) error
	appendAudit(line []byte) error
	close()
}

// mutex is a target's lock, held.
type mutex interface {
	Nonce() string
	// Guarded reports whether nobody can take the lock from a living holder.
	Guarded() bool
	// Check is [lockfile.ErrLost] if the lock is ours no more.
	Check() error
	// Step shows those who wait that its holder goes on.
	Step() error
	// Mark is what a holder, this one or one before it, said last of the
	// refresh token.
	Mark() lockfile.Mark
	// SetMark says it so that it survives this process, or fails.
	SetMark(lockfile.Mark) error
	// Ring wakes those who wait.
	Ring()
	Release() error
}

// transaction is one change of a target. Whoever reads without a lock sees
// the record it leaves no later than the session, and nothing of it comes
// back once another one has begun.
type transaction interface {
	read() (*snapshot, error)
	readSession(target string) (*session, error)
	// replaceStore and replaceSession read, let change build the next version,
	// and put that in place; change returns nil to leave everything as it is.
	// They may call it again when what it saw has moved. room may be nil.
	replaceStore(ctx context.Context, in room, change func(*snapshot) *document) error
	replaceSession(ctx context.Context, in room, target string, change func(*session) *session) error
	removeSession(target string) error
	// introduce makes the target one that is [medium.known].
	introduce(target string) error
	// writable shows that a login could be saved.
	writable(target string) error
	// sync makes what was read survive a loss of power.
	sync() error
	// tidy removes what the dead left, with audit also from the audit log.
	tidy(audit bool)
	// check is [lockfile.ErrLost] if another program broke the lock.
	check() error
	// ring wakes those who wait for the lock.
	ring()
	// end ends it, and is err or what kept its changes from being made. With
	// [errAgain] nothing was changed and it can be made anew.
	end(err error) error
}

// room is where the next versions will be written.
type room interface {
	// spoilt gives up the part of the record after an attempt that failed.
	spoilt()
	discard()
}

func discard(r room) {
	if r != nil {
		r.discard()
	}
}

// errAgain: what was read has moved before it could be replaced.
var errAgain = errors.New("the record has moved")

// transactRounds bounds how often a change is made anew.
const transactRounds = 10

// transact runs f in a transaction, and again in a new one while the ground
// moves below it.
func transact(begin func() (transaction, error), f func(transaction) error) error {
	for range transactRounds {
		tx, err := begin()
		if err != nil {
			return err
		}
		if err = tx.end(f(tx)); !errors.Is(err, errAgain) {
			return err
		}
	}
	return failing(ErrTemporary, nil, "the record changes faster than it can be replaced: try again")
}

// medium returns where the target is kept.
func (s *Store) medium(target string) medium {
	if s.isShared(target) {
		return s.shared
	}
	return disk{s}
}

// isShared reports whether several machines share the target.
func (s *Store) isShared(target string) bool {
	return s.shared != nil && slices.Contains(s.cfg.Shared.Names, target)
}

// disk is this machine's files.
type disk struct{ *Store }

func (d disk) read(_ string, bytes bool) (*snapshot, error) {
	if bytes {
		return d.readNow()
	}
	return d.Store.read()
}

func (d disk) session(target string, _ *snapshot, bytes bool) (*session, error) {
	return d.readSession(target, !bytes)
}

func (d disk) open(staleAfter time.Duration) (access, error) {
	f, err := d.openFiles(staleAfter)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d disk) known(target string) bool {
	at, err := d.locate()
	if err != nil {
		return false
	}
	_, err = durable.StatPath(filepath.Join(at.path, locksDir, guardName(target)))
	return err == nil
}

func (d disk) scope(target string, set Settings, sealed bool) (Scope, error) {
	scope := set.scope()
	if scope == ScopeStore && sealed {
		return "", failing(ErrConfig, nil, "the store is sealed, and %s shares it with a program that cannot open it (%s), so nothing was sent: run 'spendonce store decrypt', "+
			"or set lock_scope = \"target\" if no other program reads the file", target, set.sharing())
	}
	if d.linked() {
		scope = ScopeStore // whoever else links to that file does not share our target locks
	}
	return scope, nil
}
