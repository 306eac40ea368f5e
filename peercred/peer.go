//go:build linux

package peercred

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/procfs"
)

// Peer is who connected, as SO_PEERCRED says.
type Peer struct {
	PID      int // 0 for a process outside our pid namespace
	UID, GID uint32
}

// DialedServer says who listens at the other end of a connected socket: the
// process that made it listen, with the uid it had then.
func DialedServer(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer Peer
	err = onFD(raw, func(fd int) error {
		peer, err = peerOf(fd)
		return err
	})
	return peer, err
}

func peerOf(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, fmt.Errorf("%w: %w", ErrNoCredentials, err)
	}
	return Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}, nil
}

// rules say whom we serve.
type rules struct{ uid, overflow uint32 }

// refuse decides by what is known at accept. The namespace comes first: who
// is outside of it may have our uid all the same.
func (r rules) refuse(p Peer) error {
	switch {
	case p.PID == 0:
		return fmt.Errorf("%w (pid 0)", ErrOtherNamespace)
	case p.PID < 0:
		return ErrNoCredentials
	case p.UID == r.overflow:
		return fmt.Errorf("%w: uid %d stands for users unknown here", ErrOtherUser, p.UID)
	case p.UID != r.uid:
		return fmt.Errorf("%w: uid %d, not %d", ErrOtherUser, p.UID, r.uid)
	}
	return nil
}

// pidfdOf returns a pidfd of the process that connected.
func pidfdOf(socket int) (int, error) {
	pidfd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		return pidfd, nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return -1, ErrExited // and was reaped
	}
	return -1, fmt.Errorf("%w: %w", ErrNoPidfd, err)
}

// oldKernel is one without SO_PEERPIDFD, before Linux 6.5. There a pidfd can
// only be opened by the pid that connected, when the connection is accepted.
//
// What that leaves open: a peer that exited before it was accepted, whose pid
// went to another process meanwhile, and whose end of the connection a third
// one keeps open, is not noticed. The new holder of the pid is then taken for
// the peer, and if it is a member of a session, so is whatever the peer sent.
// What the third one sends is refused all the same.
type oldKernel struct {
	proc  *procfs.FS
	pause func() // for tests
}

// pidfdOf does what can be done there: the process that has the peer's pid now
// must be the same before and after its pidfd was opened. A peer that died
// earlier than that, and whose pid was given away, is noticed if it had the
// only descriptor of its end.
func (k *oldKernel) pidfdOf(socket, pid int) (pidfd int, err error) {
	before, err := k.proc.Stat(pid)
	if err != nil {
		return -1, fmt.Errorf("%w: %w", ErrNoPidfd, err)
	}
	if k.pause != nil {
		k.pause()
	}
	pidfd, err = unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("%w: %w", ErrNoPidfd, err)
	}
	after, err := k.proc.Stat(pid)
	if err == nil && after.StartTime != before.StartTime {
		err = ErrExited
	}
	if err == nil {
		err = stillThere(socket)
	}
	if err != nil {
		_ = unix.Close(pidfd)
		return -1, fmt.Errorf("%w: %w", ErrNoPidfd, err)
	}
	return pidfd, nil
}

// stillThere looks whether the other end of a socket was closed.
func stillThere(socket int) error {
	fds := [1]unix.PollFd{{Fd: int32(socket)}}
	if err := poll(fds[:]); err != nil {
		return err
	}
	if fds[0].Revents&unix.POLLHUP != 0 {
		return ErrExited
	}
	return nil
}

// poll looks once, without waiting.
func poll(fds []unix.PollFd) error {
	for {
		_, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				return fmt.Errorf("polling: %w", err)
			}
			return nil
		}
	}
}

// exited reports whether a pidfd's process has ended, reaped or not.
func exited(fd unix.PollFd) bool { return fd.Revents != 0 }

func hasExited(pidfd int) (bool, error) {
	fds := [1]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	err := poll(fds[:])
	return exited(fds[0]), err
}
