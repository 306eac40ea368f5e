package democmd

import "golang.org/x/sys/unix"

// mountSmallDisk mounts 64 KiB of memory at dir.
func mountSmallDisk(dir string) (unmount func(), err error) {
	if err := unix.Mount("spendonce-demo", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=0700"); err != nil {
		return nil, err
	}
	return func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }, nil
}
