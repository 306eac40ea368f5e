package durable

import (
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func fsync(fd int) error {
	return ignoringEINTR(func() error { return unix.Fsync(fd) })
}

func fdatasync(fd int) error {
	return ignoringEINTR(func() error { return unix.Fdatasync(fd) })
}

func reserve(fd int, size int64) error {
	return ignoringEINTR(func() error { return unix.Fallocate(fd, 0, 0, size) })
}

// renameNew renames within a directory and replaces nothing.
func renameNew(dir int, from, to string) error {
	return unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
}

// rawPath returns path for [rawStat], or nil if a stat of it may take long:
// the scheduler is not told of a raw call, so a file system that has to ask
// somebody must not be asked so.
func rawPath(path string) []byte {
	var st unix.Statfs_t
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.F2FS_SUPER_MAGIC:
		return append([]byte(path), 0)
	}
	return nil
}

// rawStat is stat(2) without what Go does around a call that may block: that
// takes a third of the whole.
func rawStat(path []byte, st *unix.Stat_t) error {
	const here = unix.AT_FDCWD
	at := here
	_, _, errno := syscall.RawSyscall6(unix.SYS_NEWFSTATAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(st)), 0, 0, 0) //nolint:gosec // the two pointers live until the call returns
	if errno != 0 {
		return errno
	}
	return nil
}
