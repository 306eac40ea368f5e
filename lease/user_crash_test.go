//go:build crash && linux

package lease_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/lease"
)

const another = 54321

func TestNothingIsSentToWhatBelongsToAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for name, of := range map[string]func(socket string) string{
		"the directory": filepath.Dir,
		"the socket":    func(socket string) string { return socket },
	} {
		f := answer(t, okSession)
		if err := os.Lchown(of(f.socket), another, another); err != nil {
			t.Fatal(err)
		}
		err := f.client().Authenticate(t.Context(), aSession)
		if !errors.Is(err, lease.ErrUnsafeServer) || !strings.Contains(err.Error(), "belongs to user 54321") {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.asked(); len(got) != 0 {
			t.Errorf("%s: the broker was sent %q", name, got)
		}
	}
}

// The file and its directory are ours, and another user listens.
func TestNothingIsSentToABrokerThatRunsAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	path := place(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	listening := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends as another user's
		const same = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, another, same); errno != 0 {
			listening <- errno
			return
		}
		listening <- unix.Listen(fd, 8)
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = (&lease.Client{Socket: path}).Authenticate(t.Context(), aSession)
	if !errors.Is(err, lease.ErrUnsafeServer) || !strings.Contains(err.Error(), "54321 listens") {
		t.Errorf("%v, want ErrUnsafeServer", err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n > 0 {
		t.Errorf("something was sent: %v", err)
	}
}
