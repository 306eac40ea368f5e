package streams_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// ends are a blocking file that is read, and one that what is read is written
// to.
type ends struct{ in, out *os.File }

func pipe(t *testing.T) ends {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return ends{os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")}
}

func socketpair(t *testing.T) ends {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ends{os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")}
}

func TestWhatIsAwaitedIsReadToItsEndAndStaysBlockingForOthers(t *testing.T) {
	for name, open := range map[string]func(*testing.T) ends{"a pipe": pipe, "a socket": socketpair} {
		t.Run(name, func(t *testing.T) {
			e := open(t)
			defer e.in.Close()
			defer e.out.Close()
			r := streams.Awaited(e.in)
			if r == io.Reader(e.in) {
				t.Fatal("it is not awaited")
			}
			fd := int(e.in.Fd())
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("it does not block any more: %#o, %v", flags, err)
			}
			got := readAll(r)
			big := bytes.Repeat([]byte("0123456789"), 1<<17) // more than fits
			for _, part := range [][]byte{[]byte("a\n"), big} {
				if _, err := e.out.Write(part); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.out.Close(); err != nil {
				t.Fatal(err)
			}
			if all := <-got; all.err != nil || !bytes.Equal(all.b, append([]byte("a\n"), big...)) {
				t.Errorf("%d bytes came, %v", len(all.b), all.err)
			}
		})
	}
}

type read struct {
	b   []byte
	err error
}

// readAll reads to the end.
func readAll(r io.Reader) <-chan read {
	c := make(chan read, 1)
	go func() {
		b, err := io.ReadAll(r)
		c <- read{b, err}
	}()
	return c
}

func TestWhatIsNeitherPipeNorSocketIsReadAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, os.DevNull} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if streams.Awaited(f) != io.Reader(f) {
			t.Errorf("%s is awaited", name)
		}
	}
	if r := (&bytes.Buffer{}); streams.Awaited(r) != io.Reader(r) {
		t.Error("a buffer is awaited")
	}
}

func TestASocketThatIsClosedAtTheOtherEndWithBytesUnreadIsAnError(t *testing.T) {
	e := socketpair(t)
	defer e.in.Close()
	r := streams.Awaited(e.in)
	if _, err := e.in.Write([]byte("nobody reads this")); err != nil {
		t.Fatal(err)
	}
	e.out.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}
