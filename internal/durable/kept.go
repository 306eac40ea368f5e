package durable

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Kept is a small file that is never replaced and never deleted: it is kept
// open, locked with flock(2) and written in place.
type Kept struct {
	dir  *Dir
	name string
	fd   int
}

// OpenKept opens name for reading and writing, making it if it is missing,
// and gives it mode 0600: who may open it may lock it. See [ErrNotRegular]
// and [ErrUnsafe].
func (d *Dir) OpenKept(name string) (*Kept, error) {
	fd, _, err := d.openRegular(name, unix.O_RDWR|unix.O_CREAT)
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
	return &Kept{d, name, fd}, nil
}

// OpenKeptReadOnly opens an existing file for [Kept.Read] alone.
func (d *Dir) OpenKeptReadOnly(name string) (*Kept, error) {
	fd, _, err := d.openRegular(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &Kept{d, name, fd}, nil
}

// TryLock tries to take the exclusive kernel lock, without waiting: a
// blocking call can hang for ever on a network file system. It reports
// whether it got it; [ErrNoKernelLocks] means that nobody can.
func (k *Kept) TryLock() (bool, error) {
	err := k.dir.disk.step("flock", k.dir.Join(k.name), func() error {
		return ignoringEINTR(func() error { return unix.Flock(k.fd, unix.LOCK_EX|unix.LOCK_NB) })
	})
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

// Inode returns the inode number, the name of the lock in /proc/locks.
func (k *Kept) Inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(k.fd, &st); err != nil {
		return 0, pathError("examining", k.dir.Join(k.name), err)
	}
	return st.Ino, nil
}

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
	err := k.dir.disk.step("record", k.dir.Join(k.name), func() error { return writeAll(k.fd, b, 0) })
	if err != nil {
		return pathError("writing", k.dir.Join(k.name), err)
	}
	return nil
}

// Sync makes what was written durable. A record that was written before
// needs no new block, so this works on a full disk.
func (k *Kept) Sync() error {
	err := k.dir.disk.step("fsync", k.dir.Join(k.name), func() error { return fdatasync(k.fd) })
	if err != nil {
		return pathError("syncing", k.dir.Join(k.name), err)
	}
	return nil
}

// Close closes the file and with it gives the kernel lock up.
func (k *Kept) Close() {
	if k != nil && k.fd >= 0 {
		_ = unix.Close(k.fd)
		k.fd = -1
	}
}
