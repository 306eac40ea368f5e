package durable

import (
	"errors"

	"golang.org/x/sys/unix"
)

// fsync on macOS leaves the bytes in the drive's cache; F_FULLFSYNC does not,
// but some file systems do not offer it.
func fsync(fd int) error {
	return ignoringEINTR(func() error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
		if errors.Is(err, unix.ENOTSUP) {
			return unix.Fsync(fd)
		}
		return err
	})
}

func fdatasync(fd int) error { return fsync(fd) }

// reserve leaves it to the caller to write zeros.
func reserve(int, int64) error { return unix.EOPNOTSUPP }

// renameNew is for file systems that cannot rename without replacing: see
// [Dir.Move].
func renameNew(int, string, string) error { return unix.EINVAL }

func rawPath(string) []byte { return nil }

func rawStat([]byte, *unix.Stat_t) error { return unix.ENOSYS }
