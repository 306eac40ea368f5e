package durable

import "golang.org/x/sys/unix"

// Volume tells which file system the directory is on.
func (d *Dir) Volume() (Volume, error) {
	var st unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(d.fd, &st) }); err != nil {
		return Volume{}, pathError("examining the file system of", d.path, err)
	}
	return Volume{
		Kind: unix.ByteSliceToString(st.Fstypename[:]), Network: st.Flags&unix.MNT_LOCAL == 0, ReadOnly: st.Flags&unix.MNT_RDONLY != 0,
		Free: int64(forUs(st.Bfree, st.Bavail)) * int64(st.Bsize), Files: int64(st.Ffree),
	}, nil
}
