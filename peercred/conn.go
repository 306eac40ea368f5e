//go:build linux

package peercred

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/procfs"
)

// Conn is an accepted connection and what the kernel said of its peer. It
// serves one goroutine at a time, but for the deadlines.
type Conn struct {
	socket  *net.UnixConn
	raw     syscall.RawConn
	peer    Peer
	refusal error
	pidfd   int // -1 if refused

	violation error // the first in what was read
	control   [controlRoom]byte

	entry procfs.Entry // the peer's own, kept for the second reading
	stat  procfs.Stat
	used  bool // stat has served a walk, and another one needs a new reading
}

func newConn(socket *net.UnixConn, r rules, old *oldKernel) (*Conn, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		socket.Close()
		return nil, err
	}
	c := &Conn{socket: socket, raw: raw, pidfd: -1}
	c.refusal = onFD(raw, func(fd int) error {
		if c.peer, err = peerOf(fd); err != nil {
			return err
		}
		if err := r.refuse(c.peer); err != nil {
			return err
		}
		if old != nil {
			c.pidfd, err = old.pidfdOf(fd, c.peer.PID)
		} else {
			c.pidfd, err = pidfdOf(fd)
		}
		return err
	})
	return c, nil
}

// Peer is who connected.
func (c *Conn) Peer() Peer { return c.peer }

// Refusal is why the peer must not be served, decided when it was accepted:
// [ErrOtherUser], [ErrOtherNamespace], [ErrNoCredentials], [ErrNoPidfd] or
// [ErrExited]. It is nil for a peer of our own user. An ErrNoPidfd for want of
// descriptors is EMFILE or ENFILE too, and says nothing against the peer.
func (c *Conn) Refusal() error { return c.refusal }

// Verify says whether all that was read came from the peer, as bytes only, and
// the peer lives. It is meant to be asked after the reading. The error is that
// of Refusal, [ErrOtherSender], [ErrUnexpectedControl] or [ErrExited].
func (c *Conn) Verify() error {
	if err := c.verdict(); err != nil {
		return err
	}
	gone, err := hasExited(c.pidfd)
	if err != nil {
		return fmt.Errorf("asking for process %d: %w", c.peer.PID, err)
	}
	if gone {
		return ErrExited
	}
	return nil
}

// verdict is what is known without asking the kernel.
func (c *Conn) verdict() error {
	if c.refusal != nil {
		return c.refusal
	}
	return c.violation
}

// Read reads as [net.Conn] does: the end is [io.EOF], a passed deadline is
// os.ErrDeadlineExceeded. That a chunk came from somebody else, or with more
// than bytes, does not end the reading: Verify says so afterwards.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	var got chunk
	var err error
	outer := c.raw.Read(func(fd uintptr) bool {
		got, err = receive(int(fd), p, c.control[:])
		return err != unix.EAGAIN //nolint:errorlint // an errno, bare, on the way of every request
	})
	if outer != nil {
		return 0, outer
	}
	if err != nil {
		return 0, &net.OpError{Op: "read", Net: "unix", Err: err}
	}
	if err := got.judge(c.peer.PID); err != nil && c.violation == nil {
		c.violation = err
	}
	if got.n == 0 {
		return 0, io.EOF
	}
	return got.n, nil
}

// Write writes as [net.Conn] does.
func (c *Conn) Write(p []byte) (int, error) { return c.socket.Write(p) }

// SetReadDeadline bounds Read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.socket.SetReadDeadline(t) }

// SetWriteDeadline bounds Write.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.socket.SetWriteDeadline(t) }

// Close ends the connection and forgets the peer. It may be called twice.
func (c *Conn) Close() error {
	c.forget()
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
		c.pidfd = -1
		if c.refusal == nil {
			c.refusal = net.ErrClosed
		}
	}
	return c.socket.Close()
}

// forget drops the kept reading of the peer.
func (c *Conn) forget() {
	c.entry.Close()
	c.entry = procfs.Entry{}
}
