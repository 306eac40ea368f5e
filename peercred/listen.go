//go:build linux

package peercred

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/procfs"
)

var (
	// ErrPathTooLong says that a path does not fit into a socket address.
	ErrPathTooLong = errors.New("socket path over 107 bytes")
	// ErrNotOurSocket says that an inherited descriptor is not a socket that
	// can tell who writes to it.
	ErrNotOurSocket = errors.New("unfit inherited socket")
)

// MaxPath is how long a socket's path may be, in bytes: what the kernel takes,
// less its final zero.
const MaxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Listener accepts peers. Its methods are safe for concurrent use.
type Listener struct {
	socket *net.UnixListener
	mode   uint32
	rules  rules
	old    *oldKernel // nil where the kernel has SO_PEERPIDFD
}

// Listen binds a Unix stream socket to path, which must not exist: nothing is
// ever unlinked here, neither now nor by Close. The socket has mode 0600 and
// tells who writes to it from its first moment, whatever the umask, because
// both are set before it is bound. The name is always one of the file system,
// never an abstract one. The error is [ErrPathTooLong], one of [procfs.Open],
// or one of the system's.
func Listen(path string) (*Listener, error) {
	switch {
	case len(path) > MaxPath:
		return nil, fmt.Errorf("%w: it has %d", ErrPathTooLong, len(path))
	case path == "", strings.HasPrefix(path, "@"), strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("socket path %q: only names in the file system are used", path)
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return onFD(c, func(fd int) error {
			if err := unix.Fchmod(fd, 0o600); err != nil {
				return fmt.Errorf("setting the mode: %w", err)
			}
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
				return fmt.Errorf("setting SO_PASSCRED: %w", err)
			}
			return nil
		})
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		listener.Close()
		return nil, fmt.Errorf("listening at %s: no Unix socket", path)
	}
	socket.SetUnlinkOnClose(false)
	l, err := newListener(socket, path)
	if err == nil && l.mode != 0o600 {
		// A umask that takes from its owner: until now the mode was narrower.
		err = unix.Fchmodat(unix.AT_FDCWD, path, 0o600, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return l, nil
}

// Activated takes over a listening socket from the service manager. It must be
// a Unix stream socket and tell who writes to it; if not, the error is
// [ErrNotOurSocket] and says what to change. The file may be closed
// afterwards.
func Activated(f *os.File) (*Listener, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := onFD(conn, judgeActivated); err != nil {
		return nil, err
	}
	listener, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("taking over the inherited socket: %w", err)
	}
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		listener.Close()
		return nil, fmt.Errorf("%w: not of AF_UNIX", ErrNotOurSocket)
	}
	path := socket.Addr().String()
	if path == "" || path[0] == '@' {
		socket.Close()
		return nil, fmt.Errorf("%w: its name %q is not one of the file system", ErrNotOurSocket, path)
	}
	l, err := newListener(socket, path)
	if err != nil {
		socket.Close()
		return nil, err
	}
	return l, nil
}

func judgeActivated(fd int) error {
	for _, want := range []struct {
		option, value int
		otherwise     string
	}{
		{unix.SO_DOMAIN, unix.AF_UNIX, "not of AF_UNIX"},
		{unix.SO_TYPE, unix.SOCK_STREAM, "no stream socket: the unit must say ListenStream="},
		{unix.SO_ACCEPTCONN, 1, "it does not listen: the unit must say Accept=no"},
		{unix.SO_PASSCRED, 1, "it does not tell who writes: the unit must say PassCredentials=yes"},
		{unix.SO_PASSSEC, 0, "it adds security labels: the unit must not say PassSecurity=yes"},
		{unix.SO_PASSPIDFD, 0, "it adds pidfds: the unit must not say PassPIDFD=yes"},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if errors.Is(err, unix.ENOPROTOOPT) && want.option == unix.SO_PASSPIDFD {
			continue // a kernel before 6.5
		}
		if err != nil {
			return fmt.Errorf("%w: asking for option %d: %w", ErrNotOurSocket, want.option, err)
		}
		if got != want.value {
			return fmt.Errorf("%w: %s", ErrNotOurSocket, want.otherwise)
		}
	}
	return nil
}

func newListener(socket *net.UnixListener, path string) (*Listener, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("listening at %s: another file took its place", path)
	}
	proc, err := procfs.Open()
	if err != nil {
		return nil, err
	}
	overflow, err := proc.OverflowUID()
	if err != nil {
		proc.Close()
		return nil, err
	}
	l := &Listener{
		socket: socket,
		mode:   st.Mode & 0o7777,
		rules:  rules{uid: uint32(os.Geteuid()), overflow: overflow},
	}
	if hasPeerPidfd(socket) {
		proc.Close()
	} else {
		l.old = &oldKernel{proc: proc}
	}
	return l, nil
}

// hasPeerPidfd reports whether the kernel is 6.5 or newer. A listening socket
// has its maker for a peer.
func hasPeerPidfd(socket *net.UnixListener) bool {
	conn, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	err = onFD(conn, func(fd int) error {
		pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if err == nil {
			_ = unix.Close(pidfd)
		}
		return err
	})
	return !errors.Is(err, unix.ENOPROTOOPT)
}

// Accept returns the next connection. An error speaks of the listener alone:
// [net.ErrClosed] after Close, and else one of the system's, such as EMFILE. A
// peer that must be refused is a [Conn] too, so that it can be told.
func (l *Listener) Accept() (*Conn, error) {
	socket, err := l.socket.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return newConn(socket, l.rules, l.old)
}

// Close ends the listening. The socket's file stays. (So does, on an old
// kernel, the descriptor of /proc: an Accept may be using it.)
func (l *Listener) Close() error { return l.socket.Close() }

// Addr returns the path that was bound.
func (l *Listener) Addr() string { return l.socket.Addr().String() }

// onFD runs do on the descriptor of c, which stays open meanwhile.
func onFD(c syscall.RawConn, do func(fd int) error) error {
	var err error
	if outer := c.Control(func(fd uintptr) { err = do(int(fd)) }); outer != nil {
		return outer
	}
	return err
}
