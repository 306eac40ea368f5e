package durable

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// Bell wakes all who wait for one process at once, when that rings or dies.
// It is a FIFO: the process that is waited for keeps it open for writing, and
// closing that end hangs up on all who have it open for reading. It only saves
// polls: a ring may be missed, and says nothing but that it is worth to look.
//
// (inotify(7) would do without the file, but closing an instance that watches
// anything takes milliseconds of waiting for the kernel.)
type Bell struct {
	fd   int
	rung bool
}

// HangBell opens the bell name for a process that others wait for, making it
// if it is missing.
func (d *Dir) HangBell(name string) (*Bell, error) { return d.bell(name, unix.O_RDWR) }

// HearBell opens the bell name for a process that waits.
func (d *Dir) HearBell(name string) (*Bell, error) { return d.bell(name, unix.O_RDONLY) }

func (d *Dir) bell(name string, flags int) (*Bell, error) {
	path := d.Join(name)
	fd := -1
	open := func() (err error) {
		fd, err = unix.Openat(d.fd, name, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	}
	err := d.disk.step("bell", path, func() error {
		err := open()
		if errors.Is(err, fs.ErrNotExist) {
			if err = unix.Mkfifoat(d.fd, name, 0o600); err == nil || errors.Is(err, fs.ErrExist) {
				err = open()
			}
		}
		return err
	})
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFIFO {
		err = errors.New("not a FIFO")
	}
	if err != nil {
		closeFD(fd)
		return nil, pathError("opening", path, err)
	}
	return &Bell{fd: fd}, nil
}

const (
	// endOfWait bounds how long the end of a context may go unnoticed.
	endOfWait = 50 * time.Millisecond
	// rungOut is how often a waiter looks whose bell has rung and does not hang
	// again.
	rungOut = 2 * time.Millisecond
)

// Wait returns when the bell rings or after atMost, and within 50 ms of the
// end of ctx. It sleeps in the kernel with a thread of its own: for a process
// that does nothing else, that is cheaper than Go's poller and its timers.
func (b *Bell) Wait(ctx context.Context, atMost time.Duration) error {
	if b.rung {
		// It rings on until somebody hangs it again.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}, 0)
		if b.rung = err == nil && n > 0; b.rung {
			atMost = min(atMost, rungOut)
		}
	}
	for end := time.Now().Add(atMost); ctx.Err() == nil; {
		left := min(time.Until(end), endOfWait)
		if left <= 0 {
			return nil
		}
		fds := []unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}
		if b.rung {
			fds = nil // it would only ring on
		}
		n, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			b.rung = true
			return nil
		}
	}
	return nil
}

// Ring wakes all who wait, if the bell was hung, and closes it. It is safe on
// nil and to be called twice.
func (b *Bell) Ring() {
	if b != nil {
		closeFD(b.fd)
		b.fd = -1
	}
}
