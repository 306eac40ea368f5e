//go:build crash && linux

package broker_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
)

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func chown(t testing.TB, path string) {
	t.Helper()
	if err := os.Lchown(path, another, another); err != nil {
		t.Fatal(err)
	}
}

func TestWhatBelongsToAnotherUserIsRefused(t *testing.T) {
	needRoot(t)
	for name, spoil := range map[string]func(at *site){
		"the state directory":    func(at *site) { chown(t, mkdir(t, at.state, 0o700)) },
		"the socket's directory": func(at *site) { chown(t, mkdir(t, filepath.Dir(at.socket), 0o700)) },
		"a directory above both": func(at *site) { chown(t, at.dir) },
		"a sticky directory above": func(at *site) {
			chown(t, at.dir)
			if err := os.Chmod(at.dir, 0o777|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
		},
		"the state file": func(at *site) {
			at.serve()()
			chown(t, filepath.Join(at.state, "broker-state.json"))
		},
		"the state's lock": func(at *site) {
			at.serve()()
			chown(t, filepath.Join(at.state, "broker-state.json.lock"))
		},
		"the socket's lock": func(at *site) {
			at.serve()()
			chown(t, at.socket+".lock")
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := newSite(t)
			spoil(at)
			at.mustBeUnsafe()
		})
	}
}

func TestASocketOfAnotherUserIsLeftAtItsPath(t *testing.T) {
	needRoot(t)
	at := newSite(t)
	mkdir(t, filepath.Dir(at.socket), 0o700)
	bind(t, at.socket)
	chown(t, at.socket)
	before := description(t, at.socket)
	if err := at.broken(); !errors.Is(err, broker.ErrUnsafe) {
		t.Errorf("%v, want ErrUnsafe", err)
	}
	if description(t, at.socket) != before {
		t.Error("the socket is another one")
	}
}

// K33.
func TestADeviceInTheStateFilesPlaceIsRefused(t *testing.T) {
	needRoot(t)
	for name, device := range map[string]int{"/dev/null": int(unix.Mkdev(1, 3)), "/dev/zero": int(unix.Mkdev(1, 5))} {
		at := newSite(t)
		mkdir(t, at.state, 0o700)
		if err := unix.Mknod(filepath.Join(at.state, "broker-state.json"), unix.S_IFCHR|0o600, device); err != nil {
			t.Fatal(name, err)
		}
		at.mustBeUnsafe()
	}
}

func TestTheControlSocketTellsOtherUsersNothing(t *testing.T) {
	needRoot(t)
	at := newSite(t)
	at.run(at.asAnother)
	conn, err := net.Dial("unix", filepath.Join(filepath.Dir(at.socket), "control.sock")) // root may, and is another user
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, `{"query":"status"}`+"\n")
	if b, _ := io.ReadAll(conn); len(b) > 0 {
		t.Errorf("it says %s", b)
	}
}
