//go:build linux

package peercred

import (
	"errors"
	"fmt"

	"github.com/spendonce/spendonce/internal/procfs"
)

// Why a peer is refused.
var (
	// ErrOtherUser says that the peer's uid is not ours, or is the one that
	// stands for users who have none in our user namespace.
	ErrOtherUser = errors.New("peer of another user")
	// ErrOtherNamespace says that the peer has no pid in our pid namespace: it
	// lives outside.
	ErrOtherNamespace = errors.New("peer outside our pid namespace")
	// ErrNoCredentials says that the kernel did not tell who connected.
	ErrNoCredentials = errors.New("peer without credentials")
	// ErrNoPidfd says that no pidfd of the peer was to be had.
	ErrNoPidfd = errors.New("no pidfd of the peer")
	// ErrExited says that the process that connected is no more; a zombie is
	// none either.
	ErrExited = errors.New("peer exited")
	// ErrOtherSender says that a part of what was read was written by another
	// process than the one that connected, or by one the kernel did not name.
	ErrOtherSender = errors.New("written by another process than the one that connected")
	// ErrUnexpectedControl says that something else than bytes was sent, such
	// as descriptors. They were closed.
	ErrUnexpectedControl = errors.New("unexpected control message")
	// ErrUnreadable says that the peer lives and its entry in /proc cannot be
	// read, as under hidepid when it is not dumpable.
	ErrUnreadable = errors.New("peer cannot be looked up in /proc")
)

// How a walk ends that does not reach the anchor.
var (
	// ErrAncestryChanged says that the parents were not the same at the end of
	// the walk as at its start. To ask again is safe.
	ErrAncestryChanged = errors.New("ancestry changed during the walk")
	// ErrNotDescendant says that the anchor is not among the parents.
	ErrNotDescendant = errors.New("not a descendant of the anchor")
	// ErrAnchorExited says that the anchor is no more.
	ErrAnchorExited = errors.New("anchor exited")
)

// ErrNoProcess says that there is no such process (any more).
var ErrNoProcess = procfs.ErrNoProcess

// HopError says at which process a walk ended, and why. It wraps one of the
// errors of this package.
type HopError struct {
	PID    int
	Reason string
	Err    error
}

func (e *HopError) Error() string { return fmt.Sprintf("process %d %s: %v", e.PID, e.Reason, e.Err) }

func (e *HopError) Unwrap() error { return e.Err }
