//go:build linux

package main_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// activated is the program as a service manager starts it: it has listeners as
// descriptors from 3 on, and says how it fares at a socket of the manager's.
type activated struct {
	*process
	notes *net.UnixConn
}

// socketUnit is what a manager makes of a socket unit.
func (r *realm) socketUnit(path string, option int) *os.File {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return c.Control(func(fd uintptr) {
			if option != 0 {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1)
			}
		})
	}}
	l, err := config.Listen(r.t.Context(), "unix", path)
	must(r.t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	f, err := l.(*net.UnixListener).File()
	must(r.t, err)
	must(r.t, l.Close())
	must(r.t, os.Chmod(path, 0o600))
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (r *realm) activate(files []*os.File, args ...string) *activated {
	r.t.Helper()
	notify := filepath.Join(r.dir, "notify")
	notes, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	must(r.t, err)
	r.t.Cleanup(func() {
		_ = notes.Close()
		_ = os.Remove(notify)
	})
	p := r.shell(fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d WATCHDOG_PID=$$ exec spendonce lease serve "$@"`, len(files)), args...)
	p.Env = append(p.Env, "NOTIFY_SOCKET="+notify, "WATCHDOG_USEC=40000")
	p.ExtraFiles = files
	return &activated{r.begin(p), notes}
}

// note is the next thing the manager is told.
func (a *activated) note() string {
	a.h.t.Helper()
	must(a.h.t, a.notes.SetReadDeadline(time.Now().Add(20*time.Second)))
	buf := make([]byte, 1024)
	n, err := a.notes.Read(buf)
	if err != nil {
		a.h.t.Fatalf("the manager was told nothing: %v; %s", err, a.err.String())
	}
	return string(buf[:n])
}

func TestAManagersSocketIsServedAndTheManagerIsTold(t *testing.T) {
	r := newRealm(t)
	f := r.socketUnit(r.socket, unix.SO_PASSCRED)
	a := r.activate([]*os.File{f})
	if got := a.note(); got != "READY=1" {
		t.Fatalf("first it was told %q", got)
	}
	if got := r.ok(r.command("lease", "run", "--no-start", "--", "spendonce", "lease", "auth")); !strings.HasPrefix(got, `{"ok":true`) {
		t.Errorf("auth said %q", got)
	}
	if st := r.status(); st.PID != a.Process.Pid || st.Socket != r.socket {
		t.Errorf("status is %+v", st)
	}
	for range 3 {
		if got := a.note(); got != "WATCHDOG=1" {
			t.Fatalf("it was told %q", got)
		}
	}
	must(t, a.Process.Signal(unix.SIGTERM))
	got := a.note()
	for got == "WATCHDOG=1" {
		got = a.note()
	}
	if got != "STOPPING=1" {
		t.Errorf("last it was told %q", got)
	}
	if code, _ := a.end(); code != 0 {
		t.Errorf("it ended with %d: %s", code, a.err.String())
	}
	// The socket is the manager's, and goes on.
	if _, err := os.Lstat(r.socket); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
	if code, _, talk := r.finish(r.command("lease", "status")); code != 10 {
		t.Errorf("status ended with %d: %s", code, talk)
	}
}

// A request that comes while the broker is not there waits in the socket.
func TestARequestWaitsForTheBrokerThatTheManagerStarts(t *testing.T) {
	r := newRealm(t)
	f := r.socketUnit(r.socket, unix.SO_PASSCRED)
	p := r.begin(r.command("lease", "run", "--no-start", "--", "true"))
	r.eventually("it has connected", func() bool {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
		n, _ := unix.Poll(fds, 0)
		return n == 1
	})
	a := r.activate([]*os.File{f})
	if code, _ := p.end(); code != 0 {
		t.Errorf("it ended with %d: %s", code, p.err.String())
	}
	must(t, a.Process.Signal(unix.SIGTERM))
	_, _ = a.end()
}

func TestAManagersSocketMustBeFit(t *testing.T) {
	other := func(r *realm) string { return filepath.Join(r.dir, "run/spendonce/other.sock") }
	for name, tt := range map[string]struct {
		files func(*realm) []*os.File
		want  string
	}{
		"no credentials": {func(r *realm) []*os.File { return []*os.File{r.socketUnit(r.socket, 0)} }, "PassCredentials=yes"},
		"security labels": {func(r *realm) []*os.File {
			f := r.socketUnit(r.socket, unix.SO_PASSCRED)
			must(r.t, unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PASSSEC, 1))
			return []*os.File{f}
		}, "PassSecurity"},
		"another path": {func(r *realm) []*os.File { return []*os.File{r.socketUnit(other(r), unix.SO_PASSCRED)} }, "the service manager's socket is "},
		"two": {func(r *realm) []*os.File {
			return []*os.File{r.socketUnit(r.socket, unix.SO_PASSCRED), r.socketUnit(other(r), unix.SO_PASSCRED)}
		}, "handed over 2 sockets, and a broker serves one"},
		"no socket": {func(r *realm) []*os.File {
			f, err := os.Open("/dev/null")
			must(r.t, err)
			return []*os.File{f}
		}, "unfit inherited socket"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRealm(t)
			a := r.activate(tt.files(r))
			code, _ := a.end()
			if code != 1 && code != 2 && code != 6 {
				t.Errorf("it ended with %d", code)
			}
			if talk := a.err.String(); !strings.Contains(talk, tt.want) || strings.Count(talk, "\n") != 1 {
				t.Errorf("it said %q", talk)
			}
		})
	}
}

// What is meant for another process is not for us.
func TestListenersOfAnotherProcessAreNotTaken(t *testing.T) {
	r := newRealm(t)
	p := r.shell(`LISTEN_PID=1 LISTEN_FDS=1 exec spendonce lease serve`)
	p.ExtraFiles = []*os.File{r.socketUnit(filepath.Join(r.dir, "run/spendonce/other.sock"), 0)}
	r.begin(p)
	r.awaitTalk(p, "the broker listens at "+r.socket)
	must(t, p.Process.Signal(unix.SIGTERM))
	if code, _ := p.end(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// A starter's pipe is believed only where it is one.
func TestAForeignReadyVariableClosesNothing(t *testing.T) {
	r := newRealm(t)
	p := r.shell(`SPENDONCE_READY_FD=3 exec spendonce lease serve 3</dev/null`)
	r.begin(p)
	r.awaitTalk(p, "the broker listens at "+r.socket)
	r.ok(r.command("lease", "run", "--", "spendonce", "lease", "auth"))
	must(t, p.Process.Signal(unix.SIGTERM))
	if code, _ := p.end(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
