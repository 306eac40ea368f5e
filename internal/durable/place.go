package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoHome says that the environment names no place for the state directory.
var ErrNoHome = errors.New("HOME is not set, so there is no place for files that last: set HOME or SPENDONCE_STATE_DIR")

// StateDir returns the state directory that the environment names:
// SPENDONCE_STATE_DIR, else spendonce in XDG_STATE_HOME, else
// ~/.local/state/spendonce. Without any of them it is [ErrNoHome].
func StateDir() (string, error) {
	if dir := os.Getenv("SPENDONCE_STATE_DIR"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "spendonce"), nil
	}
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", ErrNoHome
	}
	return filepath.Join(home, ".local", "state", "spendonce"), nil
}

// maxLinks bounds how many symbolic links a path is followed through, as the
// kernel does.
const maxLinks = 40

// CheckPlace judges a directory by its name: nobody but us and root can put
// something else in its place. The path is absolute; its last component is a
// directory of ours, no link, without any of the mode bits in forbidden; every
// directory above it belongs to us or to root, and others may write to it only
// where the sticky bit keeps them from renaming what is not theirs. Links
// above it are followed and judged likewise.
//
// What fails is [ErrUnsafe], [ErrNotRegular] for a link or no directory, or
// the error of the system call, as fs.ErrNotExist.
func CheckPlace(path string, forbidden uint32) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("directory %s: %w: the path is not absolute", path, ErrUnsafe)
	}
	path = filepath.Clean(path)
	if err := CheckDir(path, forbidden); err != nil {
		return err
	}
	return checkAncestors(path)
}

// CheckDir is the part of [CheckPlace] that judges the directory itself. It
// says nothing of who could replace it.
func CheckDir(path string, forbidden uint32) error {
	f, err := LookAt(path)
	if err != nil {
		return err
	}
	switch {
	case !f.Type.IsDir():
		return fmt.Errorf("%s is no directory, or a link to one: %w", path, ErrNotRegular)
	case int(f.UID) != os.Geteuid():
		return fmt.Errorf("directory %s belongs to user %d, not to user %d: %w", path, f.UID, os.Geteuid(), ErrUnsafe)
	case f.Mode&forbidden != 0:
		return fmt.Errorf("directory %s has mode %#o, which lets others in; 'chmod %#o %s' mends that: %w", path, f.Mode, f.Mode&^forbidden, path, ErrUnsafe)
	}
	return nil
}

func checkAncestors(path string) error {
	links := 0
	rest := strings.Split(strings.TrimPrefix(filepath.Dir(path), "/"), "/")
	at := "/"
	if err := checkAncestor(at); err != nil {
		return err
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		f, err := LookAt(next)
		if err != nil {
			return err
		}
		if f.UID != 0 && int(f.UID) != os.Geteuid() {
			return fmt.Errorf("%s is on the way to %s and belongs to user %d, who could put something else there: %w", next, path, f.UID, ErrUnsafe)
		}
		if f.Type.Type() == os.ModeSymlink {
			if links++; links > maxLinks {
				return fmt.Errorf("the way to %s: %w", path, unix.ELOOP)
			}
			to, err := os.Readlink(next)
			if err != nil {
				return fmt.Errorf("following the way to a directory: %w", err)
			}
			rest = append(strings.Split(to, "/"), rest...)
			if filepath.IsAbs(to) {
				at = "/"
			}
			continue
		}
		if err := checkAncestor(next); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// checkAncestor judges who may rename what stands in a directory.
func checkAncestor(path string) error {
	f, err := LookAt(path)
	if err != nil {
		return err
	}
	if f.UID != 0 && int(f.UID) != os.Geteuid() {
		return fmt.Errorf("directory %s belongs to user %d, who could put something else in the place of what is below it: %w", path, f.UID, ErrUnsafe)
	}
	if f.Mode&0o022 != 0 && f.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("directory %s has mode %#o: others may put something else in the place of what is below it: %w", path, f.Mode, ErrUnsafe)
	}
	return nil
}
