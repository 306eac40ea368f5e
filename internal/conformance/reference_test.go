//go:build linux

package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reference is a broker as simple as one can be that keeps every rule that
// can be seen from outside: nothing on disk, one lock, a goroutine for each
// connection. With a fault it breaks one rule on purpose; mutants_test.go
// says which.
type reference struct {
	fault    string
	deadline time.Duration

	mu       sync.Mutex
	sessions []*refSession
	tokens   map[string]*refToken
	open     map[int]int // connections by pid

	// Only for faults.
	turn  sync.Mutex
	held  time.Time // nobody is served before
	heirs []string  // ids of sessions that ended
}

type refSession struct {
	id         string
	pid        int
	start      string
	stack      string
	since      int64 // in clock ticks, when it last registered
	generation uint64
}

type refToken struct {
	session    *refSession
	generation uint64
	binding    map[string]any
	spent      bool
}

// serve starts a reference broker that ends with the test.
func serve(t *testing.T, fault string) string {
	t.Helper()
	path := place(t)
	r := &reference{fault: fault, deadline: 500 * time.Millisecond, tokens: map[string]*refToken{}, open: map[int]int{}}
	listener := listen(t, path, r.has("listens as another user"))
	modes := map[bool]os.FileMode{false: 0o600, true: 0o666}
	if err := os.Chmod(path, modes[r.has("socket for everybody")]); err != nil {
		t.Fatal(err)
	}
	if r.has("directory for everybody") {
		if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { r.connection(conn.(*net.UnixConn)) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		served.Wait()
	})
	return path
}

func (r *reference) has(fault string) bool { return r.fault == fault }

// listen makes a socket that hands out who writes.
func listen(t *testing.T, path string, asAnother bool) net.Listener {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1), syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	if err != nil {
		t.Fatal(err)
	}
	if asAnother {
		// The kernel notes who listens, which is a matter of one thread.
		runtime.LockOSThread()
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0))
		err = errors.Join(nilOr(errno), syscall.Listen(fd, 128))
		_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0))
		runtime.UnlockOSThread()
		err = errors.Join(err, nilOr(errno))
	} else {
		err = syscall.Listen(fd, 128)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func nilOr(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// refPeer is who connected, and what was seen of it since.
type refPeer struct {
	pid   int
	start string
	alien bool // somebody else wrote
	laden bool // something else than bytes came

	pieces int
}

func (r *reference) connection(conn *net.UnixConn) {
	defer conn.Close()
	p, err := r.peerOf(conn)
	r.mu.Lock()
	r.open[p.pid]++
	crowd := r.open[p.pid]
	busy := crowd > 128
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open[p.pid]--; r.has("never forgets a crowd") && r.open[p.pid] >= 127 {
			r.open[p.pid] = 1000
		}
	}()
	switch {
	case r.has("hangs up on a crowd") && busy:
		return
	case busy:
		r.answer(conn, refusal("BUSY"))
		return
	case err != nil:
		r.answer(conn, refusal("PEER_REFUSED"))
		return
	}
	if r.has("one after the other") || r.has("waits for its reader") {
		r.turn.Lock()
		defer r.turn.Unlock()
	}
	if r.has("a crowd holds up all") && crowd == 51 {
		r.hold()
	}
	frame, code := r.frame(conn, &p)
	if r.has("gives back what nobody fetched") && bytes.Contains(frame, []byte("consume_token")) && hungUp(conn) {
		return
	}
	if code == "" || r.has("carries out before it has read all") && bytes.HasSuffix(frame, []byte("}")) {
		answer := r.request(frame, p)
		if code == "" {
			r.answer(conn, answer)
			return
		}
	}
	r.answer(conn, refusal(code))
}

// hold keeps everybody waiting for longer than the kit waits.
func (r *reference) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = time.Now().Add(10 * time.Second)
}

func (r *reference) wait() {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	<-time.After(time.Until(held))
}

func refusal(code string) map[string]any { return map[string]any{"ok": false, "code": code} }

