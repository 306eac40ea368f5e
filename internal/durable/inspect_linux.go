package durable

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kindOf names the file systems that a home directory may be on, by the number
// that statfs(2) gives.
func kindOf(magic uint32) (name string, network bool) {
	switch magic {
	case 0xef53:
		return "ext4", false // or ext2, ext3: they share it
	case 0x58465342:
		return "xfs", false
	case 0x9123683e:
		return "btrfs", false
	case 0xca451a4e:
		return "bcachefs", false
	case 0x2fc12fc1:
		return "zfs", false
	case 0xf2f52010:
		return "f2fs", false
	case 0x01021994:
		return "tmpfs", false
	case 0x858458f6:
		return "ramfs", false
	case 0x794c7630:
		return "overlay", false
	case 0xf15f:
		return "ecryptfs", false
	case 0x3153464a:
		return "jfs", false
	case 0x52654973:
		return "reiserfs", false
	case 0x4d44:
		return "vfat", false
	case 0x2011bab0:
		return "exfat", false
	case 0x7366746e:
		return "ntfs3", false
	case 0x5346544e:
		return "ntfs", false
	case 0x6969:
		return "nfs", true
	case 0xff534d42:
		return "cifs", true
	case 0xfe534d42:
		return "smb2", true
	case 0x517b:
		return "smbfs", true
	case 0x65735546:
		return "fuse", true // or virtiofs, which shares it
	case 0x01021997:
		return "9p", true
	case 0x00c36400:
		return "ceph", true
	case 0x5346414f:
		return "afs", true
	case 0x6b414653:
		return "kafs", true
	case 0x73757245:
		return "coda", true
	case 0x0bd00bd0:
		return "lustre", true
	case 0x47504653:
		return "gpfs", true
	case 0x7461636f:
		return "ocfs2", true
	case 0x01161970:
		return "gfs2", true
	case 0x786f4256:
		return "vboxsf", true
	case 0x20030528:
		return "orangefs", true
	default:
		return fmt.Sprintf("0x%x", magic), false
	}
}

// Volume tells which file system the directory is on.
func (d *Dir) Volume() (Volume, error) {
	var st unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(d.fd, &st) }); err != nil {
		return Volume{}, pathError("examining the file system of", d.path, err)
	}
	v := Volume{ReadOnly: uint64(st.Flags)&unix.ST_RDONLY != 0, Free: int64(forUs(st.Bfree, st.Bavail)) * int64(st.Bsize), Files: -1} //nolint:unconvert // the widths differ between systems
	v.Kind, v.Network = kindOf(uint32(st.Type))
	if st.Files > 0 {
		v.Files = int64(st.Ffree)
	}
	return v, nil
}

// LockName is how /proc/locks names the file that is locked, for example
// "fe:00:131094": the device of the mounted file system, which is not always
// the one that stat(2) tells, and the inode number.
func (k *Kept) LockName() (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(k.fd, &st); err != nil {
		return "", pathError("examining", k.dir.Join(k.name), err)
	}
	major, minor := unix.Major(st.Dev), unix.Minor(st.Dev)
	if a, b, ok := k.mounted(); ok {
		major, minor = a, b
	}
	return fmt.Sprintf("%02x:%02x:%d", major, minor, st.Ino), nil
}

// mounted is the device of the mount that the file was opened through.
func (k *Kept) mounted() (major, minor uint32, ok bool) {
	var st unix.Statx_t
	err := unix.Statx(k.fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, 0, false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, 0, false
	}
	return deviceOf(string(mounts), st.Mnt_id)
}

// deviceOf finds a mount in the text of mountinfo, see proc_pid_mountinfo(5).
func deviceOf(mounts string, id uint64) (major, minor uint32, ok bool) {
	for line := range strings.Lines(mounts) {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != strconv.FormatUint(id, 10) {
			continue
		}
		a, b, _ := strings.Cut(f[2], ":")
		x, err1 := strconv.ParseUint(a, 10, 32)
		y, err2 := strconv.ParseUint(b, 10, 32)
		return uint32(x), uint32(y), err1 == nil && err2 == nil
	}
	return 0, 0, false
}
