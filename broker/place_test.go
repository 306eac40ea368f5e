//go:build linux

package broker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/lease"
)

func TestMissingDirectoriesAreMadePrivate(t *testing.T) {
	at := newSite(t)
	at.socket = filepath.Join(at.dir, "a", "b", "broker.sock")
	at.state = filepath.Join(at.dir, "c", "d")
	at.serve()
	for _, dir := range []string{"a", "a/b", "c", "c/d"} {
		if mode := modeOf(t, filepath.Join(at.dir, dir)); mode != 0o700 {
			t.Errorf("%s has mode %o", dir, mode)
		}
	}
	for _, path := range []string{at.socket, filepath.Join(at.dir, "a/b/control.sock"), filepath.Join(at.state, "broker-state.json")} {
		if mode := modeOf(t, path); mode != 0o600 {
			t.Errorf("%s has mode %o", path, mode)
		}
	}
}

func modeOf(t testing.TB, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// K34, for either directory.
func TestADirectoryThatOthersCouldReachOrReplaceIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		socket bool // refused for the socket alone
		make   func(t *testing.T, dir string) string
	}{
		{"a link", false, func(t *testing.T, dir string) string {
			mkdir(t, filepath.Join(dir, "real"), 0o700)
			if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "link")
		}},
		{"one that its group may write to", false, func(t *testing.T, dir string) string {
			return mkdir(t, filepath.Join(dir, "d"), 0o770)
		}},
		{"one that others may write to", false, func(t *testing.T, dir string) string {
			return mkdir(t, filepath.Join(dir, "d"), 0o702)
		}},
		{"one that others may write to, with the sticky bit", false, func(t *testing.T, dir string) string {
			return mkdir(t, filepath.Join(dir, "d"), 0o777|os.ModeSticky)
		}},
		{"one below a directory that others may write to", false, func(t *testing.T, dir string) string {
			return mkdir(t, filepath.Join(mkdir(t, filepath.Join(dir, "d"), 0o777), "e"), 0o700)
		}},
		{"one to be made below such a directory", false, func(t *testing.T, dir string) string {
			return filepath.Join(mkdir(t, filepath.Join(dir, "d"), 0o777), "e")
		}},
		{"one below a link into such a directory", false, func(t *testing.T, dir string) string {
			open := mkdir(t, filepath.Join(dir, "d"), 0o777)
			mkdir(t, filepath.Join(open, "e"), 0o700)
			mkdir(t, filepath.Join(open, "e", "f"), 0o700)
			if err := os.Symlink(filepath.Join(open, "e"), filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "link", "f")
		}},
		{"a file", false, func(t *testing.T, dir string) string {
			return writeFile(t, filepath.Join(dir, "d"), "", 0o700)
		}},
		{"one that others may enter", true, func(t *testing.T, dir string) string {
			return mkdir(t, filepath.Join(dir, "d"), 0o701)
		}},
	} {
		t.Run(c.name+" for the socket", func(t *testing.T) {
			at := newSite(t)
			at.socket = filepath.Join(c.make(t, at.dir), "broker.sock")
			at.mustBeUnsafe()
		})
		if !c.socket {
			t.Run(c.name+" for the state", func(t *testing.T) {
				at := newSite(t)
				at.state = c.make(t, at.dir)
				at.mustBeUnsafe()
			})
		}
	}
}

func (s *site) mustBeUnsafe() {
	s.t.Helper()
	if err := s.broken(); !errors.Is(err, broker.ErrUnsafe) {
		s.t.Errorf("%v, want ErrUnsafe", err)
	}
	if _, err := os.Lstat(s.socket); err == nil {
		s.t.Error("there is a socket")
	}
}

func mkdir(t testing.TB, path string, mode os.FileMode) string {
	t.Helper()
	err := os.Mkdir(path, 0o700)
	if err == nil {
		err = os.Chmod(path, mode) // whatever the umask
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func writeFile(t testing.TB, path, content string, mode os.FileMode) string {
	t.Helper()
	err := os.WriteFile(path, []byte(content), 0o600)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAPathThatCannotBeASocketsIsRefused(t *testing.T) {
	at := newSite(t)
	for name, path := range map[string]string{
		"relative":                   "broker.sock",
		"none":                       "",
		"abstract":                   "@broker",
		"of 108 bytes":               lengthened(at.dir, "broker.sock", 108),
		"that of a control socket":   filepath.Join(at.dir, "s", "control.sock"),
		"that of another's control":  filepath.Join(at.dir, "s", "a.control.sock"),
		"absolute, with an abstract": "@/x",
	} {
		at.socket = path
		if err := at.broken(); !errors.Is(err, lease.ErrSocketPath) {
			t.Errorf("%s: %v, want ErrSocketPath", name, err)
		}
	}
	at.socket, at.state = filepath.Join(at.dir, "s", "broker.sock"), "state"
	at.mustBeUnsafe()
	if names, err := os.ReadDir(at.dir); err != nil || len(names) != 0 {
		t.Errorf("something was made: %v, %v", names, err)
	}
}

// lengthened is a path below dir of so many bytes.
func lengthened(dir, name string, bytes int) string {
	return filepath.Join(dir, strings.Repeat("x", bytes-len(dir)-len(name)-2), name)
}

// The control socket's name is longer.
func TestTheLongestPathServesWithoutStatus(t *testing.T) {
	at := newSite(t)
	at.socket = lengthened(at.dir, "broker.sock", lease.MaxSocketPath)
	at.serve()
	if _, err := at.client().RegisterAnchor(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if !strings.Contains(at.warned(), "too long") {
		t.Errorf("the warnings are %q", at.warned())
	}
}
