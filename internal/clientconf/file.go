package clientconf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// ErrBusy says that a file was changed by somebody else each time that we were
// about to replace it.
var ErrBusy = errors.New("somebody else keeps changing it")

// tempAge is the age from which a temporary file is not that of an edit that
// is under way, even one without our lock.
const tempAge = 2 * time.Minute

// tries bounds how often an edit begins again because the file was changed
// meanwhile.
const tries = 5

// target is the file that path leads to, through links, which stay. A link
// that leads nowhere is an error: what it is meant to reach is not ours to
// make.
func target(path string) (string, error) {
	led, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil:
		return led, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("following %s: %w", path, err)
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a link that leads nowhere: make the file it names, or remove the link", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("following %s: %w", path, err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// read returns the file that path leads to, if there is one.
func read(disk durable.Disk, path string) (b []byte, existed bool, err error) {
	path, err = target(path)
	if err != nil {
		return nil, false, err
	}
	dir, err := disk.OpenSettingsDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer dir.Close()
	f, err := dir.Read(filepath.Base(path), maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return f.Bytes, err == nil, err
}

// edit replaces the file that path leads to by what f makes of it, unless f
// returns the same bytes. A nil slice removes the file. Mode, group and links stay; a
// new file has mode 0600, as have new directories 0700. If somebody else
// changes the file meanwhile, f is asked again; between the last look and the
// rename remain some microseconds, for there is no lock that all programs
// heed.
func edit(disk durable.Disk, path string, f func(doc []byte, existed bool) ([]byte, error)) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	dir, err := disk.OpenSettingsDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = disk.MakeDir(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	// What an edit that was killed left behind holds all that the file holds.
	if err := dir.RemoveOldTemps(filepath.Base(path), time.Now(), tempAge); err != nil {
		return err
	}
	for range tries {
		done, err := editOnce(dir, filepath.Base(path), f)
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s was left as it is: %w; try again", path, ErrBusy)
}

// editOnce is one try; it is not done if the file was changed meanwhile.
func editOnce(dir *durable.Dir, name string, f func([]byte, bool) ([]byte, error)) (done bool, err error) {
	before, existed, err := readIn(dir, name)
	if err != nil {
		return false, err
	}
	after, err := f(before.Bytes, existed)
	if err != nil {
		return false, fmt.Errorf("%s: %w", dir.Join(name), err)
	}
	if existed == (after != nil) && bytes.Equal(before.Bytes, after) {
		return true, nil
	}
	if after == nil {
		if now, still, err := readIn(dir, name); err != nil || !still || now.ID != before.ID || !bytes.Equal(now.Bytes, before.Bytes) {
			return false, err
		}
		if err := dir.Remove(name); err != nil {
			return false, err
		}
		return true, dir.Sync()
	}
	temp, err := dir.Prepare(name, 0)
	if err != nil {
		return false, err
	}
	defer temp.Discard()
	if existed {
		if err := temp.KeepMode(before); err != nil {
			return false, err
		}
	}
	if err := temp.Fill(after); err != nil {
		return false, err
	}
	now, still, err := readIn(dir, name)
	if err != nil || still != existed || now.ID != before.ID || !bytes.Equal(now.Bytes, before.Bytes) {
		return false, err
	}
	return true, temp.Publish()
}

func readIn(dir *durable.Dir, name string) (f durable.File, existed bool, err error) {
	f, err = dir.Read(name, maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return durable.File{}, false, nil
	}
	return f, err == nil, err
}
