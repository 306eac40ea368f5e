//go:build linux

package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// script lets a test stand in for a script.
type script struct{ t *testing.T }

func (s script) FailNow()                       { s.t.FailNow() }
func (s script) Fatal(args ...any)              { s.t.Fatal(args...) }
func (s script) Log(args ...any)                { s.t.Log(args...) }
func (s script) Parallel()                      {}
func (s script) Skip(args ...any)               { s.t.Skip(args...) }
func (s script) Verbose() bool                  { return testing.Verbose() }
func (s script) Run(string, func(testscript.T)) {}

// stopBrokers ends every broker with a socket below dir and waits for it.
func stopBrokers(t testscript.T, dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSocket {
			return stopBroker(path)
		}
		return nil // what has gone is no broker
	})
	if err != nil {
		t.Fatal("stopping the broker:", err)
	}
}

func stopBroker(socket string) error {
	conn, nobody := net.Dial("unix", socket)
	if nobody != nil {
		return nil
	}
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var server *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) { server, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	conn.Close() // else the broker would wait for us
	if err := errors.Join(err, controlErr); err != nil {
		return err
	}
	if int(server.Pid) == os.Getpid() {
		return nil
	}
	pidfd, err := unix.PidfdOpen(int(server.Pid), 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(pidfd)
	_ = unix.PidfdSendSignal(pidfd, unix.SIGTERM, nil, 0)
	_ = unix.PidfdSendSignal(pidfd, unix.SIGCONT, nil, 0)
	if !gone(pidfd, 20*time.Second) {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		return fmt.Errorf("the broker at %s, process %d, did not end within 20 s of SIGTERM", socket, server.Pid)
	}
	return nil
}

// gone waits for a process to end.
func gone(pidfd int, atMost time.Duration) bool {
	deadline := time.Now().Add(atMost)
	for {
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(time.Until(deadline).Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			return n > 0
		}
	}
}

// proc is a line of /proc/PID/status.
func proc(t *testing.T, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("process %d has no %s", pid, name)
	return ""
}

// ancestors are the pids above a process, up to 1.
func ancestors(t *testing.T, pid int) []int {
	t.Helper()
	var all []int
	for pid > 1 {
		parent, err := strconv.Atoi(proc(t, pid, "PPid"))
		must(t, err)
		all = append(all, parent)
		pid = parent
	}
	return all
}

// looksForIDs searches for what has the shape of a session id or token, whoever
// made it: in all that was said on standard error, and in the files beside the
// socket and in the state directory. Of the latter, the state itself must hold
// the ids of sessions.
func (r *realm) looksForIDs() {
	r.t.Helper()
	r.mu.Lock()
	if at := idIn(r.outputs.Bytes()); at >= 0 {
		r.t.Errorf("a session id or token was said on standard error, at byte %d", at)
	}
	r.mu.Unlock()
	for _, dir := range []string{filepath.Dir(r.socket), r.state} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && path != filepath.Join(r.state, "broker-state.json") {
				b, _ := os.ReadFile(path)
				if at := idIn(b); at >= 0 {
					r.t.Errorf("a session id or token is in %s, at byte %d", path, at)
				}
			}
			return nil
		})
		must(r.t, err)
	}
}

// idIn returns where 43 characters of base64url stand by themselves, the last
// of which is as in the encoding of 256 bits; or -1.
func idIn(b []byte) int {
	run := 0
	for i := 0; i <= len(b); i++ {
		if i < len(b) && (b[i] == '-' || b[i] == '_' || b[i] >= '0' && b[i] <= '9' || b[i] >= 'A' && b[i] <= 'Z' || b[i] >= 'a' && b[i] <= 'z') {
			run++
			continue
		}
		if run == 43 && strings.IndexByte("AEIMQUYcgkosw048", b[i-1]) >= 0 {
			return i - run
		}
		run = 0
	}
	return -1
}
