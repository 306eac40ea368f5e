package doctorcmd

import (
	"slices"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// brokerSight is what was seen of the lease broker. The zero value is that of
// a system on which there is none.
type brokerSight struct {
	here bool // this system has one

	socket    string // where it listens, or would
	socketErr error  // no socket can be there
	named     bool   // the environment names the socket
	runtime   string // XDG_RUNTIME_DIR
	fallback  bool   // the socket is in the state directory for want of another place

	dirs    []brokerDir
	file    brokerFile // that stands at the socket's path
	state   brokerFile
	audit   brokerFile
	locks   []brokerLock
	running *brokerRunning
	runErr  error // nobody answers; nil where nobody was asked
	absent  bool  // runErr says that nobody listens

	proc   procSight
	kernel kernelSight
}

// brokerDir is a directory that the broker has to trust.
type brokerDir struct {
	path, what string
	exists     bool
	err        error  // why it does not
	mend       string // how to do without it
}

// brokerFile is what stands at a path; without a path it was not looked at.
type brokerFile struct {
	path   string
	exists bool
	facts  durable.Facts
	err    error
}

// brokerLock is one of the two locks that make a broker the only one.
type brokerLock struct {
	what string // it makes its holder the only one for
	path string
	held bool
	by   lockfile.Process
	err  error // it cannot be used
}

// brokerRunning is what a broker said of itself.
type brokerRunning struct {
	pid       int
	since     time.Time
	stateDir  string
	elsewhere bool // that is not the state directory of this user's environment
	sessions  []statusSession
	pending   int
	spent     uint64
	inDoubt   bool
	refusal   *statusRefusal
}

type procSight struct {
	err   error
	hides string // the value of hidepid that keeps entries from us, or ""
}

type kernelSight struct {
	release    string
	pidfds     bool // pidfd_open(2)
	peerPidfds bool // SO_PEERPIDFD
}

// used reports whether this user has had to do with a broker. Who has not is
// told of what would be in its way, and not warned.
func (b *brokerSight) used() bool {
	return b.named || b.running != nil || b.file.exists || b.state.exists
}

// untrusted reports whether a directory keeps everybody from asking.
func (b *brokerSight) untrusted() bool {
	return slices.ContainsFunc(b.dirs, func(d brokerDir) bool { return d.err != nil })
}

// lockHolder is a process with the locks that it has, in words.
type lockHolder struct {
	by    lockfile.Process
	locks string
}

// holders are the processes that have locks.
func (b *brokerSight) holders() []lockHolder {
	var all []lockHolder
	for _, l := range b.locks {
		if !l.held {
			continue
		}
		i := slices.IndexFunc(all, func(h lockHolder) bool { return h.by == l.by })
		if i < 0 {
			all = append(all, lockHolder{l.by, "the broker's lock of the " + l.what})
		} else {
			all[i].locks += " and that of the " + l.what
		}
	}
	return all
}

// stopped returns the stopped process that has a lock, if one has.
func (b *brokerSight) stopped() (by lockfile.Process, ok bool) {
	for _, h := range b.holders() {
		if h.by.Stopped {
			return h.by, true
		}
	}
	return lockfile.Process{}, false
}
