package logincmd

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// foreground reports whether f is a terminal that this process may read from:
// a job in the background would be stopped for it. A terminal that controls
// other processes stops nobody here.
func foreground(f *os.File) bool {
	if !term.IsTerminal(int(f.Fd())) {
		return false
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// enterPause is the time between two looks at the terminal while it belongs to
// others.
const enterPause = 200 * time.Millisecond

// onEnter calls entered when a line is entered, or the terminal is gone. It
// reads nothing before there is a line, and nothing at all once its result was
// called: what is entered then is for who asks next.
func onEnter(f *os.File, entered func()) (stop func()) {
	stopping, stopped, err := os.Pipe()
	if err != nil {
		return func() {} // nobody is listened to, but the wait goes on
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if awaitLine(f, stopping) {
			var line [4096]byte // a terminal gives one line at a time
			_, _ = f.Read(line[:])
			entered()
		}
	}()
	return func() {
		_ = stopped.Close()
		<-ended
		_ = stopping.Close()
	}
}

// awaitLine reports whether reading from f would not wait; false when the
// other end of stopping is closed first.
func awaitLine(f, stopping *os.File) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}, {Fd: int32(stopping.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, -1)
		switch {
		case n > 0 && fds[1].Revents != 0:
			return false
		case n > 0 && (fds[0].Revents&unix.POLLIN == 0 || foreground(f)):
			return true
		case err == nil:
			// The line is not for us, now that we are in the background.
			_, _ = unix.Poll(fds[1:], int(enterPause.Milliseconds()))
		}
	}
}
