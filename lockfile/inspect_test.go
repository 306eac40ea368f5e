package lockfile_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

func TestInspectTellsWhatALockFileIs(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	for _, c := range []struct {
		name    string
		content string
		want    lockfile.Origin
	}{
		{"made under a guard", marked("NONCE"), lockfile.UnderGuard},
		{"made under another kernel", "NONCE\nguarded 00000000-0000-0000-0000-000000000000\n", lockfile.OtherBoot},
		{"made by the older rules", "NONCE\n", lockfile.Unmarked},
		{"made by somebody else", "{\"pid\": 4711}", lockfile.Unmarked},
		{"empty", "", lockfile.EmptyFile},
		{"far too large", strings.Repeat("x", 5000), lockfile.Unreadable},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newDir(t)
			put(t, dir.Join(name), c.content, now.Add(-time.Hour))
			i := lockfile.Inspect(dir, name)
			if i.Origin != c.want || !i.Since.Equal(now.Add(-time.Hour)) || i.FileErr != nil || i.Held || i.Guard {
				t.Errorf("%+v", i)
			}
		})
	}
}

func TestInspectTellsWhatIsNoLockFile(t *testing.T) {
	dir := newDir(t)
	if i := lockfile.Inspect(dir, name); i.Origin != lockfile.NoFile || i.FileErr != nil || !i.Since.IsZero() {
		t.Errorf("nothing there: %+v", i)
	}
	if err := os.Symlink("nowhere", dir.Join(name)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir.Join(name+".guard"), 0o700); err != nil {
		t.Fatal(err)
	}
	i := lockfile.Inspect(dir, name)
	if !errors.Is(i.FileErr, durable.ErrNotRegular) || !errors.Is(i.GuardErr, durable.ErrNotRegular) {
		t.Errorf("a link and a directory: %+v", i)
	}
}

func TestInspectTellsWhoHoldsTheGuard(t *testing.T) {
	dir := newDir(t)
	c := obedient(t, dir.Path(), time.Minute)
	if got := c.tell(t, "acquire"); got != "ok" {
		t.Fatal(got)
	}
	look := func() lockfile.Inspection {
		t.Helper()
		i := lockfile.Inspect(dir, name)
		if i.Origin != lockfile.UnderGuard || !i.Guard || i.GuardMode != 0o600 || i.Garbled || time.Since(i.Since) > time.Minute {
			t.Errorf("%+v", i)
		}
		return i
	}
	if i := look(); !i.Held || i.Unsure || i.Holder.PID != c.cmd.Process.Pid || i.Holder.Stopped || !strings.HasPrefix(i.Holder.Name, "lockfile.t") {
		t.Errorf("while it runs: %+v", i)
	}
	c.signal(t, syscall.SIGSTOP)
	if i := look(); !i.Held || i.Holder.PID != c.cmd.Process.Pid || !i.Holder.Stopped {
		t.Errorf("stopped: %+v", i)
	}
	c.kill()
	if i := look(); i.Held {
		t.Errorf("killed: %+v", i)
	}
	mustBeFree(t, dir.Path())
	if i := lockfile.Inspect(dir, name); i.Held || i.Origin != lockfile.NoFile || !i.Guard {
		t.Errorf("free: %+v", i)
	}
}

// A lock goes with its descriptor, and the kernel names who asked for it.
func TestInspectDoesNotNameAProcessThatHasEnded(t *testing.T) {
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("flock(1) is not installed")
	}
	dir := newDir(t)
	guard, err := os.OpenFile(dir.Join(name+".guard"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	cmd := exec.Command(flock, "-n", "3")
	cmd.ExtraFiles = []*os.File{guard}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if i := lockfile.Inspect(dir, name); !i.Held || i.Holder != (lockfile.Process{}) {
		t.Errorf("%+v", i)
	}
}

func TestInspectReadsTheMark(t *testing.T) {
	dir := newDir(t)
	lock := acquire(t, dir, lockfile.Config{})
	want := lockfile.Mark{State: lockfile.MarkSpent, Fingerprint: fingerprint, At: time.Now().UTC().Truncate(time.Second)}
	if err := lock.SetMark(want); err != nil {
		t.Fatal(err)
	}
	if i := lockfile.Inspect(dir, name); i.Mark != want || !i.Held || i.Holder.PID != os.Getpid() {
		t.Errorf("held: %+v", i)
	}
	release(t, lock)
	if i := lockfile.Inspect(dir, name); i.Mark != want || i.Held {
		t.Errorf("released: %+v", i)
	}
	put(t, dir.Join(name+".guard"), "something else\n", time.Now())
	if i := lockfile.Inspect(dir, name); i.Mark != (lockfile.Mark{}) || !i.Garbled {
		t.Errorf("garbled: %+v", i)
	}
	put(t, dir.Join(name+".guard"), "", time.Now())
	if i := lockfile.Inspect(dir, name); i.Garbled {
		t.Errorf("new: %+v", i)
	}
}

// Whoever looks must not be in the way of whoever wants the lock, and must
// leave no trace.
func TestInspectOnlyOpensAndReads(t *testing.T) {
	path := t.TempDir()
	release(t, acquire(t, openDir(t, durable.Disk{}, path), lockfile.Config{}))
	put(t, filepath.Join(path, name), marked("NONCE"), time.Now())
	dir := openDir(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op != "open" && s.Op != "read" {
			t.Errorf("%s %s", s.Op, s.Path)
		}
		return do()
	}}, path)
	if i := lockfile.Inspect(dir, name); i.Origin != lockfile.UnderGuard || i.Held {
		t.Errorf("%+v", i)
	}
}

// A lock that comes and goes is never taken for one that was left behind.
func TestInspectDoesNotTakeAHolderForDead(t *testing.T) {
	dir := newDir(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				lock, err := lockfile.Acquire(t.Context(), lockfile.Config{}, lockfile.Request{Dir: dir, Name: name})
				if err != nil {
					t.Error(err)
					return
				}
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	looks := 2000
	if testing.Short() {
		looks = 200
	}
	for range looks {
		i := lockfile.Inspect(dir, name)
		if i.FileErr != nil && !errors.Is(i.FileErr, fs.ErrNotExist) {
			t.Error(i.FileErr)
		}
		if i.Origin == lockfile.UnderGuard && !i.Held {
			t.Fatalf("a living holder looks dead: %+v", i)
		}
	}
	close(stop)
	<-done
}

// An attempt at a lock that is free never fails because somebody looks.
func TestInspectIsInNobodysWay(t *testing.T) {
	dir := newDir(t)
	release(t, acquire(t, dir, lockfile.Config{}))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				lockfile.Inspect(dir, name)
			}
		}
	}()
	attempts := 2000
	if testing.Short() {
		attempts = 200
	}
	for range attempts {
		lock, err := acquireAtOnce(dir, lockfile.Config{})
		if err != nil {
			t.Fatalf("beside somebody who looks: %v", err)
		}
		release(t, lock)
	}
	close(stop)
	<-done
}
