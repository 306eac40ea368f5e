package durable_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

// lock takes the kernel lock of "kept" in the directory of its argument, says
// so, and holds it until its standard input ends.
func lock(args []string) error {
	dir, err := durable.Disk{}.OpenDir(args[0])
	if err != nil {
		return err
	}
	k, err := dir.OpenKept("kept")
	if err != nil {
		return err
	}
	got, err := k.TryLock()
	if err != nil || !got {
		return fmt.Errorf("not locked: %w", err)
	}
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func openKept(t *testing.T, dir *durable.Dir) *durable.Kept {
	t.Helper()
	k, err := dir.OpenKept("kept")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func TestTheKernelLockExcludesOtherProcessesAndEndsWithItsHolder(t *testing.T) {
	dir := newDir(t)
	k := openKept(t, dir)
	cmd := exec.Command(os.Args[0], dir.Path())
	cmd.Env = environment("lock")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "locked\n" {
		t.Fatalf("the other process: %q, %v", line, err)
	}
	soon(t, "the lock", func() {
		if got, err := k.TryLock(); err != nil || got {
			t.Errorf("locked by another process: %v, %v", got, err)
		}
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got, err := k.TryLock(); err != nil || !got {
		t.Errorf("after its death: %v, %v", got, err)
	}
}

func TestTwoDescriptorsExcludeEachOtherUntilOneIsClosed(t *testing.T) {
	dir := newDir(t)
	a, b := openKept(t, dir), openKept(t, dir)
	if got, err := a.TryLock(); err != nil || !got {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := a.TryLock(); err != nil || !got {
		t.Errorf("again by its holder: %v, %v", got, err)
	}
	if got, err := b.TryLock(); err != nil || got {
		t.Errorf("by another: %v, %v", got, err)
	}
	a.Close()
	a.Close()
	if got, err := b.TryLock(); err != nil || !got {
		t.Errorf("after closing: %v, %v", got, err)
	}
	(*durable.Kept)(nil).Close()
}

func TestAFileSystemWithoutKernelLocksIsToldFromOtherErrors(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{
		unix.ENOLCK: true, unix.EOPNOTSUPP: true, unix.ENOSYS: true, unix.EINVAL: true,
		unix.EIO: false, unix.EBADF: false,
	} {
		dir := openDirOn(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
			if s.Op == "flock" {
				return errno
			}
			return do()
		}}, t.TempDir())
		got, err := openKept(t, dir).TryLock()
		if got || !errors.Is(err, errno) || errors.Is(err, durable.ErrNoKernelLocks) != want {
			t.Errorf("%v: %v, %v", errno, got, err)
		}
	}
}

func TestAKeptFileKnowsWhetherItsNameStillLeadsToIt(t *testing.T) {
	dir := newDir(t)
	k := openKept(t, dir)
	if !k.Current() {
		t.Error("not current at first")
	}
	if err := os.Remove(dir.Join("kept")); err != nil {
		t.Fatal(err)
	}
	if k.Current() {
		t.Error("current after it was removed")
	}
	write(t, dir.Join("kept"), "")
	if k.Current() {
		t.Error("current after another took its name")
	}
	second := openKept(t, dir)
	if !second.Current() {
		t.Error("not current under its own name")
	}
	if err := os.Rename(dir.Join("kept"), dir.Join("real")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", dir.Join("kept")); err != nil {
		t.Fatal(err)
	}
	if second.Current() {
		t.Error("current through a link")
	}
}

func TestAKeptFileIsWrittenInPlace(t *testing.T) {
	dir := newDir(t)
	k := openKept(t, dir)
	if b, err := k.Read(10); err != nil || len(b) != 0 {
		t.Errorf("at first: %q, %v", b, err)
	}
	for _, c := range []struct{ write, want string }{{"first", "first"}, {"2nd", "2ndst"}} {
		if err := k.Write([]byte(c.write)); err != nil {
			t.Fatal(err)
		}
		if err := k.Sync(); err != nil {
			t.Fatal(err)
		}
		if b, err := k.Read(10); err != nil || string(b) != c.want {
			t.Errorf("%q, %v, want %q", b, err, c.want)
		}
	}
	if b, err := k.Read(2); err != nil || string(b) != "2n" {
		t.Errorf("two bytes: %q, %v", b, err)
	}
	reader, err := dir.OpenKeptReadOnly("kept")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if b, err := reader.Read(10); err != nil || string(b) != "2ndst" {
		t.Errorf("read only: %q, %v", b, err)
	}
	if err := reader.Write([]byte("x")); err == nil {
		t.Error("written through a read-only descriptor")
	}
	if got := contentOf(t, dir.Join("kept")); got != "2ndst" {
		t.Errorf("the file holds %q", got)
	}
}

func TestAFaultAtAnyStepOfAKeptFileIsReportedAndHarmsNothing(t *testing.T) {
	var path string
	durabletest.Sweep(t, func(disk durable.Disk) error {
		path = t.TempDir()
		dir, err := disk.OpenDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		k, err := dir.OpenKept("kept")
		if err != nil {
			return err
		}
		defer k.Close()
		if _, err := k.TryLock(); err != nil {
			return err
		}
		if err := k.Write([]byte("content")); err != nil {
			return err
		}
		return k.Sync()
	}, func(f *durabletest.Fault, err error) {
		if f.Hit() != errors.Is(err, durabletest.ErrInjected) {
			t.Errorf("returned %v", err)
		}
		k := openKept(t, openDir(t, path))
		if got, err := k.TryLock(); err != nil || !got {
			t.Errorf("the kernel lock stays: %v, %v", got, err)
		}
		if b, err := k.Read(10); err != nil || len(b) != 0 && string(b) != "content" {
			t.Errorf("%q, %v", b, err)
		}
	})
}

func TestErrorsNameThePathAndWhatWasDone(t *testing.T) {
	path := t.TempDir()
	for op, do := range map[string]func(d *durable.Dir) error{
		"fsyncdir": func(d *durable.Dir) error { return d.Sync() },
		"unlink":   func(d *durable.Dir) error { return d.Remove("f") },
		"rename":   func(d *durable.Dir) error { return d.Replace("f", nil) },
		"create":   func(d *durable.Dir) error { return d.Replace("f", nil) },
		"write":    func(d *durable.Dir) error { return d.CreateExclusive("g", []byte("x")) },
		"read":     func(d *durable.Dir) error { _, err := d.Read("f", 10); return err },
	} {
		write(t, path+"/f", "")
		dir := openDirOn(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
			if s.Op == op {
				return unix.EIO
			}
			return do()
		}}, path)
		if err := do(dir); !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want EIO and the path", op, err)
		}
	}
}
