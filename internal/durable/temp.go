package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Temp is a new version of a file that is not yet in place.
type Temp struct {
	dir         *Dir
	name, final string
	fd          int
	filled      bool
}

// isTemp reports whether name is one that [Dir.Prepare] gives to a temporary
// file of final: ".<final>.<nonce>.tmp". The nonce has no dot, so that the
// files of "a" and of "a.b" are told apart. With no final any will do.
func isTemp(name, final string) bool {
	nonce, tmp := strings.CutSuffix(name, ".tmp")
	if dot := strings.LastIndexByte(nonce, '.'); final == "" && dot > 1 {
		final = nonce[1:dot]
	}
	nonce, ok := strings.CutPrefix(nonce, "."+final+".")
	return ok && tmp && len(nonce) == len(rand.Text()) && strings.Trim(nonce, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// Prepare makes the temporary file that will replace final, 0600 from its
// creation, and reserves room for size bytes: when it returns nil, writing so
// many bytes does not fail for want of space. On a file system that cannot
// reserve, the room is filled with zeros. Where something stands at final
// that is not a regular file or not ours, nothing is made; see
// [ErrNotRegular] and [ErrUnsafe]. Whoever prepares must end with
// [Temp.Publish] or [Temp.Discard].
func (d *Dir) Prepare(final string, size int64) (*Temp, error) {
	if err := d.examine(final); err != nil {
		return nil, err
	}
	name := "." + final + "." + rand.Text() + ".tmp"
	fd, err := d.createExclusive(name)
	if err != nil {
		return nil, err
	}
	t := &Temp{dir: d, name: name, final: final, fd: fd}
	if size > 0 {
		err := d.disk.step("reserve", d.Join(name), func() error {
			err := reserve(fd, size)
			if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
				err = writeAll(fd, make([]byte, size), 0)
			}
			return err
		})
		if err != nil {
			t.Discard()
			return nil, pathError("reserving space for", d.Join(final), err)
		}
	}
	return t, nil
}

// Fill writes content and syncs it. After an error the temporary file is
// gone and only a new one helps. Fill may be called again to say something
// else.
func (t *Temp) Fill(content []byte) error {
	path := t.dir.Join(t.name)
	err := t.dir.disk.step("write", path, func() error {
		if err := writeAll(t.fd, content, 0); err != nil {
			return err
		}
		return ignoringEINTR(func() error { return unix.Ftruncate(t.fd, int64(len(content))) })
	})
	if err == nil {
		err = t.dir.disk.step("fsync", path, func() error { return fsync(t.fd) })
	}
	if err != nil {
		t.Discard()
		return pathError("writing", path, err)
	}
	t.filled = true
	return nil
}

// Intact reports whether the temporary file still stands where it was made.
func (t *Temp) Intact() bool {
	return t != nil && t.fd >= 0 && t.dir.leadsTo(t.fd, t.name)
}

// Publish puts the filled file in the place of the old one and makes that
// durable. An error that is [ErrNotSynced] means that the new version is in
// place and may be lost with the power; any other error comes from before the
// rename or from the rename itself, whose result is then unknown to us: the
// caller reads the file to learn which version stands there.
//
// A link, or anything else that is not a regular file of ours, is not
// replaced; see [ErrNotRegular] and [ErrUnsafe]. After any error the
// temporary file is gone.
func (t *Temp) Publish() error {
	d := t.dir
	if t.fd < 0 || !t.filled {
		t.Discard()
		return fmt.Errorf("replacing %s: nothing was written to take its place", d.Join(t.final))
	}
	if err := d.examine(t.final); err != nil {
		t.Discard()
		return err
	}
	err := d.disk.step("rename", d.Join(t.final), func() error {
		return unix.Renameat(d.fd, t.name, d.fd, t.final)
	})
	if err != nil {
		t.Discard()
		return pathError("replacing", d.Join(t.final), err)
	}
	closeFD(t.fd)
	t.fd = -1
	if err := d.Sync(); err != nil {
		return errors.Join(ErrNotSynced, err)
	}
	return nil
}

// Discard removes the temporary file if it still stands; it is safe to call
// at any time, also on nil.
func (t *Temp) Discard() {
	if t == nil || t.fd < 0 {
		return
	}
	closeFD(t.fd)
	t.fd = -1
	_ = t.dir.Remove(t.name)
}

// Replace gives final the new content, atomically and durably. See
// [Temp.Publish] for what holds after an error.
func (d *Dir) Replace(final string, content []byte) error {
	t, err := d.Prepare(final, 0)
	if err != nil {
		return err
	}
	if err := t.Fill(content); err != nil {
		return err
	}
	return t.Publish()
}
