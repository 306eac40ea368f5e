//go:build crash && linux

package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
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
	return path
}

// fillUp leaves no byte free.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(path, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 512)); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestOnAFullDiskNothingIsPreparedAndTheOldFileStays(t *testing.T) {
	path := smallDisk(t)
	old := strings.Repeat(oldContent, 20)
	write(t, filepath.Join(path, "f"), old)
	fillUp(t, path)
	dir := openDir(t, path)
	for what, do := range map[string]func() error{
		"preparing": func() error { _, err := dir.Prepare("f", int64(len(old))+16<<10); return err },
		"replacing": func() error { return dir.Replace("f", []byte(old+"more")) },
		"creating":  func() error { return dir.CreateExclusive("lock", []byte("x")) },
	} {
		if err := do(); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want ENOSPC and the path", what, err)
		}
	}
	if got := contentOf(t, filepath.Join(path, "f")); got != old {
		t.Errorf("the old file has changed: %d bytes, had %d", len(got), len(old))
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{"f", "filler"}) {
		t.Errorf("%q stand in the directory", got)
	}
}

func TestWhatWasReservedCanBeWrittenOnADiskThatIsFullSince(t *testing.T) {
	path := smallDisk(t)
	write(t, filepath.Join(path, "f"), oldContent)
	dir := openDir(t, path)
	temp, err := dir.Prepare("f", 20<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer temp.Discard()
	fillUp(t, path)
	content := strings.Repeat("x", 20<<10)
	if err := temp.Fill([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := temp.Publish(); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, filepath.Join(path, "f")); got != content {
		t.Errorf("the file holds %d bytes", len(got))
	}
}

func TestMoreThanWasReservedFailsOnAFullDiskAndLeavesTheOldFile(t *testing.T) {
	path := smallDisk(t)
	write(t, filepath.Join(path, "f"), oldContent)
	dir := openDir(t, path)
	temp, err := dir.Prepare("f", 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	fillUp(t, path)
	if err := temp.Fill([]byte(strings.Repeat("x", 40<<10))); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want ENOSPC", err)
	}
	if temp.Intact() {
		t.Error("the temporary file can still be used")
	}
	if got := contentOf(t, filepath.Join(path, "f")); got != oldContent {
		t.Errorf("the file holds %q", got)
	}
	if got := namesIn(t, path); !slices.Equal(got, []string{"f", "filler"}) {
		t.Errorf("%q stand in the directory", got)
	}
}

func TestARecordThatWasWrittenOnceNeedsNoRoom(t *testing.T) {
	path := smallDisk(t)
	k := openKept(t, openDir(t, path))
	if err := k.Write(make([]byte, 160)); err != nil {
		t.Fatal(err)
	}
	fillUp(t, path)
	if err := k.Write([]byte(strings.Repeat("x", 160))); err != nil {
		t.Error(err)
	}
	if err := k.Sync(); err != nil {
		t.Error(err)
	}
}

// A file system that cannot reserve takes zeros.
func TestRoomIsFilledWithZerosWhereItCannotBeReserved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	path := t.TempDir()
	// ramfs knows no fallocate.
	if err := unix.Mount("ramfs", path, "ramfs", 0, "mode=0700"); err != nil {
		t.Skipf("mounting a ramfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := openDir(t, path)
	temp, err := dir.Prepare("f", 5000)
	if err != nil {
		t.Fatal(err)
	}
	names := namesIn(t, path)
	if st, err := os.Stat(filepath.Join(path, names[0])); err != nil || st.Size() != 5000 {
		t.Errorf("%v, %v, want 5000 bytes of room", st, err)
	}
	if err := temp.Fill([]byte(newContent)); err != nil {
		t.Fatal(err)
	}
	if err := temp.Publish(); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, filepath.Join(path, "f")); got != newContent {
		t.Errorf("the file holds %q", got)
	}
}
