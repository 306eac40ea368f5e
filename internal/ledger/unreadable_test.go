//go:build linux

package ledger_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
)

const ordinary = 54321 // a uid, and nobody's

// openOnce opens the ledger in a directory and tells what came of it.
func openOnce(args []string) error {
	dir, err := durable.Disk{}.OpenDir(args[0])
	if err != nil {
		return err
	}
	defer dir.Close()
	l, err := ledger.Open(dir, ledger.Config{BootID: thisBoot})
	if err == nil {
		return l.Close()
	}
	fmt.Printf("unsafe %t: %v\n", errors.Is(err, ledger.ErrUnsafe), err)
	return nil
}

// Root may read everything: the one who may not is another user.
func TestAFileThatWeMayNotReadIsUnsafe(t *testing.T) {
	path, err := os.MkdirTemp("", "ledger") //nolint:usetesting // below t.TempDir other users may not go
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(path) })
	file := stateFile(path)
	write(t, file, goodFile())
	must(t, os.Chmod(file, 0))
	cmd := exec.Command("/proc/self/exe", path) // which other users may execute too
	cmd.Env = append(os.Environ(), roleVariable+"=open", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
		for _, name := range []string{path, file} {
			must(t, os.Chown(name, ordinary, ordinary))
		}
	}
	said, err := cmd.Output()
	must(t, err)
	for _, want := range []string{"unsafe true: ", "permission denied", "mv " + file + " " + file + ".unreadable"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("it says %q, want %q in it", said, want)
		}
	}
	if names := namesIn(t, path); len(names) != 2 { // with the lock
		t.Errorf("%q stand in %s", names, filepath.Base(path))
	}
}
