//go:build linux

package peercred_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/peercred"
)

// inherited is a socket as a service manager would hand it over.
type inherited struct {
	domain, kind int
	name         unix.Sockaddr
	listens      bool
	options      []int // that are set
}

func (i inherited) file(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Socket(i.domain, i.kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, i.name)
	}
	for _, option := range i.options {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1)
		}
	}
	if err == nil && i.listens {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "LISTEN_FD_3")
	t.Cleanup(func() { f.Close() })
	return f
}

func TestAnInheritedSocketServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f := inherited{unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: path}, true, []int{unix.SO_PASSCRED}}.file(t)
	l, err := peercred.Activated(f)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if l.Addr() != path {
		t.Errorf("listening at %q", l.Addr())
	}
	client := dial(t, path)
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	client.Close()
	c := accept(t, l)
	readAll(t, c, "x")
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the manager's socket: %v", err)
	}
}

func TestAnInheritedSocketThatWillNotDoIsRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) unix.Sockaddr { return &unix.SockaddrUnix{Name: filepath.Join(dir, name)} }
	stream := inherited{domain: unix.AF_UNIX, kind: unix.SOCK_STREAM, listens: true}
	with := func(name unix.Sockaddr, options ...int) inherited {
		s := stream
		s.name, s.options = name, options
		return s
	}
	for name, c := range map[string]struct {
		socket inherited
		says   string
	}{
		"of the network": {inherited{unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, true, nil}, "AF_UNIX"},
		"of packets":     {inherited{unix.AF_UNIX, unix.SOCK_SEQPACKET, at("p"), true, []int{unix.SO_PASSCRED}}, "ListenStream="},
		"connected":      {inherited{unix.AF_UNIX, unix.SOCK_STREAM, at("c"), false, []int{unix.SO_PASSCRED}}, "Accept=no"},
		"silent":         {with(at("s")), "PassCredentials=yes"},
		"with labels":    {with(at("l"), unix.SO_PASSCRED, unix.SO_PASSSEC), "PassSecurity"},
		"with pidfds":    {with(at("f"), unix.SO_PASSCRED, unix.SO_PASSPIDFD), "PassPIDFD"},
		"abstract":       {with(&unix.SockaddrUnix{Name: "@spendonce-peercred-test"}, unix.SO_PASSCRED), "file system"},
	} {
		l, err := peercred.Activated(c.socket.file(t))
		if !errors.Is(err, peercred.ErrNotOurSocket) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			l.Close()
		}
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, err = peercred.Activated(file)
	wantError(t, err, peercred.ErrNotOurSocket)
}
