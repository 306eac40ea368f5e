package durable

import "golang.org/x/sys/unix"

func fsync(fd int) error {
	return ignoringEINTR(func() error { return unix.Fsync(fd) })
}

func fdatasync(fd int) error {
	return ignoringEINTR(func() error { return unix.Fdatasync(fd) })
}

func reserve(fd int, size int64) error {
	return ignoringEINTR(func() error { return unix.Fallocate(fd, 0, 0, size) })
}
