package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// File is one reading of a file.
type File struct {
	Bytes []byte
	ID    ID
	Mode  fs.FileMode // permission bits
	GID   uint32
}

// Read returns the whole of a regular file that is owned by us and at most
// limit bytes long. A missing file is [fs.ErrNotExist]; see also
// [ErrNotRegular], [ErrUnsafe] and [ErrTooLarge].
func (d *Dir) Read(name string, limit int64) (File, error) {
	fd, st, err := d.openRegular(name, unix.O_RDONLY)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	if st.Size > limit {
		return File{}, fmt.Errorf("reading %s: %d bytes, over the bound of %d: %w", d.Join(name), st.Size, limit, ErrTooLarge)
	}
	f := File{ID: idOf(st), Mode: fs.FileMode(st.Mode & 0o777), GID: st.Gid}
	err = d.disk.step("read", d.Join(name), func() error {
		f.Bytes, err = readAll(fd, st.Size, limit)
		return err
	})
	if err != nil {
		return File{}, pathError("reading", d.Join(name), err)
	}
	return f, nil
}

func readAll(fd int, size, limit int64) ([]byte, error) {
	b := make([]byte, 0, size+1)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		var n int
		err := ignoringEINTR(func() (err error) {
			n, err = unix.Read(fd, b[len(b):cap(b)])
			return err
		})
		if err != nil {
			return nil, err
		}
		b = b[:len(b)+n]
		if n == 0 || int64(len(b)) == size {
			return b, nil // files are replaced, not written to: there is no more
		}
		if int64(len(b)) > limit {
			return nil, ErrTooLarge
		}
	}
}

// openRegular opens name without following a link and without blocking, and
// judges what it got by the descriptor.
func (d *Dir) openRegular(name string, flags int) (int, *unix.Stat_t, error) {
	path := d.Join(name)
	// Opening a device may already do something: look at the name first, and
	// trust only the descriptor afterwards.
	if err := d.examine(name); err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	fd := -1
	err := d.disk.step("open", path, func() (err error) {
		return ignoringEINTR(func() error {
			fd, err = unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
			return err
		})
	})
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		closeFD(fd)
		// What a link, a socket and a directory say that came after the look.
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
			return -1, nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
		}
		return -1, nil, pathError("opening", path, err)
	}
	if err := judge(path, &st); err != nil {
		closeFD(fd)
		return -1, nil, err
	}
	return fd, &st, nil
}

// examine judges what stands at name, if anything does.
func (d *Dir) examine(name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return pathError("examining", d.Join(name), err)
	}
	return judge(d.Join(name), &st)
}

func judge(path string, st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s: %w", path, ErrNotRegular)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to user %d: %w", path, st.Uid, os.Geteuid(), ErrUnsafe)
	}
	return nil
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// CreateExclusive creates name with content and mode 0600, or fails with
// [fs.ErrExist] if anything stands there (O_CREAT|O_EXCL). If the content
// cannot be written the file is unlinked again, unless the name meanwhile
// leads to another one, and the error returned. The file is not synced: it
// speaks only about living processes.
func (d *Dir) CreateExclusive(name string, content []byte) error {
	fd, err := d.createExclusive(name)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	err = d.disk.step("write", d.Join(name), func() error { return writeAll(fd, content, 0) })
	if err != nil {
		d.removeOwn(fd, name)
		return pathError("writing", d.Join(name), err)
	}
	return nil
}

// removeOwn removes name if it still leads to fd.
func (d *Dir) removeOwn(fd int, name string) {
	if d.leadsTo(fd, name) {
		_ = d.Remove(name)
	}
}

func (d *Dir) createExclusive(name string) (int, error) {
	fd := -1
	err := d.disk.step("create", d.Join(name), func() (err error) {
		return ignoringEINTR(func() error {
			fd, err = unix.Openat(d.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
			return err
		})
	})
	if err == nil {
		err = d.restoreMode(fd, name)
	}
	if err != nil {
		if fd >= 0 { // made, but reported as failed: it must not stay
			d.removeOwn(fd, name)
			closeFD(fd)
		}
		return -1, pathError("creating", d.Join(name), err)
	}
	return fd, nil
}

// restoreMode gives a file its mode 0600 where the umask took our own bits
// too, or where somebody loosened it.
func (d *Dir) restoreMode(fd int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&0o7777 == 0o600 {
		return nil
	}
	return d.disk.step("chmod", d.Join(name), func() error { return unix.Fchmod(fd, 0o600) })
}

func writeAll(fd int, b []byte, offset int64) error {
	for len(b) > 0 {
		var n int
		err := ignoringEINTR(func() (err error) {
			n, err = unix.Pwrite(fd, b, offset)
			return err
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}
