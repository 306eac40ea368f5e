//go:build crash && linux

package lockfile_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// inNamespace makes cmd the first process of a pid namespace of its own.
func inNamespace(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a pid namespace")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	return cmd
}

func TestStormOfPidNamespacesLosesNoUpdate(t *testing.T) {
	const processes = 8
	path, rounds := t.TempDir(), rounds(t)
	counter := filepath.Join(path, "counter")
	if err := os.WriteFile(counter, fmt.Appendf(nil, "%0*d", counterLength, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	var all []*child
	for i := range processes {
		cmd := command("count", path, strconv.Itoa(rounds), "with kernel locks")
		if i%2 == 0 {
			cmd = inNamespace(t, cmd)
		}
		all = append(all, start(t, cmd))
	}
	for _, c := range all {
		c.in.Close()
	}
	for _, c := range all {
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("a process: %v", err)
		}
	}
	if n, err := strconv.Atoi(contentOf(t, counter)); err != nil || n != processes*rounds {
		t.Errorf("the counter says %d, %v, after %d processes with %d rounds each", n, err, processes, rounds)
	}
	mustBeFree(t, path)
}

// Both have the pid 1 in their own eyes; a liveness probe would take the one
// for the other.
func TestTheLockOfAKilledProcessIsHadAtOnceAcrossPidNamespaces(t *testing.T) {
	const stale = 300 * time.Millisecond
	path := t.TempDir()
	first := start(t, inNamespace(t, command("obey", path, stale.String())))
	second := start(t, inNamespace(t, command("obey", path, stale.String())))
	if a := first.tell(t, "acquire"); a != "ok" {
		t.Fatal(a)
	}
	if a := second.tell(t, "acquire"); !strings.Contains(a, "is held") {
		t.Errorf("while it lives: %s", a)
	}
	first.signal(t, syscall.SIGSTOP)
	if a := second.tell(t, "acquire"); !strings.Contains(a, "is held") {
		t.Errorf("while it is stopped: %s", a)
	}
	// From outside its pid is known.
	_, err := lockfile.Acquire(t.Context(), lockfile.Config{StaleAfter: stale}, lockfile.Request{Dir: openDir(t, durable.Disk{}, path), Name: name})
	var held *lockfile.HeldError
	if !errors.As(err, &held) || held.PID != first.cmd.Process.Pid || !held.Stopped {
		t.Errorf("%v, want process %d, stopped", err, first.cmd.Process.Pid)
	}
	first.kill()
	if a := second.tell(t, "acquire"); a != "ok" {
		t.Errorf("after its death: %s", a)
	}
	if a := second.tell(t, "release"); a != "ok" {
		t.Error(a)
	}
	mustBeFree(t, path)
}

// On a full disk no lock is had, none is left behind, and one that is held
// can be marked and released.
func TestOnAFullDiskAHeldLockIsMarkedAndReleased(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	path := t.TempDir()
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := openDir(t, durable.Disk{}, path)
	lock := acquire(t, dir, lockfile.Config{})
	f, err := os.Create(filepath.Join(path, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	mark := lockfile.Mark{State: lockfile.MarkSpent, Fingerprint: fingerprint, At: time.Unix(1e9, 0).UTC()}
	if err := errors.Join(lock.Step(), lock.SetMark(mark), lock.Check()); err != nil {
		t.Error(err)
	}
	release(t, lock)
	// The freed block goes to the filler, and the next one finds none.
	for err = nil; err == nil; {
		_, err = f.Write(make([]byte, 512))
	}
	if lock, err := acquireAtOnce(dir, lockfile.Config{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, %v, want ENOSPC", lock, err)
	}
	if _, err := os.Lstat(dir.Join(name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file: %v", err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	lock = acquire(t, dir, lockfile.Config{})
	if lock.Mark() != mark {
		t.Errorf("the mark is %+v, want %+v", lock.Mark(), mark)
	}
	release(t, lock)
}
