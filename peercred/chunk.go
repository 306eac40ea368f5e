//go:build linux

package peercred

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// controlRoom holds credentials and nothing more. What else is sent finds no
// room: the kernel drops it, descriptors too, and says MSG_CTRUNC.
const controlRoom = unix.SizeofCmsghdr + (unix.SizeofUcred+7)&^7

// chunk is what one recvmsg(2) returned. The kernel never joins in one what
// two processes wrote.
type chunk struct {
	n       int
	flags   int
	control []byte
}

func receive(fd int, p, control []byte) (chunk, error) {
	for {
		n, controlled, flags, _, err := unix.Recvmsg(fd, p, control, unix.MSG_CMSG_CLOEXEC)
		if err == nil {
			return chunk{n, flags, control[:controlled]}, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return chunk{}, err
		}
	}
}

// judge says what is wrong with a chunk that pid should have written. It
// closes descriptors that came with it.
func (c chunk) judge(pid int) error {
	named := false
	var wrong error
	if c.flags&unix.MSG_CTRUNC != 0 {
		wrong = fmt.Errorf("%w: more than credentials", ErrUnexpectedControl)
	}
	for rest := c.control; len(rest) >= unix.SizeofCmsghdr; {
		head, data, next, err := unix.ParseOneSocketControlMessage(rest)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnexpectedControl, err)
		}
		rest = next
		m := unix.SocketControlMessage{Header: head, Data: data}
		switch {
		case head.Level == unix.SOL_SOCKET && head.Type == unix.SCM_CREDENTIALS && !named:
			cred, err := unix.ParseUnixCredentials(&m)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrUnexpectedControl, err)
			}
			named = true
			// At the end of the stream come credentials of nobody.
			if int(cred.Pid) != pid && c.n > 0 && wrong == nil {
				wrong = fmt.Errorf("%w: process %d", ErrOtherSender, cred.Pid)
			}
			continue
		case head.Level == unix.SOL_SOCKET && head.Type == unix.SCM_RIGHTS:
			closeAll(&m)
		}
		wrong = fmt.Errorf("%w: type %d", ErrUnexpectedControl, head.Type)
	}
	if wrong == nil && !named && c.n > 0 {
		wrong = fmt.Errorf("%w: the kernel names none", ErrOtherSender)
	}
	return wrong
}

func closeAll(m *unix.SocketControlMessage) {
	fds, err := unix.ParseUnixRights(m)
	if err != nil {
		return
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
