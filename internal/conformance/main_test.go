//go:build linux

package conformance_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spendonce/spendonce/internal/conformance"
)

const (
	actorVariable = "CONFORMANCE_TEST_ACTOR"
	kitVariable   = "CONFORMANCE_TEST_KIT" // the socket to judge
	markVariable  = "CONFORMANCE_TEST_MARK"
)

// This binary is its own actor, and a kit that can be killed.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(actorVariable) != "":
		err = conformance.Act(os.Stdin, os.Stdout)
	case os.Getenv(kitVariable) != "":
		err = kit()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// kit judges a broker and says so in the middle of it.
func kit() error {
	_, err := conformance.Run(context.Background(), conformance.Config{
		Socket: os.Getenv(kitVariable), Actor: actorMarked(os.Getenv(markVariable)),
		Progress: func(done, _ int, _ string) {
			if done == 8 {
				fmt.Println()
			}
		},
	})
	return err
}

func actor() []string { return actorMarked("") }

// actorMarked is the command line of an actor that can be found by its mark.
// Without the shorter sleep the race detector would wait for a second at the
// end of each process.
func actorMarked(mark string) []string {
	return []string{"env", actorVariable + "=1", markVariable + "=" + mark, "GORACE=atexit_sleep_ms=0", os.Args[0]}
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
