//go:build linux

package procfs

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// statRoom holds a stat up to its start time at the least: 19 numbers of at
// most 20 digits and a name of at most 64 bytes. It stands on the stack, and a
// larger one would have many a goroutine's grow.
const statRoom = 512

// An Entry is an open stat file: of one process for good, never of another
// that has its pid later. The zero Entry is none.
type Entry struct{ fdPlus1 int }

// Entry opens the stat file of the process that has the pid now. The error
// is [ErrNoProcess] if none has, or none that we may see.
func (fs *FS) Entry(pid int) (Entry, error) {
	// Room for the largest pid, so that nothing is allocated for it.
	var b [24]byte
	name := append(strconv.AppendInt(b[:0], int64(pid), 10), "/stat"...)
	for pid > 0 {
		fd, err := unix.Openat(fs.fd, string(name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == nil {
			return Entry{fd + 1}, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return Entry{}, pidError(pid, err)
		}
	}
	return Entry{}, ErrNoProcess
}

// Open reports whether e is an open file.
func (e Entry) Open() bool { return e.fdPlus1 != 0 }

// Close gives the file back. It may be called on the zero Entry, but only
// once on another one.
func (e Entry) Close() {
	if e.Open() {
		_ = unix.Close(e.fdPlus1 - 1)
	}
}

// Stat says how things are now, by one read. The error is [ErrNoProcess] once
// the process was reaped by its parent.
func (e Entry) Stat() (Stat, error) {
	var b [statRoom]byte
	var st Stat
	comm, err := e.read(b[:], &st)
	if err != nil {
		return Stat{}, err
	}
	st.Comm = string(comm)
	return st, nil
}

// Again is [Entry.Stat] without the command name, which costs an allocation.
func (e Entry) Again() (Stat, error) {
	var b [statRoom]byte
	var st Stat
	_, err := e.read(b[:], &st)
	return st, err
}

func (e Entry) read(b []byte, st *Stat) (comm []byte, err error) {
	for {
		n, err := unix.Pread(e.fdPlus1-1, b, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ESRCH):
			return nil, ErrNoProcess
		case err != nil:
			return nil, fmt.Errorf("reading the stat of a process: %w", err)
		default:
			return parse(b[:n], st)
		}
	}
}

// Stat reads the stat file of the process that has the pid now, by one read.
// The error is [ErrNoProcess] if none has, or none that we may see.
func (fs *FS) Stat(pid int) (Stat, error) {
	e, err := fs.Entry(pid)
	if err != nil {
		return Stat{}, err
	}
	defer e.Close()
	st, err := e.Stat()
	if err != nil {
		return Stat{}, pidError(pid, err)
	}
	return st, nil
}

func pidError(pid int, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, ErrNoProcess) {
		return ErrNoProcess
	}
	return fmt.Errorf("reading the stat of process %d: %w", pid, err)
}
