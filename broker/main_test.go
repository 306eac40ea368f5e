//go:build linux

package broker_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// A test that needs another process runs this binary again, as one of these.
var roles = map[string]func() error{
	"actor":  act,
	"broker": serve,
	"load":   load,
}

const roleVariable = "BROKER_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := roles[role](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitCode(err))
	}
	os.Exit(0)
}

// environment is that of another role. Without a shorter sleep the race
// detector would wait for a second at the end of each process.
func environment(role string) []string {
	return append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
}
