package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is a directory held by descriptor: what is done through it happens in
// that directory even if its name meanwhile leads elsewhere.
type Dir struct {
	disk Disk
	fd   int
	path string
}

// MakeDir makes path and its missing parents with mode 0700, whatever the
// umask, and opens it as [Disk.OpenDir] does.
func (d Disk) MakeDir(path string) (*Dir, error) {
	dir, err := d.OpenDir(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	var missing []string
	for p := path; ; p = filepath.Dir(p) {
		if _, err := os.Lstat(p); err == nil || p == filepath.Dir(p) {
			break
		}
		missing = append(missing, p)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		err := d.step("mkdir", missing[i], func() error { return os.Mkdir(missing[i], 0o700) })
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, pathError("making directory", missing[i], err)
		}
	}
	return d.OpenDir(path)
}

// OpenDir opens the directory at path, which may be reached through links,
// and refuses it with [ErrUnsafe] if it is not owned by this process's
// effective user or if group or others may write to it.
func (d Disk) OpenDir(path string) (*Dir, error) {
	dir := &Dir{disk: d, fd: -1, path: path}
	err := d.step("open", path, func() (err error) {
		return ignoringEINTR(func() error {
			dir.fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			return err
		})
	})
	if err != nil {
		dir.Close()
		return nil, pathError("opening directory", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		dir.Close()
		return nil, pathError("examining directory", path, err)
	}
	if int(st.Uid) != os.Geteuid() {
		dir.Close()
		return nil, fmt.Errorf("directory %s belongs to user %d, not to user %d: %w", path, st.Uid, os.Geteuid(), ErrUnsafe)
	}
	if st.Mode&0o022 != 0 {
		dir.Close()
		return nil, fmt.Errorf("directory %s has mode %04o, others may write to it (chmod go-w %s): %w", path, st.Mode&0o7777, path, ErrUnsafe)
	}
	return dir, nil
}

// Path returns the path the directory was opened by.
func (d *Dir) Path() string { return d.path }

// Join returns the path of a file in the directory, for messages.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// Close gives the descriptor back.
func (d *Dir) Close() {
	if d != nil && d.fd >= 0 {
		_ = unix.Close(d.fd)
		d.fd = -1
	}
}

// File is one reading of a file.
type File struct {
	Bytes []byte
	ID    ID
	Mode  fs.FileMode // permission bits
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
	f := File{ID: idOf(st), Mode: fs.FileMode(st.Mode & 0o777)}
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
		if n == 0 {
			return b, nil
		}
		b = b[:len(b)+n]
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
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
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
		if errors.Is(err, unix.ELOOP) {
			return -1, nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
		}
		return -1, nil, pathError("opening", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		closeFD(fd)
		return -1, nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	if int(st.Uid) != os.Geteuid() {
		closeFD(fd)
		return -1, nil, fmt.Errorf("%s belongs to user %d, not to user %d: %w", path, st.Uid, os.Geteuid(), ErrUnsafe)
	}
	return fd, &st, nil
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// Stat returns the ID of name itself (a link is not followed).
func (d *Dir) Stat(name string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return ID{}, pathError("examining", d.Join(name), err)
	}
	return idOf(&st), nil
}

// Remove unlinks name. A missing name is [fs.ErrNotExist].
func (d *Dir) Remove(name string) error {
	err := d.disk.step("unlink", d.Join(name), func() error {
		return unix.Unlinkat(d.fd, name, 0)
	})
	if err != nil {
		return pathError("removing", d.Join(name), err)
	}
	return nil
}

// Sync makes what was created, renamed or removed in the directory durable.
func (d *Dir) Sync() error {
	err := d.disk.step("fsyncdir", d.path, func() error { return fsync(d.fd) })
	if err != nil {
		return pathError("syncing directory", d.path, err)
	}
	return nil
}

// CreateExclusive creates name with content and mode 0600, or fails with
// [fs.ErrExist] if anything stands there (O_CREAT|O_EXCL). If the content
// cannot be written the file is unlinked again and the error returned. The
// file is not synced: it speaks only about living processes.
func (d *Dir) CreateExclusive(name string, content []byte) error {
	fd, err := d.createExclusive(name)
	if err != nil {
		return err
	}
	err = d.disk.step("write", d.Join(name), func() error { return writeAll(fd, content, 0) })
	closeFD(fd)
	if err != nil {
		_ = d.Remove(name)
		return pathError("writing", d.Join(name), err)
	}
	return nil
}

func (d *Dir) createExclusive(name string) (int, error) {
	fd := -1
	err := d.disk.step("create", d.Join(name), func() (err error) {
		return ignoringEINTR(func() error {
			fd, err = unix.Openat(d.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
			return err
		})
	})
	if err != nil {
		if fd >= 0 { // made, but reported as failed: it must not stay
			closeFD(fd)
			_ = d.Remove(name)
		}
		return -1, pathError("creating", d.Join(name), err)
	}
	return fd, nil
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
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}

// Names returns the names in the directory.
func (d *Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// RemoveOldTemps removes the temporary files of final that are older than
// age at now: a crashed writer left them, and they may hold a secret. The
// caller must hold the lock that every writer of final holds.
func (d *Dir) RemoveOldTemps(final string, now time.Time, age time.Duration) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "."+final+".") || !strings.HasSuffix(name, ".tmp") {
			continue
		}
		id, err := d.Stat(name)
		if err != nil || now.Sub(time.Unix(0, id.MtimeNsec)) <= age {
			continue
		}
		if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
