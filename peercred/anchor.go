//go:build linux

package peercred

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/procfs"
)

// Process is one process of this boot.
type Process struct {
	PID       int
	StartTime uint64 // field 22 of /proc/<pid>/stat: clock ticks since boot
}

func (p Process) String() string { return fmt.Sprintf("process %d started at %d", p.PID, p.StartTime) }

// Anchor is a process with its pidfd, which is kept until Close: as long as it
// has not exited, the pid is that process's and nobody else's. It is safe for
// concurrent use.
type Anchor struct {
	process Process
	file    *os.File
	raw     syscall.RawConn
}

// Anchor makes the peer, identified as p, an anchor. It has the pidfd that was
// taken when the peer was accepted, so that at no time in between the pid
// could have become another process's.
func (c *Conn) Anchor(p Process) (*Anchor, error) {
	if err := c.verdict(); err != nil {
		return nil, err
	}
	if !c.entry.Open() || p != (Process{c.peer.PID, c.stat.StartTime}) {
		return nil, fmt.Errorf("%s was not identified as the peer", p)
	}
	fd, err := unix.FcntlInt(uintptr(c.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keeping the pidfd of process %d: %w", p.PID, err)
	}
	return newAnchor(p, fd)
}

// OpenAnchor makes an anchor of a process that is known from earlier, as after
// a restart. The error is [ErrNoProcess] if it has exited, also if its pid is
// another process's now, and [ErrUnreadable] if one lives that /proc does not
// show. A process that died within the clock tick of its start, and whose pid
// was given to another in the same tick, cannot be told from that one.
func (pr *Prover) OpenAnchor(p Process) (*Anchor, error) {
	if p.PID <= 0 {
		return nil, ErrNoProcess
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, ErrNoProcess // the last two: a thread has the number
	}
	if err != nil {
		return nil, fmt.Errorf("opening a pidfd of process %d: %w", p.PID, err)
	}
	// The pidfd was there first: if it says afterwards that its process lives,
	// that one had the pid all the time, and /proc had to know it.
	st, err := pr.fs.Stat(p.PID)
	gone, pollErr := hasExited(fd)
	switch {
	case pollErr != nil:
		err = fmt.Errorf("asking for process %d: %w", p.PID, pollErr)
	case gone:
		err = ErrNoProcess
	case errors.Is(err, procfs.ErrNoProcess):
		err = fmt.Errorf("%w: process %d lives and is hidden", ErrUnreadable, p.PID)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrUnreadable, err)
	case st.StartTime != p.StartTime:
		err = ErrNoProcess
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return newAnchor(p, fd)
}

// newAnchor owns fd.
func newAnchor(p Process, fd int) (*Anchor, error) {
	// So that os.NewFile leaves the waiting to the runtime's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("keeping the pidfd of process %d: %w", p.PID, err)
	}
	file := os.NewFile(uintptr(fd), fmt.Sprintf("pidfd of process %d", p.PID))
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Anchor{p, file, raw}, nil
}

// Process is who it is.
func (a *Anchor) Process() Process { return a.process }

// Exited reports whether the process has ended, by one poll(2); after Close it
// has, for all that can be told.
func (a *Anchor) Exited() bool {
	gone := true
	err := onFD(a.raw, func(fd int) (err error) {
		gone, err = hasExited(fd)
		return err
	})
	return gone || err != nil
}

// Wait returns nil when the process has ended, and os.ErrClosed after Close.
// It takes no thread.
func (a *Anchor) Wait() error {
	var inner error
	err := a.raw.Read(func(fd uintptr) (done bool) {
		done, inner = hasExited(int(fd))
		return done || inner != nil
	})
	if err != nil {
		return fmt.Errorf("waiting for process %d: %w", a.process.PID, os.ErrClosed)
	}
	return inner
}

// Close gives the pidfd back and ends Wait.
func (a *Anchor) Close() error { return a.file.Close() }
