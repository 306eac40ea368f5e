package durable

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Append adds line to the end of name in one write(2), making the file with
// mode 0600 if it is missing; other processes may append at the same time.
// Nothing is synced: such a file informs, and no decision rests on it.
func (d *Dir) Append(name string, line []byte) error {
	fd, _, err := d.openRegular(name, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if err := d.restoreMode(fd, name); err != nil {
		return err
	}
	err = d.disk.step("append", d.Join(name), func() error {
		return ignoringEINTR(func() error {
			_, err := unix.Write(fd, line)
			return err
		})
	})
	if err != nil {
		return pathError("appending to", d.Join(name), err)
	}
	return nil
}

// Rotate renames name to name + ".1", replacing what stood there, if it is
// longer than limit. The caller holds a lock that every rotation holds. What
// is appended meanwhile by a process that has the old file open goes there.
func (d *Dir) Rotate(name string, limit int64) error {
	id, err := d.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && id.Size <= limit {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.disk.step("rename", d.Join(name), func() error {
		return unix.Renameat(d.fd, name, d.fd, name+".1")
	})
	if err != nil {
		return pathError("rotating", d.Join(name), err)
	}
	return nil
}
