package streams

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Awaited returns a reader of a pipe or socket that waits for it as for a
// network connection. Each Read of a blocking file keeps a thread in the
// kernel, and what comes is handed to another one: for a program that answers
// every message, that is a good part of its answer's time. What is neither, or
// cannot be had so, is returned as it is.
//
// Whoever has the same pipe or socket open still blocks in it: nothing that
// they share is changed.
func Awaited(in io.Reader) io.Reader {
	f, ok := in.(*os.File)
	if !ok {
		return in
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return in
	}
	var awaited io.Reader
	failed := conn.Control(func(fd uintptr) { awaited, err = await(int(fd)) })
	if failed != nil || err != nil || awaited == nil {
		return in
	}
	return awaited
}

// await returns nil for what is neither a pipe nor a socket.
func await(fd int) (io.Reader, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		// Opened once more it has flags of its own.
		own, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(own), "standard input"), nil
	case unix.S_IFSOCK:
		return awaitSocket(fd)
	}
	return nil, nil //nolint:nilnil // as said
}

// socket is read without its blocking, though it may block.
type socket struct {
	file *os.File // keeps conn open
	conn syscall.RawConn
}

func awaitSocket(fd int) (*socket, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		return nil, errors.Join(err, errors.New("it is one that is awaited already"))
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// NewFile looks at the flag, to tell what can be awaited; it is put back
	// at once.
	err = unix.SetNonblock(own, true)
	s := &socket{file: os.NewFile(uintptr(own), "standard input")}
	err = errors.Join(err, unix.SetNonblock(own, false))
	if err == nil {
		s.conn, err = s.file.SyscallConn()
	}
	if err != nil {
		_ = s.file.Close()
	}
	return s, err
}

// Read implements [io.Reader].
func (s *socket) Read(p []byte) (n int, err error) {
	failed := s.conn.Read(func(fd uintptr) (done bool) {
		for {
			n, _, err = unix.Recvfrom(int(fd), p, unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case failed != nil:
		return 0, failed
	case err != nil:
		return 0, os.NewSyscallError("recvfrom", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}
