package credstore

import (
	"context"
	"errors"
	"time"

	"github.com/spendonce/spendonce/lockfile"
)

// Shared keeps values for targets where several machines reach them. It sees
// sealed bytes only. All of it is linearizable: what a call returns was so at
// some moment of the call, and what has been put is seen by every later Get.
//
// Errors of the kinds [ErrShared], [ErrConfig] and [ErrDamaged] are shown to
// the user as they are; each is one sentence and holds no secret.
type Shared interface {
	// Get returns the target's value. One that is missing has no bytes, and
	// the version 0.
	Get(ctx context.Context, target string) (SharedValue, error)
	// Put replaces the value if it still has that version, and under a lock
	// only if nobody else can have acted on the value since the lock was taken.
	// Without bytes it removes it. [ErrMoved] and [lockfile.ErrLost] say that
	// nothing was changed; after any other error it may have been.
	Put(ctx context.Context, target string, version int64, b []byte, under SharedLock) error
	// Lock takes the target's lock. While another has it, until is called
	// whenever the value may have changed, and the wait ends with
	// [lockfile.ErrStopped] when it returns true. A wait is bounded: it ends
	// with an error that is [lockfile.ErrNotObtained].
	Lock(ctx context.Context, req SharedRequest) (SharedLock, error)
	// Name says where the target's value is, for messages.
	Name(target string) string
}

// SharedValue is a value and its version, which no other one of the target
// ever has.
type SharedValue struct {
	Bytes   []byte
	Version int64
}

// SharedRequest asks for a target's lock.
type SharedRequest struct {
	Target string
	// StaleAfter is how long the lock outlives a holder that shows no sign of
	// life.
	StaleAfter time.Duration
	Until      func() bool
}

// SharedLock is a target's lock, held. It is lost when its holder was not
// heard of for StaleAfter; whoever gets it next sees the last mark.
type SharedLock interface {
	Nonce() string
	// Check is [lockfile.ErrLost] unless the lock is ours and will stay so for
	// half of StaleAfter, even if nobody hears of us from now on.
	Check() error
	// Step shows that the holder goes on.
	Step() error
	Mark() lockfile.Mark
	// SetMark makes the mark durable, if the lock is still ours.
	SetMark(m lockfile.Mark) error
	Release() error
}

// What a [Shared] says of itself.
var (
	// ErrMoved: the value has another version than was given.
	ErrMoved = errors.New("the value has moved")
	// ErrShared: the shared store cannot be reached, or does not answer in
	// time. It is also an [ErrTemporary].
	ErrShared = errors.New("shared store not reached")
)

// SharedTargets are the targets that a [Shared] keeps.
type SharedTargets struct {
	Names []string
	In    Shared
	// Keys makes and opens the keys of the values, which are always sealed.
	Keys Keys
}
