package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file looks and changes nothing: no byte, no time but that of the last
// access, and no lock that anybody else could meet.

// Facts is what can be told of a name without opening it. A link is not
// followed.
type Facts struct {
	ID
	Type  fs.FileMode // the type bits; 0 is a regular file
	Mode  uint32      // the lower twelve bits
	UID   uint32
	GID   uint32
	Links uint64
}

// Mtime is when the content was last changed.
func (f Facts) Mtime() time.Time { return time.Unix(0, f.MtimeNsec) }

// LookAt tells of a path. A missing one is [fs.ErrNotExist].
func LookAt(path string) (Facts, error) {
	var st unix.Stat_t
	if err := ignoringEINTR(func() error { return unix.Lstat(path, &st) }); err != nil {
		return Facts{}, pathError("examining", path, err)
	}
	return factsOf(&st), nil
}

// Look tells of a name in the directory. A missing one is [fs.ErrNotExist].
func (d *Dir) Look(name string) (Facts, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Facts{}, pathError("examining", d.Join(name), err)
	}
	return factsOf(&st), nil
}

func factsOf(st *unix.Stat_t) Facts {
	f := Facts{ID: idOf(st), Mode: uint32(st.Mode) & 0o7777, UID: st.Uid, GID: st.Gid, Links: uint64(st.Nlink)} //nolint:unconvert // the widths differ between systems
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		f.Type = fs.ModeDir
	case unix.S_IFLNK:
		f.Type = fs.ModeSymlink
	case unix.S_IFSOCK:
		f.Type = fs.ModeSocket
	default:
		f.Type = fs.ModeIrregular
	}
	return f
}

// Writable reports whether a name could be made in the directory, as far as
// modes and the mount tell.
func (d *Dir) Writable() error {
	err := ignoringEINTR(func() error { return unix.Faccessat(d.fd, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) })
	if err != nil {
		return fmt.Errorf("directory %s cannot be written to: %w", d.path, err)
	}
	return nil
}

// KernelLocks reports whether the file system takes flock(2), else
// [ErrNoKernelLocks]. It asks for a shared lock on the directory's own
// descriptor and gives it back: what locks our files, and who waits for them,
// never meets it. A network file system answers for this machine alone, and
// may do so only after a long time: see [Volume].
func (d *Dir) KernelLocks() error {
	err := d.disk.step("flock", d.path, func() error {
		return ignoringEINTR(func() error { return unix.Flock(d.fd, unix.LOCK_SH|unix.LOCK_NB) })
	})
	switch {
	case err == nil:
		_ = unix.Flock(d.fd, unix.LOCK_UN)
		return nil
	case errors.Is(err, unix.EWOULDBLOCK): // somebody has one
		return nil
	default:
		return pathError("locking", d.path, errors.Join(ErrNoKernelLocks, err))
	}
}

// Volume is the file system under a directory.
type Volume struct {
	Kind     string // as mount(8) calls it; its number if we have no name for it
	Network  bool   // other machines, or another program, may be behind it: no kernel lock holds there for sure
	ReadOnly bool
	Free     int64 // bytes that this user may still write, quotas aside
	Files    int64 // that may still be made; -1 if there is no such bound
}

// Leftover is a temporary file: of a writer that is at work, or that died.
type Leftover struct {
	Name  string
	Final string // the file it was to replace
	Mtime time.Time
}

// Leftovers lists the temporary files in the directory.
func (d *Dir) Leftovers() ([]Leftover, error) {
	names, err := d.Names()
	if err != nil {
		return nil, err
	}
	var found []Leftover
	for _, name := range names {
		final, ok := finalOf(name)
		if !ok {
			continue
		}
		if f, err := d.Look(name); err == nil && f.Type == 0 {
			found = append(found, Leftover{name, final, f.Mtime()})
		}
	}
	return found, nil
}

// finalOf takes the name of a temporary file apart.
func finalOf(name string) (string, bool) {
	inner, ok := strings.CutSuffix(name, ".tmp")
	i := strings.LastIndexByte(inner, '.')
	if !ok || i < 1 || name[0] != '.' {
		return "", false
	}
	final := inner[1:i]
	return final, isTemp(name, final)
}

// forUs is the part of the free blocks that this user may take.
func forUs(all, unprivileged uint64) uint64 {
	if os.Geteuid() == 0 {
		return all
	}
	return unprivileged
}
