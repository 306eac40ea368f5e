package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

func TestADirectoryOfSettingsMayBeItsGroupsTooAndNotAnothersOwn(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o775); err != nil {
		t.Fatal(err)
	}
	if _, err := (durable.Disk{}).OpenDir(path); !errors.Is(err, durable.ErrUnsafe) {
		t.Fatalf("%v: the other way of opening takes it too", err)
	}
	dir, err := durable.Disk{}.OpenSettingsDir(path)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 1, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := (durable.Disk{}).OpenSettingsDir(path); !errors.Is(err, durable.ErrUnsafe) {
			t.Errorf("another user's: %v", err)
		}
	} else if _, err := (durable.Disk{}).OpenSettingsDir("/"); !errors.Is(err, durable.ErrUnsafe) {
		t.Errorf("another user's: %v", err)
	}
	if _, err := (durable.Disk{}).OpenSettingsDir(filepath.Join(path, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing one: %v", err)
	}
}

// replaceKeeping replaces f by one with the mode and group of the old one.
func replaceKeeping(dir *durable.Dir, content string) error {
	old, err := dir.Read("f", 1000)
	if err != nil {
		return err
	}
	temp, err := dir.Prepare("f", 0)
	if err != nil {
		return err
	}
	defer temp.Discard()
	if err := temp.KeepMode(old); err != nil {
		return err
	}
	if err := temp.Fill([]byte(content)); err != nil {
		return err
	}
	return temp.Publish()
}

func TestAReplacementCanKeepModeAndGroup(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o400, 0o644, 0o640, 0o666} {
		dir := newDir(t)
		write(t, dir.Join("f"), "old")
		if err := os.Chmod(dir.Join("f"), mode); err != nil {
			t.Fatal(err)
		}
		group := os.Getegid()
		if os.Geteuid() == 0 && mode != 0o600 {
			group = 12345
			if err := os.Chown(dir.Join("f"), -1, group); err != nil {
				t.Fatal(err)
			}
		}
		if err := replaceKeeping(dir, "new"); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir.Join("f"))
		if err != nil || info.Mode() != mode || contentOf(t, dir.Join("f")) != "new" {
			t.Fatalf("%v, %v; want mode %v", info, err, mode)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Gid) != group {
			t.Errorf("mode %v: group %d, want %d", mode, st.Gid, group)
		}
	}
}

func TestAFaultAtAnyStepOfAReplacementThatKeepsTheModeLeavesTheOldOrTheNewFile(t *testing.T) {
	var path string
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		path = t.TempDir()
		write(t, filepath.Join(path, "f"), oldContent)
		if err := os.Chmod(filepath.Join(path, "f"), 0o644); err != nil {
			return err
		}
		dir, err := disk.OpenSettingsDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		return replaceKeeping(dir, newContent)
	}, func(f *durabletest.Fault, err error) { checkReplaced(t, path, f, err) })
	if steps != 9 {
		t.Errorf("%d steps were swept, want 9", steps)
	}
}
