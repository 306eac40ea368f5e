package keyringtest_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/keyringtest"
)

// heldVariable makes this binary a test process that is about to be killed.
const heldVariable = "KEYRINGTEST_HELD"

func TestNothingOfAKilledTestProcessStays(t *testing.T) {
	if os.Getenv(heldVariable) != "" {
		keyringtest.Start(t)
		fmt.Println(os.Getenv(keyringtest.AddressVariable))
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		return
	}
	dir, err := os.MkdirTemp("", "kt") //nolint:usetesting // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), heldVariable+"=1", "TMPDIR="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, _ := out.Read(line)
	if !strings.Contains(string(line[:n]), "unix:") || len(running(t, dir)) < 2 {
		t.Fatalf("it said %q, and of it run %q", line[:n], running(t, dir))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// What it leaves alone becomes ours.
	for err = nil; !errors.Is(err, unix.ECHILD); {
		_, err = unix.Wait4(-1, nil, 0, nil)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 || len(running(t, dir)) != 0 {
		t.Errorf("left behind: %v, %v, running %q", left, err, running(t, dir))
	}
}

// running lists the processes whose command line or environment names dir.
func running(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range all {
		if p.Name()[0] < '0' || p.Name()[0] > '9' || p.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		args, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		env, _ := os.ReadFile("/proc/" + p.Name() + "/environ")
		if strings.Contains(string(args)+string(env), dir) {
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}
