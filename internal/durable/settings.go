package durable

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenSettingsDir opens the directory in which another program of this user
// keeps its settings. It must be ours; who else may write to it is that
// program's business and stays as it is, so nothing secret belongs there.
// What [Dir.Read] and [Temp.Publish] refuse they refuse there too.
func (d Disk) OpenSettingsDir(path string) (*Dir, error) {
	dir, uid, _, err := d.openDir(path)
	if err != nil {
		return nil, err
	}
	if int(uid) != os.Geteuid() {
		dir.Close()
		return nil, fmt.Errorf("directory %s belongs to user %d, not to user %d: %w", path, uid, os.Geteuid(), ErrUnsafe)
	}
	return dir, nil
}

// KeepMode gives the temporary file the group and the permission bits of the
// version that it will replace; until then they are ours and 0600. Where the
// group may not be given, that of this process must not get its rights: it has
// none. After an error the temporary file is gone.
func (t *Temp) KeepMode(old File) error {
	if old.Mode == 0o600 {
		return nil
	}
	path := t.dir.Join(t.name)
	err := t.dir.disk.step("chmod", path, func() error {
		var st unix.Stat_t
		if err := unix.Fstat(t.fd, &st); err != nil {
			return err
		}
		mode := uint32(old.Mode.Perm())
		if st.Gid != old.GID && unix.Fchown(t.fd, -1, int(old.GID)) != nil {
			mode &^= 0o070
		}
		return unix.Fchmod(t.fd, mode)
	})
	if err != nil {
		t.Discard()
		return pathError("setting the mode of", path, err)
	}
	return nil
}
