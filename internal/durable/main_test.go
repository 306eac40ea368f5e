package durable_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// A test that needs another process runs this binary again, as one of these.
var roles = map[string]func(args []string) error{
	"modes": modes,
	"lock":  lock,
}

const roleVariable = "DURABLE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if copied.dir != "" {
		_ = os.RemoveAll(copied.dir)
	}
	os.Exit(code)
}

// nobody is a user without rights, for tests that root cannot prove.
const nobody = 65534

// copied is this test binary in a place where every user may run it.
var copied struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// runUnprivileged runs a role: as nobody if we are root, else as ourselves, in
// a directory of its own that belongs to that user.
func runUnprivileged(t *testing.T, role string, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	if os.Geteuid() == 0 {
		copied.once.Do(copySelf)
		if copied.err != nil {
			t.Fatal(copied.err)
		}
		cmd = exec.Command(copied.path, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	// Below t.TempDir the other user may not go.
	home, err := os.MkdirTemp("", "durable") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if os.Geteuid() == 0 {
		if err := os.Chown(home, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Dir = home
	cmd.Env = environment(role)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %q: %v\n%s", role, args, err, out)
	}
}

// environment is that of another run. The race detector would wait for a
// second at its end.
func environment(role string) []string {
	return append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
}

func copySelf() {
	if copied.dir, copied.err = os.MkdirTemp("", "durable"); copied.err != nil {
		return
	}
	copied.path = filepath.Join(copied.dir, "self.test")
	if copied.err = os.Chmod(copied.dir, 0o755); copied.err != nil {
		return
	}
	from, err := os.Open(os.Args[0])
	if err != nil {
		copied.err = err
		return
	}
	defer from.Close()
	to, err := os.OpenFile(copied.path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
		if e := to.Close(); err == nil {
			err = e
		}
	}
	copied.err = err
}

func openDir(t *testing.T, path string) *durable.Dir {
	t.Helper()
	return openDirOn(t, durable.Disk{}, path)
}

func openDirOn(t *testing.T, disk durable.Disk, path string) *durable.Dir {
	t.Helper()
	dir, err := disk.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	return dir
}

func newDir(t *testing.T) *durable.Dir {
	t.Helper()
	return openDir(t, t.TempDir())
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// namesIn returns what stands in a directory, read past the package.
func namesIn(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// soon fails the test if f does not return: nothing here may block on what
// stands in a file's place. The bound is generous and no measurement.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s blocks", what)
	}
}
