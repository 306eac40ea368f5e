package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
)

func TestReadingIsBounded(t *testing.T) {
	dir := newDir(t)
	const limit = 1000
	for _, size := range []int{0, 1, limit - 1, limit, limit + 1, 1 << 20} {
		content := strings.Repeat("x", size)
		write(t, dir.Join("f"), content)
		f, err := dir.Read("f", limit)
		switch {
		case size > limit:
			if !errors.Is(err, durable.ErrTooLarge) || !strings.Contains(err.Error(), dir.Join("f")) {
				t.Errorf("%d bytes: %v, want ErrTooLarge and the path", size, err)
			}
		case err != nil || string(f.Bytes) != content:
			t.Errorf("%d bytes: read %d, %v", size, len(f.Bytes), err)
		}
	}
}

func TestAFileThatGrowsWhileItIsReadIsReadWholeOrRefused(t *testing.T) {
	for grown, fits := range map[int]bool{500: true, 5000: false} {
		path := t.TempDir()
		write(t, filepath.Join(path, "f"), "small")
		dir := openDirOn(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
			if s.Op == "read" {
				write(t, filepath.Join(path, "f"), strings.Repeat("x", grown))
			}
			return do()
		}}, path)
		f, err := dir.Read("f", 1000)
		if fits && (err != nil || len(f.Bytes) != grown) || !fits && !errors.Is(err, durable.ErrTooLarge) {
			t.Errorf("grown to %d: read %d, %v", grown, len(f.Bytes), err)
		}
	}
}

func TestAMissingFileIsToldFromAllElse(t *testing.T) {
	dir := newDir(t)
	if _, err := dir.Read("f", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading: %v", err)
	}
	if _, err := dir.Stat("f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("examining: %v", err)
	}
	if err := dir.Remove("f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing: %v", err)
	}
	if k, err := dir.OpenKeptReadOnly("f"); !errors.Is(err, fs.ErrNotExist) {
		k.Close()
		t.Errorf("keeping open to read: %v", err)
	}
	if _, err := durable.StatPath(dir.Join("f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("examining the path: %v", err)
	}
	if got := namesIn(t, dir.Path()); len(got) != 0 {
		t.Errorf("%q were made", got)
	}
}

func TestAReadingTellsItsVersionAndMode(t *testing.T) {
	dir := newDir(t)
	if err := dir.Replace("f", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir.Join("f"), 0o640); err != nil {
		t.Fatal(err)
	}
	f, err := dir.Read("f", 100)
	if err != nil || f.Mode != 0o640 {
		t.Errorf("mode %v, %v", f.Mode, err)
	}
	if err := os.Symlink("f", dir.Join("link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir.Join("f"), dir.Join("link")} {
		if id, err := durable.StatPath(path); err != nil || id != f.ID {
			t.Errorf("%s: %+v, %v, want %+v", path, id, err, f.ID)
		}
	}
	if id, err := dir.Stat("link"); err != nil || id == f.ID {
		t.Errorf("the link itself: %+v, %v", id, err)
	}
	if err := dir.Replace("f", []byte("two")); err != nil {
		t.Fatal(err)
	}
	if id, err := dir.Stat("f"); err != nil || id == f.ID {
		t.Errorf("after a replacement: %+v, %v", id, err)
	}
}
