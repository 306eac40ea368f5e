//go:build linux

package peercred_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/peercred"
)

// K20: what is made narrow later is wide for a moment, so there must be no
// change of the mode after the making.
func TestTheSocketIsOursAloneFromItsFirstMoment(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o177} {
		dir := t.TempDir()
		watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(watch)
		if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_CREATE|unix.IN_ATTRIB); err != nil {
			t.Fatal(err)
		}
		old := unix.Umask(umask)
		l, err := peercred.Listen(filepath.Join(dir, "s"))
		unix.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		st, err := os.Lstat(l.Addr())
		if err != nil || st.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("umask %o: %v, %v", umask, st.Mode(), err)
		}
		events := make([]byte, 4096)
		n, err := unix.Read(watch, events)
		if err != nil {
			t.Fatal(err)
		}
		if mask := binary.NativeEndian.Uint32(events[4:]); mask != unix.IN_CREATE || n != unix.SizeofInotifyEvent+16 {
			t.Errorf("umask %o: not made in one step: event %#x in %d bytes", umask, mask, n)
		}
	}
}

func TestAUmaskThatTakesFromTheOwnerIsMadeGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old := unix.Umask(0o777)
	l, err := peercred.Listen(path)
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Lstat(path); err != nil || st.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

func TestListenTakesWhatFitsIntoAnAddress(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := peercred.Listen(strings.Repeat("x", 107))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = peercred.Listen(strings.Repeat("y", 108))
	wantError(t, err, peercred.ErrPathTooLong)
	if _, err := os.Lstat(strings.Repeat("y", 108)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// An abstract name has no owner and no mode.
func TestListenNeverTakesAnAbstractName(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range []string{"", "@x", "\x00x", "x\x00y"} {
		l, err := peercred.Listen(path)
		if err == nil {
			t.Errorf("%q: listening at %q", path, l.Addr())
			l.Close()
		} else if !strings.Contains(err.Error(), "only names in the file system") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestListenTouchesNothingThatStandsThere(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := peercred.Listen(stale)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var before unix.Stat_t
	if err := unix.Lstat(stale, &before); err != nil {
		t.Fatal(err)
	}
	regular := filepath.Join(dir, "regular")
	if err := os.WriteFile(regular, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("elsewhere", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stale, regular, link} {
		_, err := peercred.Listen(path)
		wantError(t, err, unix.EADDRINUSE)
	}
	var after unix.Stat_t
	if err := unix.Lstat(stale, &after); err != nil || after != before {
		t.Errorf("the stale socket: %v, %+v, and was %+v", err, after, before)
	}
	if b, err := os.ReadFile(regular); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("behind the link: %v", err)
	}
}

func TestAcceptAfterCloseSaysSo(t *testing.T) {
	l := listen(t)
	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	wantError(t, <-ended, net.ErrClosed)
	_, err := l.Accept()
	wantError(t, err, net.ErrClosed)
}

// dial connects from this process.
func dial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// limit leaves so many descriptors to be opened until the function that it
// returns is called.
func limit(t *testing.T, left int) (lift func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	// The lowest free numbers are given first.
	next := 0
	for free := 0; free < left; next++ {
		if _, err := unix.FcntlInt(uintptr(next), unix.F_GETFD, 0); errors.Is(err, unix.EBADF) {
			free++
		}
	}
	if left == 0 {
		for {
			if _, err := unix.FcntlInt(uintptr(next), unix.F_GETFD, 0); errors.Is(err, unix.EBADF) {
				break
			}
			next++
		}
	}
	low := old
	low.Cur = uint64(next)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}
}

// K23.
func TestAcceptWithoutDescriptorsFailsAndRecovers(t *testing.T) {
	l := listen(t)
	dial(t, l.Addr())
	lift := limit(t, 0)
	c, err := l.Accept()
	lift()
	if err == nil {
		c.Close()
	}
	wantError(t, err, unix.EMFILE)
	if c := accept(t, l); c.Refusal() != nil {
		t.Error(c.Refusal())
	}
}

func TestAPeerWithoutAPidfdIsRefused(t *testing.T) {
	l, pr := listen(t), newProver(t)
	dial(t, l.Addr())
	lift := limit(t, 1)
	c, err := l.Accept()
	lift()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantError(t, c.Refusal(), peercred.ErrNoPidfd)
	wantError(t, c.Refusal(), unix.EMFILE)
	wantError(t, c.Verify(), peercred.ErrNoPidfd)
	_, err = pr.Identify(c)
	wantError(t, err, peercred.ErrNoPidfd)
}

func TestPeersOfOtherUsersAreRefused(t *testing.T) {
	uid := uint32(os.Getuid())
	for name, rules := range map[string][2]uint32{"another uid": {uid + 1, 65534}, "the overflow uid": {uid, uid}} {
		l, pr := listen(t), newProver(t)
		l.As(rules[0], rules[1])
		client := dial(t, l.Addr())
		c := accept(t, l)
		for _, err := range []error{c.Refusal(), c.Verify()} {
			if !errors.Is(err, peercred.ErrOtherUser) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := pr.Identify(c); !errors.Is(err, peercred.ErrOtherUser) {
			t.Errorf("%s: Identify: %v", name, err)
		}
		// It can be told.
		if _, err := c.Write([]byte("no")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
		readAll(t, client, "no")
	}
}

func TestDialedServerIsWhoListens(t *testing.T) {
	l := listen(t)
	got, err := peercred.DialedServer(dial(t, l.Addr()))
	want := peercred.Peer{PID: os.Getpid(), UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	closed := dial(t, l.Addr())
	closed.Close()
	if got, err := peercred.DialedServer(closed); err == nil || got != (peercred.Peer{}) {
		t.Errorf("closed: %+v, %v", got, err)
	}
}
