//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// sock is one end of a Unix stream socket, used by plain system calls: what is
// written, in which pieces and by which process is what the kit is about. A
// descriptor that another process passed on is one too.
type sock int

// dial connects to path; a name that begins with @ is an abstract one.
func dial(path string, wait time.Duration) (sock, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("making a socket: %w", err)
	}
	s := sock(fd)
	// Also bounds a connect to a queue that is full.
	if err := s.limit(syscall.SO_SNDTIMEO, wait); err != nil {
		s.close()
		return -1, err
	}
	if err := ignoringEINTR(func() error { return syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}) }); err != nil {
		s.close()
		return -1, fmt.Errorf("connecting: %w", err)
	}
	return s, nil
}

// send writes all of data, with the control message oob on its first part.
func (s sock) send(data, oob []byte) error {
	for len(data) > 0 {
		var n int
		err := ignoringEINTR(func() (err error) {
			n, err = syscall.SendmsgN(int(s), data, oob, nil, syscall.MSG_NOSIGNAL)
			return err
		})
		if err != nil {
			return err
		}
		data, oob = data[n:], nil
	}
	return nil
}

// shut half-closes: the other end reads end of file.
func (s sock) shut() error { return syscall.Shutdown(int(s), syscall.SHUT_WR) }

func (s sock) close() { _ = syscall.Close(int(s)) }

// answered reports whether something, or the end, can be read within wait.
func (s sock) answered(wait time.Duration) bool {
	err := s.receive(make([]byte, 1), syscall.MSG_PEEK, time.Now().Add(wait), new(int))
	return !errors.Is(err, syscall.EAGAIN)
}

// read returns what comes until the end of the stream, and how it ended.
func (s sock) read(wait time.Duration) (raw []byte, end string) {
	const enough = 1 << 20
	deadline := time.Now().Add(wait)
	buf := make([]byte, 64<<10)
	for len(raw) < enough {
		var n int
		switch err := s.receive(buf, 0, deadline, &n); {
		case errors.Is(err, syscall.EAGAIN):
			return raw, endSilent
		case errors.Is(err, syscall.ECONNRESET):
			return raw, endReset
		case err != nil:
			return raw, err.Error()
		case n == 0:
			return raw, endEOF
		}
		raw = append(raw, buf[:n]...)
	}
	return raw, "over 1 MiB"
}

// receive is one recv that ends with EAGAIN at the deadline.
func (s sock) receive(buf []byte, flags int, deadline time.Time, n *int) error {
	return ignoringEINTR(func() error {
		// 0 would mean for ever.
		if err := s.limit(syscall.SO_RCVTIMEO, max(time.Until(deadline), time.Microsecond)); err != nil {
			return err
		}
		got, _, err := syscall.Recvfrom(int(s), buf, flags)
		*n = got
		return err
	})
}

func (s sock) limit(option int, d time.Duration) error {
	tv := syscall.NsecToTimeval(d.Nanoseconds())
	if err := syscall.SetsockoptTimeval(int(s), syscall.SOL_SOCKET, option, &tv); err != nil {
		return fmt.Errorf("setting a time limit: %w", err)
	}
	return nil
}

// receiveDescriptor reads one byte and the descriptor that comes with it.
func (s sock) receiveDescriptor(wait time.Duration) (sock, error) {
	if !s.answered(wait) {
		return -1, errors.New("no descriptor came")
	}
	oob := make([]byte, syscall.CmsgSpace(4))
	var oobn int
	err := ignoringEINTR(func() (err error) {
		_, oobn, _, _, err = syscall.Recvmsg(int(s), make([]byte, 1), oob, syscall.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("receiving a descriptor: %w", err)
	}
	return descriptorIn(oob[:oobn])
}

// descriptorIn returns the one descriptor in a control message.
func descriptorIn(oob []byte) (sock, error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return -1, fmt.Errorf("reading a control message: %w", err)
	}
	for _, m := range messages {
		if fds, err := syscall.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return sock(fds[0]), nil
		}
	}
	return -1, errors.New("a message brought no descriptor")
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
