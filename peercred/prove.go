//go:build linux

package peercred

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/procfs"
)

// Prover looks processes up in /proc. It is safe for concurrent use.
type Prover struct {
	fs *procfs.FS
	// pause, for tests, stands between the steps of a walk.
	pause func(pass, hop int)
}

// NewProver returns a Prover that reads fs, which must stay open.
func NewProver(fs *procfs.FS) *Prover { return &Prover{fs: fs} }

// OpenProver opens /proc for a Prover of its own; see [procfs.Open] for the
// errors. Close gives it back.
func OpenProver() (*Prover, error) {
	fs, err := procfs.Open()
	if err != nil {
		return nil, err
	}
	return NewProver(fs), nil
}

// Close closes /proc.
func (pr *Prover) Close() { pr.fs.Close() }

// Identify says who the peer is: its pid, and the start time that /proc gives
// for it while its pidfd says that it lives. It includes all that
// [Conn.Verify] asks, and has its errors; further [ErrUnreadable].
func (pr *Prover) Identify(c *Conn) (Process, error) {
	if err := c.verdict(); err != nil {
		return Process{}, err
	}
	pid := c.peer.PID
	c.forget()
	st, entry, err := procTable{pr.fs}.Look(pid, true)
	c.entry, c.stat, c.used = entry, st, false
	// The pidfd knows better than /proc why there is nothing.
	gone, pollErr := hasExited(c.pidfd)
	switch {
	case pollErr != nil:
		err = pollErr
	case gone:
		err = ErrExited
	case err != nil:
		err = unreadable(0, pid, err)
	}
	if err != nil {
		c.forget()
		return Process{}, err
	}
	return Process{pid, st.StartTime}, nil
}

// Descends proves that the peer is the anchor or descends from it, by two
// passes over its parents; both must live at the end. The chain comes back
// with errors too, as far as it is known.
//
// The errors, most of them in a [HopError], are: those of [Prover.Identify],
// which concern the peer; [ErrAnchorExited]; [ErrAncestryChanged], after which
// the peer may ask again; [ErrNotDescendant].
func (pr *Prover) Descends(c *Conn, a *Anchor) (Chain, error) {
	if !c.entry.Open() || c.used {
		if _, err := pr.Identify(c); err != nil {
			return nil, err
		}
	} else if err := c.verdict(); err != nil {
		return nil, err
	}
	c.used = true
	w := walk{table: procTable{pr.fs}, anchor: a.process, pause: pr.pause}
	err := w.run(c.peer.PID, c.stat, c.entry)

	pidfds := [2]unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}, {Events: unix.POLLIN}}
	closed := onFD(a.raw, func(fd int) error {
		pidfds[1].Fd = int32(fd)
		return poll(pidfds[:])
	})
	switch {
	case exited(pidfds[0]):
		return w.chain, &HopError{c.peer.PID, "exited meanwhile", ErrExited}
	case errors.Is(err, ErrUnreadable), errors.Is(err, ErrExited):
		return w.chain, err
	case closed != nil:
		return w.chain, fmt.Errorf("%w: %w", ErrAnchorExited, closed)
	case exited(pidfds[1]):
		return w.chain, &HopError{a.process.PID, "is the anchor and no more", ErrAnchorExited}
	}
	return w.chain, err
}

// Explain walks from any pid as Descends does from a peer, for people: nothing
// is proved by it, because the pid may be another process's by now. The errors
// are [ErrUnreadable], [ErrAncestryChanged] and [ErrNotDescendant].
func (pr *Prover) Explain(pid int, a Process) (Chain, error) {
	w := walk{table: procTable{pr.fs}, anchor: a, pause: pr.pause}
	err := w.run(pid, procfs.Stat{}, procfs.Entry{})
	return w.chain, err
}

// procTable looks processes up in /proc.
type procTable struct{ fs *procfs.FS }

func (t procTable) Look(pid int, keep bool) (procfs.Stat, procfs.Entry, error) {
	entry, err := t.fs.Entry(pid)
	if err != nil {
		return procfs.Stat{}, procfs.Entry{}, err
	}
	st, err := entry.Stat()
	if err == nil && st.PID != pid {
		err = fmt.Errorf("/proc/%d/stat is of process %d", pid, st.PID)
	}
	if err != nil || !keep {
		entry.Close()
		entry = procfs.Entry{}
	}
	return st, entry, err
}

func (t procTable) Again(pid int, kept procfs.Entry) (procfs.Stat, error) {
	if kept.Open() {
		return kept.Again()
	}
	entry, err := t.fs.Entry(pid)
	if err != nil {
		return procfs.Stat{}, err
	}
	defer entry.Close()
	return entry.Again()
}
