package durable

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watch sleeps until something happens in the file system. It only saves
// polls: an event may be missed, and says nothing but that it is worth to
// look.
type Watch struct {
	fd  int // File.Fd would make it block
	f   *os.File
	buf [4096]byte
}

// Events that a [Watch] can wait for.
const (
	Replaced = unix.IN_MOVED_TO    // a file of a directory was replaced
	Removed  = unix.IN_DELETE      // a file of a directory was removed
	Let      = unix.IN_CLOSE_WRITE // a file that was open for writing was closed, also by the death of a process
)

// NewWatch returns a watch on nothing. On a system without inotify(7), or
// with none left, it is an error.
func (d Disk) NewWatch() (*Watch, error) {
	fd := -1
	err := d.step("watch", "", func() (err error) {
		fd, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		return err
	})
	if err != nil {
		closeFD(fd)
		return nil, pathError("watching", "files", err)
	}
	return &Watch{fd: fd, f: os.NewFile(uintptr(fd), "inotify")}, nil
}

// Add waits for events at path, too.
func (w *Watch) Add(path string, events uint32) error {
	if _, err := unix.InotifyAddWatch(w.fd, path, events); err != nil {
		return pathError("watching", path, err)
	}
	return nil
}

// Wait returns at the next event, at the end of ctx, or after atMost.
func (w *Watch) Wait(ctx context.Context, atMost time.Duration) error {
	if err := w.f.SetReadDeadline(time.Now().Add(atMost)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := w.f.Read(w.buf[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// Close ends the watch; it is safe on nil.
func (w *Watch) Close() {
	if w != nil {
		_ = w.f.Close()
	}
}
