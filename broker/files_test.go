//go:build linux

package broker_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
)

// K33.
func TestWhatIsNotAStateFileIsRefusedAtOnceAndLeftAsItIs(t *testing.T) {
	valid := func(t *testing.T) string {
		at := newSite(t)
		at.serve()()
		return at.stateFile()
	}(t)
	for name, put := range map[string]func(t *testing.T, path string){
		"a FIFO":                func(t *testing.T, path string) { mkfifo(t, path) },
		"a directory":           func(t *testing.T, path string) { mkdir(t, path, 0o700) },
		"a socket":              func(t *testing.T, path string) { bind(t, path) },
		"a link to a good file": func(t *testing.T, path string) { link(t, writeFile(t, path+".real", valid, 0o600), path) },
		"a dangling link":       func(t *testing.T, path string) { link(t, path+".real", path) },
		"a link to a device":    func(t *testing.T, path string) { link(t, "/dev/zero", path) },
		"a file of two names": func(t *testing.T, path string) {
			if err := os.Link(writeFile(t, path+".other", valid, 0o600), path); err != nil {
				t.Fatal(err)
			}
		},
		"a file that others may read":   func(t *testing.T, path string) { writeFile(t, path, valid, 0o640) },
		"a file that may be executed":   func(t *testing.T, path string) { writeFile(t, path, valid, 0o700) },
		"an empty file":                 func(t *testing.T, path string) { writeFile(t, path, "", 0o600) },
		"half a file":                   func(t *testing.T, path string) { writeFile(t, path, valid[:len(valid)/2], 0o600) },
		"a file and a byte":             func(t *testing.T, path string) { writeFile(t, path, valid+"}", 0o600) },
		"a file over the bound":         func(t *testing.T, path string) { writeFile(t, path, strings.Repeat(" ", 4<<20+1), 0o600) },
		"a file of another version":     func(t *testing.T, path string) { writeFile(t, path, strings.Replace(valid, ":1", ":2", 1), 0o600) },
		"a file with an unknown member": func(t *testing.T, path string) { writeFile(t, path, strings.Replace(valid, "{", `{"x":1,`, 1), 0o600) },
		"a file with a member in folded": func(t *testing.T, path string) {
			writeFile(t, path, strings.Replace(valid, "version", "Version", 1), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := newSite(t)
			mkdir(t, at.state, 0o700)
			path := filepath.Join(at.state, "broker-state.json")
			put(t, path)
			before := description(t, path)
			at.mustBeUnsafe()
			if after := description(t, path); after != before {
				t.Errorf("what stood there was %s and is %s", before, after)
			}
		})
	}
}

func mkfifo(t testing.TB, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// bind leaves a socket at path that nobody listens on.
func bind(t testing.TB, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

// description is a file with all that tells whether it was touched.
func description(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	content := ""
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content = string(b)
	}
	return fmt.Sprintf("of mode %o, inode %d, changed at %d: %q", st.Mode, st.Ino, unix.TimespecToNsec(st.Ctim), content)
}

func TestWhatIsNoSocketOfOursIsLeftAtItsPath(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, path string){
		"a file":             func(t *testing.T, path string) { writeFile(t, path, "precious", 0o600) },
		"a FIFO":             func(t *testing.T, path string) { mkfifo(t, path) },
		"a directory":        func(t *testing.T, path string) { mkdir(t, path, 0o700) },
		"a link to a socket": func(t *testing.T, path string) { bind(t, path+".real"); link(t, path+".real", path) },
		"a link to nothing":  func(t *testing.T, path string) { link(t, path+".real", path) },
	} {
		for _, socket := range []string{"broker.sock", "control.sock"} {
			t.Run(name+" as "+socket, func(t *testing.T) {
				at := newSite(t)
				path := filepath.Join(mkdir(t, filepath.Dir(at.socket), 0o700), socket)
				put(t, path)
				before := description(t, path)
				if err := at.broken(); !errors.Is(err, broker.ErrUnsafe) {
					t.Errorf("%v, want ErrUnsafe", err)
				}
				if after := description(t, path); after != before {
					t.Errorf("what stood there was %s and is %s", before, after)
				}
				// Nothing is kept that would stand in the way of the next one.
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				at.serve()
			})
		}
	}
}

func TestWhatIsNoLockFileIsRefusedAtOnce(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, path string){
		"a FIFO":      func(t *testing.T, path string) { mkfifo(t, path) },
		"a directory": func(t *testing.T, path string) { mkdir(t, path, 0o700) },
		"a link":      func(t *testing.T, path string) { link(t, writeFile(t, path+".real", "", 0o600), path) },
	} {
		for _, lock := range []string{"s/broker.sock.lock", "state/broker-state.json.lock"} {
			t.Run(name+" as "+lock, func(t *testing.T) {
				at := newSite(t)
				mkdir(t, filepath.Join(at.dir, "s"), 0o700)
				mkdir(t, at.state, 0o700)
				put(t, filepath.Join(at.dir, lock))
				at.mustBeUnsafe()
			})
		}
	}
}
