package credstore_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// stopThisThread stops the process before it returns.
func stopThisThread() error { return unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP) }

// awaitStop returns when the worker is stopped.
func (w *worker) awaitStop(t *testing.T) {
	t.Helper()
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, w.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || info.Code == 1 { // CLD_EXITED
			t.Fatalf("the worker is not stopped: %v, %d: %s%s", err, info.Code, &w.out, &w.err)
		}
		return
	}
}
