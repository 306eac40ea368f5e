package durable

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Kept is a small file that is never replaced and never deleted: it is kept
// open, locked with flock(2) and written in place.
//
// It is open for reading alone until it is first written: who only tries the
// lock needs no more.
type Kept struct {
	dir     *Dir
	name    string
	fd      int
	writing int // the descriptor for writing, -1 until there is one

	readOnly bool // there must not be one
}

// OpenKept opens name, making it if it is missing, and gives it mode 0600: who
// may open it may lock it. See [ErrNotRegular] and [ErrUnsafe].
func (d *Dir) OpenKept(name string) (*Kept, error) {
	fd, st, err := d.openRegular(name, unix.O_RDONLY)
	switch {
	case err == nil && st.Mode&0o7777 == 0o600:
		return &Kept{dir: d, name: name, fd: fd, writing: -1}, nil
	case err == nil:
		closeFD(fd)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return nil, err
	}
	fd, _, err = d.openRegular(name, unix.O_RDWR|unix.O_CREAT)
	if errors.Is(err, fs.ErrPermission) && d.examine(name) == nil {
		// Ours, and its maker's umask took our own bits: the maker is about to
		// give them back, or died before it could.
		err = d.disk.step("chmod", d.Join(name), func() error { return unix.Fchmodat(d.fd, name, 0o600, 0) })
		if err != nil {
			return nil, pathError("opening", d.Join(name), err)
		}
		fd, _, err = d.openRegular(name, unix.O_RDWR|unix.O_CREAT)
	}
	if err != nil {
		return nil, err
	}
	if err := d.restoreMode(fd, name); err != nil {
		closeFD(fd)
		return nil, pathError("setting the mode of", d.Join(name), err)
	}
	return &Kept{dir: d, name: name, fd: fd, writing: fd}, nil
}

// OpenKeptReadOnly opens an existing file for [Kept.Read] alone.
func (d *Dir) OpenKeptReadOnly(name string) (*Kept, error) {
	fd, _, err := d.openRegular(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &Kept{dir: d, name: name, fd: fd, writing: -1, readOnly: true}, nil
}

// forWriting opens the very file again.
func (k *Kept) forWriting() error {
	if k.writing >= 0 {
		return nil
	}
	if k.readOnly {
		return pathError("opening", k.dir.Join(k.name), unix.EBADF)
	}
	fd, st, err := k.dir.openRegular(k.name, unix.O_RDWR)
	if err != nil {
		return err
	}
	var here unix.Stat_t
	if err := unix.Fstat(k.fd, &here); err != nil || here.Dev != st.Dev || here.Ino != st.Ino {
		closeFD(fd)
		return pathError("opening", k.dir.Join(k.name), errors.Join(fs.ErrNotExist, err))
	}
	k.writing = fd
	return nil
}

// TryLock tries to take the exclusive kernel lock, without waiting: a
// blocking call can hang for ever on a network file system. It reports
// whether it got it; [ErrNoKernelLocks] means that nobody can.
func (k *Kept) TryLock() (bool, error) {
	try := func() error {
		return k.dir.disk.step("flock", k.dir.Join(k.name), func() error {
			return ignoringEINTR(func() error { return unix.Flock(k.fd, unix.LOCK_EX|unix.LOCK_NB) })
		})
	}
	err := try()
	if errors.Is(err, unix.EBADF) && k.writing < 0 {
		// NFS makes record locks of it, which want a descriptor for writing.
		if err := k.forWriting(); err != nil {
			return false, err
		}
		closeFD(k.fd)
		k.fd = k.writing
		err = try()
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return false, pathError("locking", k.dir.Join(k.name), errors.Join(ErrNoKernelLocks, err))
	default:
		return false, pathError("locking", k.dir.Join(k.name), err)
	}
}

// Current reports whether the name still leads to this very file.
func (k *Kept) Current() bool { return k.dir.leadsTo(k.fd, k.name) }

// Read returns up to limit bytes from the start of the file.
func (k *Kept) Read(limit int) ([]byte, error) {
	b := make([]byte, limit)
	var n int
	err := k.dir.disk.step("read", k.dir.Join(k.name), func() error {
		return ignoringEINTR(func() (err error) {
			n, err = unix.Pread(k.fd, b, 0)
			return err
		})
	})
	if err != nil {
		return nil, pathError("reading", k.dir.Join(k.name), err)
	}
	return b[:n], nil
}

// Write puts b at the start of the file in one pwrite(2).
func (k *Kept) Write(b []byte) error {
	if err := k.forWriting(); err != nil {
		return err
	}
	err := k.dir.disk.step("record", k.dir.Join(k.name), func() error { return writeAll(k.writing, b, 0) })
	if err != nil {
		return pathError("writing", k.dir.Join(k.name), err)
	}
	return nil
}

// Sync makes what was written durable. A record that was written before
// needs no new block, so this works on a full disk.
func (k *Kept) Sync() error {
	err := k.dir.disk.step("fsync", k.dir.Join(k.name), func() error { return fdatasync(max(k.fd, k.writing)) })
	if err != nil {
		return pathError("syncing", k.dir.Join(k.name), err)
	}
	return nil
}

// Close closes the file and with it gives the kernel lock up.
func (k *Kept) Close() {
	if k == nil {
		return
	}
	if k.fd != k.writing {
		closeFD(k.fd)
	}
	closeFD(k.writing)
	k.fd, k.writing = -1, -1
}
