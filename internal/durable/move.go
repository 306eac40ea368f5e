package durable

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Move gives a regular file of ours another name in its directory, and mode
// 0600, and makes that durable. It replaces nothing: if anything stands at to
// it is [fs.ErrExist]. At no moment does the file have no name.
//
// On a file system that cannot rename without replacing, the file has both
// names for a moment, and keeps them after a crash there; Move completes that
// when it is called again. An error that is [ErrNotSynced] means that the file
// was moved and may have its old name again after a loss of power.
func (d *Dir) Move(from, to string) error {
	fd, _, err := d.openRegular(from, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if err := d.restoreMode(fd, from); err != nil {
		return pathError("setting the mode of", d.Join(from), err)
	}
	err = d.disk.step("rename", d.Join(to), func() error {
		err := renameNew(d.fd, from, to)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
			if err = unix.Linkat(d.fd, from, d.fd, to, 0); err == nil {
				err = unix.Unlinkat(d.fd, from, 0)
			}
		}
		if errors.Is(err, fs.ErrExist) && d.leadsTo(fd, to) && d.leadsTo(fd, from) {
			err = unix.Unlinkat(d.fd, from, 0)
		}
		return err
	})
	if err != nil {
		return pathError("renaming", d.Join(from), err)
	}
	if err := d.Sync(); err != nil {
		return errors.Join(ErrNotSynced, err)
	}
	return nil
}
