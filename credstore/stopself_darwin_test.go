package credstore_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// stopThisThread stops the process, if not always before it returns.
func stopThisThread() error { return unix.Kill(unix.Getpid(), unix.SIGSTOP) }

func (w *worker) awaitStop(t *testing.T) { t.Fatal("how to await a stop is only known on Linux") }
