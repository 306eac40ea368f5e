//go:build linux

package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spendonce/spendonce/internal/conformance"
)

const actorVariable = "CONFORMANCE_TEST_ACTOR"

// This binary is its own actor.
func TestMain(m *testing.M) {
	if os.Getenv(actorVariable) == "" {
		os.Exit(m.Run())
	}
	if err := conformance.Act(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// actor is the command line that starts one. Without the shorter sleep the
// race detector would wait for a second at the end of each process.
func actor() []string {
	return []string{"env", actorVariable + "=1", "GORACE=atexit_sleep_ms=0", os.Args[0]}
}

// place returns the path of a socket in a private directory.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "conf") //nolint:usetesting // t.TempDir() may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
