// Package durable is the only writer of files in this program.
//
// Its promise: a file that was replaced through it holds, after any crash or
// power loss, either all of the old bytes or all of the new ones; and once
// [Temp.Publish] or [Dir.Replace] has returned nil, the new ones.
//
// The order that carries the promise: temporary file in the same directory
// (O_EXCL, 0600), all bytes, fsync of the file, rename, fsync of the
// directory. A file whose fsync failed is never used again, because the
// kernel may have dropped the dirty pages and reports the error only once.
//
// Directories are held by descriptor and files are judged by theirs, never by
// name. Nothing here follows a symbolic link in the last component, and
// nothing blocks on a FIFO or a device in a file's place.
package durable

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

var (
	// ErrUnsafe says that a directory or file is not ours or that others may
	// change it. Nothing was read from it or written to it.
	ErrUnsafe = errors.New("unsafe owner or mode")
	// ErrNotRegular says that something else than a regular file stands at
	// the path: a link, a FIFO, a device, a directory.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLarge says that a file is over the bound its reader gave.
	ErrTooLarge = errors.New("file too large")
	// ErrNotSynced says that the new content is in place but may not survive
	// a power loss: the rename was done and the fsync of the directory
	// failed.
	ErrNotSynced = errors.New("directory not synced after the rename")
	// ErrNoKernelLocks says that the file system offers no flock(2).
	ErrNoKernelLocks = errors.New("file system without kernel locks")
)

// Step names one operation on the disk, for [Disk.Hook].
type Step struct {
	Op   string // open, read, create, reserve, write, fsync, rename, fsyncdir, unlink, mkdir, chmod, flock, record, append, bell
	Path string
}

// Disk is the real file system, with a place to stand between this program
// and every operation on it. The zero value is the plain disk.
type Disk struct {
	// Hook, when set, is called in place of each step and decides whether do
	// runs and what is reported: the error paths of every caller are swept
	// with it. It must be safe for concurrent use.
	Hook func(s Step, do func() error) error
}

func (d Disk) step(op, path string, do func() error) error {
	if d.Hook == nil {
		return do()
	}
	return d.Hook(Step{op, path}, do)
}

// ID tells two versions of a file apart. An inode number alone comes back
// after two replacements; with size and both times it does not, as long as
// the clock of the file system moves between two writes.
type ID struct {
	Dev, Ino             uint64
	Size                 int64
	MtimeNsec, CtimeNsec int64
}

func idOf(st *unix.Stat_t) ID {
	return ID{
		Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, //nolint:unconvert // the width of Dev differs between systems
		MtimeNsec: unix.TimespecToNsec(st.Mtim), CtimeNsec: unix.TimespecToNsec(st.Ctim),
	}
}

// StatPath returns the ID of the file that path leads to, following links:
// the cheapest question that tells whether a cached reading still holds.
func StatPath(path string) (ID, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Stat(path, &st) }); err != nil {
		return ID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return idOf(&st), nil
}

// Probe asks for one path's [ID] again and again, as [StatPath] does.
type Probe struct {
	path string
	raw  []byte // the path and a NUL, for a file system that answers at once
}

// NewProbe returns a probe of path.
func NewProbe(path string) *Probe { return &Probe{path, rawPath(path)} }

// ID returns the ID of the file that the path leads to, following links.
func (p *Probe) ID() (ID, error) {
	if p.raw == nil {
		return StatPath(p.path)
	}
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return rawStat(p.raw, &st) }); err != nil {
		return ID{}, &fs.PathError{Op: "stat", Path: p.path, Err: err}
	}
	return idOf(&st), nil
}

// ignoringEINTR repeats f while a signal interrupts it.
func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func pathError(doing, path string, err error) error {
	return fmt.Errorf("%s %s: %w", doing, path, err)
}
