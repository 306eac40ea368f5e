package cli

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// harden makes this process one that may hold a refresh token: nobody of the
// same user can read its memory through /proc or ptrace without more rights,
// it leaves no core, and no debug setting prints what it sends.
func harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("making the process not dumpable: %w", err)
	}
	debug := os.Getenv("GODEBUG")
	if !strings.Contains(debug, "http2debug") {
		return nil
	}
	// The setting was read before main; only a new start forgets it.
	var kept []string
	for _, s := range strings.Split(debug, ",") {
		if !strings.Contains(s, "http2debug") {
			kept = append(kept, s)
		}
	}
	if err := os.Setenv("GODEBUG", strings.Join(kept, ",")); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting again without GODEBUG=http2debug: %w", err)
	}
	return unix.Exec(self, os.Args, os.Environ())
}

// stopSelf stops the process before it returns: a signal sent to the own
// thread is taken before the next instruction, one sent to the process may
// leave other threads running on for a while.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
