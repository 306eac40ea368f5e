//go:build linux

package socketplace_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/socketplace"
)

func take(t *testing.T, socket string) *socketplace.Place {
	t.Helper()
	p, err := socketplace.Take(socketplace.Config{Socket: socket, Forbidden: 0o022, Option: "--at"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPlaceHasOneServerAtATime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "made", "s")
	p := take(t, socket)
	_, err := socketplace.Take(socketplace.Config{Socket: socket, Forbidden: 0o022, Option: "--at"})
	if want := fmt.Sprintf("it has %s (process %d); stop it, or use another --at", socket, os.Getpid()); !errors.Is(err, socketplace.ErrTaken) || err.Error() != want {
		t.Errorf("a second: %v", err)
	}
	p.Close()
	take(t, socket).Close()
}

func TestADeadServersSocketIsReplacedAndOnlyTheOwnOneUnlinked(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	for _, replaced := range []bool{false, true} {
		p := take(t, socket)
		l, err := p.Listen("s")
		if err != nil {
			t.Fatal(err)
		}
		if replaced {
			if err := os.Remove(socket); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(socket, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
		p.Close()
		if _, err := os.Lstat(socket); errors.Is(err, fs.ErrNotExist) == replaced {
			t.Errorf("replaced: %v, at the end: %v", replaced, err)
		}
	}
}

func TestWhatIsNoSocketOfOursOrCouldBeReplacedByOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "s")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := take(t, file)
	defer p.Close()
	if _, err := p.Listen("s"); !errors.Is(err, socketplace.ErrUnsafe) || !strings.HasSuffix(err.Error(), "move it away, or use another --at") {
		t.Errorf("a file: %v", err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o770); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{filepath.Join(open, "s"), "relative/s"} {
		if _, err := socketplace.Take(socketplace.Config{Socket: socket, Forbidden: 0o022}); !errors.Is(err, socketplace.ErrUnsafe) {
			t.Errorf("%s: %v", socket, err)
		}
	}
}