// answer writes an answer, which is where several faults are.
func (r *reference) answer(conn *net.UnixConn, a map[string]any) {
	end := "\n"
	switch {
	case r.has("tells the reason") && a["ok"] == false:
		a["reason"] = "because"
	case r.has("greets") && a["ok"] == true:
		a["version"] = 1
	case r.has("words of its own") && a["code"] == "SESSION_UNKNOWN":
		a["code"] = "NO_SUCH_SESSION"
	case r.has("no newline"):
		end = ""
	case r.has("two newlines"):
		end = "\n\n"
	}
	if r.has("waits before it writes") {
		<-time.After(6 * time.Second)
	}
	r.wait()
	text, _ := json.Marshal(a)
	if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return
	}
	_, _ = conn.Write(append(text, end...))
	switch {
	case r.has("stays open"):
		<-time.After(6 * time.Second)
	case r.has("waits for its reader"):
		untilRead(conn)
	}
}

// hungUp reports whether the client closes within a second, instead of
// waiting for its answer.
func hungUp(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // hanging up is always told
		for n = -1; n < 0; {
			n, _ = unix.Poll(fds, 1000)
		}
	})
	return n > 0
}

// untilRead waits until the client has taken its answer, for longer than the
// kit waits.
func untilRead(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
		unread := 0
		_ = raw.Control(func(fd uintptr) { unread, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if unread == 0 {
			return
		}
	}
}

const refLimit = 65536

// frame reads to the end of file and returns what is before the newline.
func (r *reference) frame(conn *net.UnixConn, p *refPeer) ([]byte, string) {
	var all []byte
	buf, oob := make([]byte, 32<<10), make([]byte, 256)
	most := refLimit
	switch {
	case r.has("limit one too small"):
		most--
	case r.has("limit one too large"):
		most++
	}
	ends := time.Now().Add(r.deadline)
	if r.has("no deadline") {
		ends = ends.Add(20 * time.Second)
	}
	for {
		if r.has("sliding deadline") {
			ends = time.Now().Add(r.deadline)
		}
		if err := conn.SetReadDeadline(ends); err != nil {
			return nil, "FRAME_UNTERMINATED"
		}
		n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
		if n > 0 {
			r.writer(oob[:oobn], p)
			all = append(all, buf[:n]...)
		}
		at := bytes.IndexByte(all[:min(len(all), most)], '\n')
		if r.has("a drip holds up all") && at < 0 && len(all) > 0 && len(all) < 30 {
			r.hold()
		}
		switch {
		case r.has("judges content first") && len(all) > 0 && all[0] != '{':
			return nil, "FRAME_MALFORMED"
		case errors.Is(err, os.ErrDeadlineExceeded):
			if r.has("grants at the deadline") && at >= 0 {
				return all[:at], ""
			}
			return all[:max(at, 0)], "DEADLINE_EXCEEDED"
		case at < 0 && len(all) > most && !r.has("no limit"):
			return nil, "FRAME_TOO_LARGE"
		case at >= 0 && len(all) > at+1 && r.has("reads the first of two"):
			return all[:at], ""
		case at >= 0 && len(all) > at+1 && r.has("allows blanks behind the newline") && len(bytes.TrimSpace(all[at:])) == 0:
			return all[:at], ""
		case at >= 0 && len(all) > at+1:
			return all[:at], "FRAME_MULTIPLE"
		case at >= 0 && (r.has("does not wait for the half-close") || r.has("looks at content at once") && !bytes.HasSuffix(all[:at], []byte("}"))):
			return all[:at], ""
		case r.has("needs a whole request in one piece") && at < 0 && n > 0:
			return nil, "FRAME_UNTERMINATED"
		case errors.Is(err, io.EOF) || n == 0:
			switch {
			case r.has("wants lines to end as in HTTP") && !bytes.HasSuffix(all, []byte("\r\n")):
				return nil, "FRAME_UNTERMINATED"
			case at >= 0:
				return all[:at], ""
			case r.has("does without the newline"):
				return all, ""
			case r.has("says nothing at end of file"):
				return nil, ""
			}
			return nil, "FRAME_UNTERMINATED"
		case err != nil:
			return nil, "FRAME_UNTERMINATED"
		}
	}
}
