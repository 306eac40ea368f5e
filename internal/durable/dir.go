package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
// umask, makes that durable, and opens path as [Disk.OpenDir] does.
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
		if err := d.makeDir(missing[i]); err != nil {
			return nil, pathError("making directory", missing[i], err)
		}
	}
	return d.OpenDir(path)
}

// makeDir makes one directory and syncs its parent: a file that was made
// durable in a directory which is lost with the power would be lost too.
func (d Disk) makeDir(path string) error {
	err := d.step("mkdir", path, func() error { return os.Mkdir(path, 0o700) })
	switch {
	case errors.Is(err, fs.ErrExist): // somebody else made it meanwhile
	case err != nil:
		return err
	default:
		// The umask may have taken our own bits too.
		st, err := os.Lstat(path)
		if err == nil && st.Mode().Perm()&0o700 != 0o700 {
			err = d.step("chmod", path, func() error { return os.Chmod(path, 0o700) }) //nolint:gosec // a directory
		}
		if err != nil {
			return err
		}
	}
	parent := -1
	err = ignoringEINTR(func() (err error) {
		parent, err = unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if errors.Is(err, fs.ErrPermission) {
		return nil // one that we may write and not read: nothing to sync it by
	}
	if err != nil {
		return err
	}
	defer closeFD(parent)
	return d.step("fsyncdir", filepath.Dir(path), func() error { return fsync(parent) })
}

// OpenDir opens the directory at path, which may be reached through links,
// and refuses it with [ErrUnsafe] if it is not owned by this process's
// effective user or if group or others may write to it.
func (d Disk) OpenDir(path string) (*Dir, error) {
	dir, uid, mode, err := d.openDir(path)
	if err != nil {
		return nil, err
	}
	if int(uid) != os.Geteuid() {
		dir.Close()
		return nil, fmt.Errorf("directory %s belongs to user %d, not to user %d: %w", path, uid, os.Geteuid(), ErrUnsafe)
	}
	if mode&0o022 != 0 {
		dir.Close()
		return nil, fmt.Errorf("directory %s has mode %04o, others may write to it (chmod go-w %s): %w", path, mode, path, ErrUnsafe)
	}
	return dir, nil
}

// openDir opens the directory and tells its owner and mode, unjudged.
func (d Disk) openDir(path string) (dir *Dir, uid, mode uint32, err error) {
	dir = &Dir{disk: d, fd: -1, path: path}
	err = d.step("open", path, func() (err error) {
		return ignoringEINTR(func() error {
			dir.fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			return err
		})
	})
	if err != nil {
		dir.Close()
		return nil, 0, 0, pathError("opening directory", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		dir.Close()
		return nil, 0, 0, pathError("examining directory", path, err)
	}
	return dir, st.Uid, uint32(st.Mode & 0o7777), nil //nolint:unconvert // the width of Mode differs between systems
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

// leadsTo reports whether name itself (a link is not followed) is the file
// that fd has open.
func (d *Dir) leadsTo(fd int, name string) bool {
	var here, there unix.Stat_t
	return unix.Fstat(fd, &here) == nil &&
		unix.Fstatat(d.fd, name, &there, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		here.Dev == there.Dev && here.Ino == there.Ino
}

// Names returns the names in the directory, sorted.
func (d *Dir) Names() ([]string, error) {
	fd := -1
	err := ignoringEINTR(func() (err error) {
		// A descriptor of its own: reading moves the position.
		fd, err = unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, pathError("listing", d.path, err)
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// RemoveOldTemps removes the temporary files of final, or of every file if
// final is empty, that are older than age at now: a crashed writer left them, and they may hold a secret. What
// only looks like one (another owner, no regular file, no nonce of ours in
// the name) stays. The caller must hold the lock that every writer of final
// holds.
func (d *Dir) RemoveOldTemps(final string, now time.Time, age time.Duration) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if !isTemp(name, final) {
			continue
		}
		var st unix.Stat_t
		err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || judge(name, &st) != nil || now.Sub(time.Unix(0, idOf(&st).MtimeNsec)) <= age {
			continue
		}
		if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
