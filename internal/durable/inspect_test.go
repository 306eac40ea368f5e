package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
)

func TestLookTellsOfANameWithoutFollowingIt(t *testing.T) {
	path := t.TempDir()
	dir, err := durable.Disk{}.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(path, "file"), []byte("abc"), 0o600))
	must(os.Chmod(filepath.Join(path, "file"), 0o644))
	must(os.Link(filepath.Join(path, "file"), filepath.Join(path, "hard")))
	must(os.Symlink("file", filepath.Join(path, "link")))
	must(unix.Mkfifo(filepath.Join(path, "fifo"), 0o600))
	must(os.Mkdir(filepath.Join(path, "dir"), 0o700))
	must(os.Chmod(filepath.Join(path, "dir"), 0o777|os.ModeSticky))

	for _, c := range []struct {
		name  string
		kind  fs.FileMode
		mode  uint32
		links uint64
	}{
		{"file", 0, 0o644, 2}, {"link", fs.ModeSymlink, 0o777, 1}, {"fifo", fs.ModeIrregular, 0o600, 1}, {"dir", fs.ModeDir, 0o1777, 2},
	} {
		f, err := dir.Look(c.name)
		if err != nil || f.Type != c.kind || c.kind != fs.ModeSymlink && (f.Mode != c.mode || f.Links != c.links) || int(f.UID) != os.Geteuid() {
			t.Errorf("%s: %+v, %v", c.name, f, err)
		}
		if again, err := durable.LookAt(filepath.Join(path, c.name)); err != nil || again != f {
			t.Errorf("by path, %s: %+v, %v; want %+v", c.name, again, err, f)
		}
	}
	if _, err := dir.Look("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := durable.LookAt(filepath.Join(path, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestLeftoversAreOursAlone(t *testing.T) {
	path := t.TempDir()
	dir, err := durable.Disk{}.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	temp, err := dir.Prepare("a.b.json", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer temp.Discard()
	for _, name := range []string{"a.tmp", ".a.tmp", ".a.short.tmp", ".a.AAAAAAAAAAAAAAAAAAAAAAAAAA.tm", "..tmp", ".tmp", ".AAAAAAAAAAAAAAAAAAAAAAAAAA.tmp"} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := dir.Leftovers()
	if err != nil || len(found) != 1 || found[0].Final != "a.b.json" || time.Since(found[0].Mtime) > time.Minute {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestKernelLocksAreAskedForWithoutMeetingAnybody(t *testing.T) {
	path := t.TempDir()
	answer := error(nil)
	dir, err := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op == "flock" {
			if s.Path != path {
				t.Errorf("a lock is tried on %s", s.Path)
			}
			if answer != nil {
				return answer
			}
		}
		return do()
	}}.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.KernelLocks(); err != nil {
		t.Error(err)
	}
	// It was given back.
	other, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(other) }()
	if err := unix.Flock(other, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock was kept: %v", err)
	}
	if err := dir.KernelLocks(); err != nil {
		t.Errorf("somebody else has a lock: %v", err)
	}
	answer = unix.ENOLCK
	if err := dir.KernelLocks(); !errors.Is(err, durable.ErrNoKernelLocks) {
		t.Error(err)
	}
}

func TestVolumeAndWritable(t *testing.T) {
	path := t.TempDir()
	dir, err := durable.Disk{}.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	v, err := dir.Volume()
	if err != nil || v.Kind == "" || v.ReadOnly || v.Free <= 0 || v.Files == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if err := dir.Writable(); err != nil {
		t.Error(err)
	}
}
