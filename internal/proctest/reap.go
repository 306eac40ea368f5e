//go:build linux

package proctest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Reap waits for the end of a child of the test.
func Reap(t testing.TB, pid int) {
	t.Helper()
	for {
		_, err := unix.Wait4(pid, nil, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("reaping %d: %v", pid, err)
		}
		return
	}
}
