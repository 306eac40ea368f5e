//go:build linux

package main_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/spendoncetest"
)

// withBroker starts a process in this home, whose broker is in it too.
func (h *home) withBroker(in io.Reader, args ...string) *process {
	h.t.Helper()
	p := h.command(args...)
	p.Stdin = in
	p.Env = append(p.Env, "XDG_RUNTIME_DIR="+filepath.Join(h.dir, "run"), "SPENDONCE_SOCKET=")
	must(h.t, p.Start())
	h.t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// broker starts one and returns when it serves.
func (h *home) broker() *process {
	h.t.Helper()
	must(h.t, os.MkdirAll(filepath.Join(h.dir, "run"), 0o700))
	p := h.withBroker(nil, "lease", "serve")
	h.awaitTalk(p, "listens at")
	return p
}

// looks runs a command that only looks, for at most a second.
func (h *home) looks(args ...string) (int, string) {
	h.t.Helper()
	p := h.withBroker(nil, args...)
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = p.Process.Kill() })()
	return p.end()
}

func (h *home) awaitStop(p *process) {
	h.t.Helper()
	h.eventually("the process has stopped", func() bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		return err == nil && info.Signo == int32(unix.SIGCHLD)
	})
}

// K21: nobody else can start, and whoever wonders why is told within a second.
func TestAStoppedBrokerIsTold(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	b := h.broker()
	must(t, b.Process.Signal(syscall.SIGSTOP))
	h.awaitStop(b)
	before := h.everything()
	says := fmt.Sprintf("process %d (spendonce), which is stopped, has the broker's lock of the state and that of the socket: nobody is answered, and no other broker starts -> continue it (kill -CONT %d) or kill it", b.Process.Pid, b.Process.Pid)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"doctor"}, 1, says},
		{[]string{"doctor", "--json"}, 1, `"id":"broker.lock","level":"error"`},
		{[]string{"status"}, 0, fmt.Sprintf("process %d, which is stopped: nobody is answered", b.Process.Pid)},
		{[]string{"status", "--json"}, 0, fmt.Sprintf(`"pid":%d,"stopped":true`, b.Process.Pid)},
	} {
		if code, out := h.looks(c.args...); code != c.code || !strings.Contains(out, c.says) || strings.Count(out, "error    ") > 1 {
			t.Errorf("%q ended with %d within a second and said\n%s", c.args, code, out)
		}
	}
	if after := h.everything(); after != before {
		t.Errorf("something was changed:\n%s\nbefore:\n%s", after, before)
	}
	must(t, b.Process.Signal(syscall.SIGCONT))
	if code, out := h.looks("doctor"); code != 0 || strings.Contains(out, "broker") {
		t.Errorf("after it went on the doctor ended with %d and said\n%s", code, out)
	}
}

// A broker that has been asked for nothing is as it was after it was looked
// at, and what serves a session serves it still.
func TestLookingDisturbsNoBroker(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	h.broker()
	in, hold, err := os.Pipe()
	must(t, err)
	defer hold.Close()
	anchor := h.withBroker(in, "lease", "run", "--no-start", "--", "sh", "-c", "echo here; read -r line; exec "+h.bin+" lease auth")
	in.Close()
	h.eventually("the anchor is there", func() bool { return strings.Contains(anchor.out.String(), "here") })
	h.eventually("its registration is written down", func() bool {
		b, _ := os.ReadFile(filepath.Join(h.dir, "state", "broker-audit.log"))
		return strings.HasSuffix(string(b), "\n")
	})
	before := h.everything()
	for range 5 {
		if code, out := h.looks("status"); code != 0 || !strings.Contains(out, ": 1 session, 0 tokens pending, 0 spent") {
			t.Fatalf("the status ended with %d and said\n%s", code, out)
		}
		if code, out := h.looks("doctor"); code != 0 || strings.Contains(out, "broker") {
			t.Fatalf("the doctor ended with %d and said\n%s", code, out)
		}
	}
	if after := h.everything(); after != before {
		t.Errorf("something was changed:\n%s\nbefore:\n%s", after, before)
	}
	fmt.Fprintln(hold)
	if code, out := anchor.end(); code != 0 || !strings.Contains(out, `"ok":true`) {
		t.Errorf("the anchor ended with %d and said %s%s", code, out, anchor.err.String())
	}
}

// A client that waits for the socket of a service manager is nobody's to
// wake: looking must not make that start a broker.
func TestLookingConnectsToNoSocketOfAServiceManager(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	dir := filepath.Join(h.dir, "run", "spendonce")
	must(t, os.MkdirAll(dir, 0o700))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, "broker.sock")}))
	must(t, os.Chmod(filepath.Join(dir, "broker.sock"), 0o600))
	must(t, unix.Listen(fd, 8))
	for _, command := range []string{"doctor", "status"} {
		if code, out := h.looks(command); code != 0 {
			t.Errorf("the %s ended with %d and said\n%s", command, code, out)
		}
	}
	if c, _, err := unix.Accept(fd); err == nil {
		unix.Close(c)
		t.Error("somebody connected")
	}
}

// What is said of many sessions fits on a screen.
func TestTheStatusOfManySessionsFitsOnAScreen(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	h.broker()
	in, hold, err := os.Pipe()
	must(t, err)
	defer in.Close()
	defer hold.Close()
	for range 15 {
		h.withBroker(in, "lease", "run", "--no-start", "--", "cat")
	}
	h.eventually("all have registered", func() bool {
		_, out := h.looks("status")
		return strings.Contains(out, ": 15 sessions,")
	})
	_, out := h.looks("status")
	lines := 0
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); lines++ {
	}
	if lines > 24 || !strings.Contains(out, "and 3 more: 'spendonce lease status'") {
		t.Errorf("%d lines:\n%s", lines, out)
	}
}
