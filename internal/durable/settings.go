package durable

import (
	"fmt"
	"io/fs"
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

// SetMode gives the temporary file the permission bits that the new version
// of the file is to have; until then they are 0600. After an error the
// temporary file is gone.
func (t *Temp) SetMode(mode fs.FileMode) error {
	if mode == 0o600 {
		return nil
	}
	path := t.dir.Join(t.name)
	err := t.dir.disk.step("chmod", path, func() error { return unix.Fchmod(t.fd, uint32(mode.Perm())) })
	if err != nil {
		t.Discard()
		return pathError("setting the mode of", path, err)
	}
	return nil
}
