//go:build linux

package localproxy_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/localproxy"
)

func TestOnAUnixSocketNoSecretIsAskedForAndAnyHostWillDo(t *testing.T) {
	s := newSite(t, options{unix: true}, ok)
	for _, head := range []string{
		"GET /x HTTP/1.1\r\nHost: anything\r\n",
		"GET /x HTTP/1.1\r\nHost: anything\r\nAuthorization: Bearer dummy\r\n",
		"GET /x HTTP/1.0\r\n",
	} {
		before := len(s.seen())
		if resp := s.raw(head + "\r\n"); resp.StatusCode != http.StatusOK {
			t.Errorf("%q was answered %s", head, resp.Status)
		}
		if got := s.seen()[before]; got.RequestURI != "/x" || "http://"+got.Host != s.upstream.URL || got.Header.Get("Authorization") != "Bearer "+s.source.tokens[0].Secret.Reveal() {
			t.Errorf("the target saw %s at %s", got.RequestURI, got.Host)
		}
	}
	for text, status := range map[string]int{
		"GET /x HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\n":      http.StatusForbidden,
		"GET /x HTTP/1.1\r\nHost: a\r\nOrigin: null\r\n":          http.StatusForbidden,
		"GET http://a/x HTTP/1.1\r\nHost: a\r\n":                  http.StatusBadRequest,
		"GET //evil.example/x HTTP/1.1\r\nHost: evil.example\r\n": http.StatusBadRequest,
		"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n":                   http.StatusMethodNotAllowed,
	} {
		if resp := s.raw(text + "\r\n"); resp.StatusCode != status {
			t.Errorf("%q was answered %s", text, resp.Status)
		}
	}
}

func TestTheSocketAndItsDirectoryAreOurs(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	s := newSite(t, options{unix: true}, ok)
	for path, want := range map[string]fs.FileMode{s.address.Socket: 0o600 | fs.ModeSocket, filepath.Dir(s.address.Socket): 0o700 | fs.ModeDir} {
		info, err := os.Lstat(path)
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	must(t, s.end())
	if _, err := os.Lstat(s.address.Socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// asNobody runs f in a thread with the effective user of nobody, which ends
// with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	const nobody = 65534
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread is of no use any more
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), nobody, ^uintptr(0)); errno != 0 {
			t.Errorf("becoming nobody: %v", errno)
			return
		}
		f()
	}()
	<-done
}

// A mode that got loose, or a privilege, lets others connect: the kernel
// still says who they are.
func TestAnotherUsersProcessIsNotServed(t *testing.T) {
	s := newSite(t, options{unix: true}, ok)
	dir := filepath.Dir(s.address.Socket)
	asNobody(t, func() {
		if c, err := net.Dial("unix", s.address.Socket); err == nil {
			c.Close()
			t.Error("the modes let nobody connect")
		}
	})
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(s.address.Socket, 0o666))
	asNobody(t, func() {
		c, err := net.Dial("unix", s.address.Socket)
		if err != nil {
			t.Errorf("connecting: %v", err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Errorf("another user was told %q", b)
		}
	})
	if s.source.requests() > 0 || len(s.seen()) > 0 {
		t.Error("another user's request went on")
	}
	if resp, body := s.do(s.request("GET", "/", nil)); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s %q", resp.Status, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "peer of another user: uid 65534") {
		t.Errorf("warned %q", s.warnings)
	}
}

func TestDescriptorsThatAreSentEndTheConnection(t *testing.T) {
	s := newSite(t, options{unix: true}, ok)
	c, isUnix := s.dial().(*net.UnixConn)
	if !isUnix {
		t.Fatal("no Unix socket")
	}
	_, _, err := c.WriteMsgUnix([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), unix.UnixRights(0), nil)
	must(t, err)
	if b, _ := io.ReadAll(c); len(b) > 0 && !strings.HasPrefix(string(b), "HTTP/1.1 400") {
		t.Errorf("told %q", b)
	}
	if len(s.seen()) > 0 {
		t.Error("the request went on")
	}
}

func TestASocketThatIsServedOrNotASocketOrNotOursStays(t *testing.T) {
	s := newSite(t, options{unix: true}, ok)
	cfg := localproxy.Config{Listen: s.address, Target: "work", Transport: http.DefaultTransport}
	listen := func(path string) error {
		var err error
		cfg.To, err = originOf(s.upstream.URL)
		must(t, err)
		cfg.Listen.Socket = path
		p, err := localproxy.Listen(t.Context(), cfg)
		if err == nil {
			p.Close()
		}
		return err
	}
	if err := listen(s.address.Socket); !errors.Is(err, localproxy.ErrTaken) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("beside one that serves: %v", err)
	}
	if resp, _ := s.do(s.request("GET", "/", nil)); resp.StatusCode != http.StatusOK {
		t.Errorf("which answers %s then", resp.Status)
	}
	dir := filepath.Dir(s.address.Socket)
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("mine"), 0o600))
	if err := listen(file); !errors.Is(err, localproxy.ErrUnsafe) {
		t.Errorf("in the place of a file: %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
	open := filepath.Join(dir, "open")
	must(t, os.Mkdir(open, 0o700))
	must(t, os.Chmod(open, 0o777))
	if err := listen(filepath.Join(open, "s")); !errors.Is(err, localproxy.ErrUnsafe) {
		t.Errorf("in a directory of everybody: %v", err)
	}
	if err := listen(filepath.Join(dir, strings.Repeat("x", 108))); !errors.Is(err, localproxy.ErrAddress) {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestOnlyTheSocketThatWasBoundIsUnlinked(t *testing.T) {
	s := newSite(t, options{unix: true}, ok)
	must(t, os.Rename(s.address.Socket, s.address.Socket+".old"))
	other, err := net.Listen("unix", s.address.Socket)
	must(t, err)
	defer other.Close()
	must(t, s.end())
	if _, err := os.Lstat(s.address.Socket); err != nil {
		t.Errorf("another one's socket is gone: %v", err)
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
	to, err := originOf("https://example.com")
	must(t, err)
	p, err := localproxy.Listen(t.Context(), localproxy.Config{Listen: localproxy.Address{Socket: path}, To: to, Transport: http.DefaultTransport})
	must(t, err)
	p.Close()
}
