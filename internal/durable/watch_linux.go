package durable

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Watch sleeps until something happens in the file system. It only saves
// polls: an event may be missed, and says nothing but that it is worth to
// look.
type Watch struct{ fd int }

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
	return &Watch{fd}, nil
}

// Add waits for events at path, too.
func (w *Watch) Add(path string, events uint32) error {
	if _, err := unix.InotifyAddWatch(w.fd, path, events); err != nil {
		return pathError("watching", path, err)
	}
	return nil
}

// endOfWait bounds how long the end of a context may go unnoticed.
const endOfWait = 50 * time.Millisecond

// Wait returns at the next event or after atMost, and within 50 ms of the end
// of ctx. It sleeps in the kernel with a thread of its own: for a process that
// does nothing else, that is cheaper than Go's poller and its timers.
func (w *Watch) Wait(ctx context.Context, atMost time.Duration) error {
	for end := time.Now().Add(atMost); ctx.Err() == nil; {
		left := min(time.Until(end), endOfWait)
		if left <= 0 {
			return nil
		}
		fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			var buf [4096]byte
			_, err := unix.Read(w.fd, buf[:])
			return err
		}
	}
	return nil
}

// Close ends the watch; it is safe on nil.
func (w *Watch) Close() {
	if w != nil {
		closeFD(w.fd)
	}
}
