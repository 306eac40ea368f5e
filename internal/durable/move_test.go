package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

func TestAMovedFileIsPrivateAndReplacesNothing(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "a"), oldContent)
	if err := os.Chmod(filepath.Join(path, "a"), 0o644); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "taken"), newContent)
	dir := openDirOn(t, durable.Disk{}, path)
	if err := dir.Move("a", "taken"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("onto another file: %v", err)
	}
	if err := dir.Move("missing", "b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := dir.Move("a", "b"); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{"b", "taken"}) {
		t.Errorf("%q stand there", got)
	}
	if info, err := os.Stat(filepath.Join(path, "b")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A crash between the two names, where a file system knows no other way.
func TestAMoveThatLeftBothNamesIsCompleted(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, "a"), oldContent)
	if err := os.Link(filepath.Join(path, "a"), filepath.Join(path, "b")); err != nil {
		t.Fatal(err)
	}
	if err := openDirOn(t, durable.Disk{}, path).Move("a", "b"); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%q stand there", got)
	}
}

func TestAMoveIsDoneOrNotWhateverFails(t *testing.T) {
	var path string
	durabletest.Sweep(t, func(disk durable.Disk) error {
		path = t.TempDir()
		write(t, filepath.Join(path, "a"), oldContent)
		dir, err := disk.OpenDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		return dir.Move("a", "b")
	}, func(_ *durabletest.Fault, err error) {
		got := namesIn(t, path)
		switch {
		case err == nil && !slices.Equal(got, []string{"b"}):
			t.Errorf("after success %q stand there", got)
		case errors.Is(err, durable.ErrNotSynced) && !slices.Equal(got, []string{"b"}):
			t.Errorf("moved and not synced, and %q stand there", got)
		case len(got) != 1:
			t.Errorf("%q stand there", got)
		}
	})
}
