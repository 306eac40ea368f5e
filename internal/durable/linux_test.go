//go:build linux

package durable_test

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

// descriptors returns what this process has open.
func descriptors(t *testing.T) map[string]string {
	t.Helper()
	open := map[string]string{}
	for _, name := range namesIn(t, "/proc/self/fd") {
		if to, err := os.Readlink("/proc/self/fd/" + name); err == nil {
			open[name] = to
		}
	}
	return open
}

func TestNoPathLeaksADescriptor(t *testing.T) {
	base, run := t.TempDir(), 0
	durabletest.Sweep(t, func(disk durable.Disk) error {
		run++
		dir, err := disk.MakeDir(filepath.Join(base, strconv.Itoa(run), "b"))
		if err != nil {
			return err
		}
		defer dir.Close()
		if err := dir.CreateExclusive("x", []byte("x")); err != nil {
			return err
		}
		if _, err := dir.Read("x", 10); err != nil {
			return err
		}
		k, err := dir.OpenKept("kept")
		if err != nil {
			return err
		}
		defer k.Close()
		if _, err := k.TryLock(); err != nil {
			return err
		}
		if _, err := dir.Names(); err != nil {
			return err
		}
		temp, err := dir.Prepare("f", 100)
		if err != nil {
			return err
		}
		defer temp.Discard()
		if err := temp.Fill([]byte("x")); err != nil {
			return err
		}
		return temp.Publish()
	}, func(*durabletest.Fault, error) {
		for fd, to := range descriptors(t) {
			if rel, err := filepath.Rel(base, to); err == nil && filepath.IsLocal(rel) {
				t.Errorf("descriptor %s is still open: %s", fd, to)
			}
		}
	})
	dir := openDir(t, base)
	if err := os.Symlink("nowhere", dir.Join("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	before := len(descriptors(t))
	for range 10 {
		_, _ = dir.Read("link", 10)
		_, _ = dir.OpenKept("link")
		_ = dir.Replace("link", nil)
		_, _ = dir.Read("missing", 10)
		_ = dir.CreateExclusive("link", nil)
		_, _ = durable.Disk{}.OpenDir(base) // writable by others
	}
	if after := len(descriptors(t)); after != before {
		t.Errorf("%d descriptors before, %d after refusals", before, after)
	}
}

func TestNoChildInheritsADescriptor(t *testing.T) {
	dir := newDir(t)
	k := openKept(t, dir)
	temp, err := dir.Prepare("f", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer temp.Discard()
	defer k.Close()
	seen := 0
	for fd, to := range descriptors(t) {
		if rel, err := filepath.Rel(dir.Path(), to); err != nil || !filepath.IsLocal(rel) {
			continue
		}
		seen++
		n, err := strconv.Atoi(fd)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: flags %x, %v, want FD_CLOEXEC", to, flags, err)
		}
	}
	if seen != 3 {
		t.Errorf("%d descriptors seen, want 3: directory, kept file, temporary file", seen)
	}
}

// Signals interrupt system calls; the runtime itself sends SIGURG to every
// busy thread.
func TestAStormOfSignalsInterruptsNothing(t *testing.T) {
	dir := newDir(t)
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Kill(os.Getpid(), unix.SIGURG)
			}
		}
	})
	defer storm.Wait()
	defer close(stop)
	for range 50 {
		temp, err := dir.Prepare("f", 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := temp.Fill(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		if err := temp.Publish(); err != nil {
			t.Fatal(err)
		}
		k, err := dir.OpenKept("kept")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.TryLock(); err != nil || !got {
			t.Fatal(got, err)
		}
		k.Close()
		if f, err := dir.Read("f", 1<<20); err != nil || len(f.Bytes) != 100_000 {
			t.Fatalf("read %d bytes, %v", len(f.Bytes), err)
		}
	}
}
