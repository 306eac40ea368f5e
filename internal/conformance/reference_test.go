//go:build linux

package conformance_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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

	turn sync.Mutex // only for a fault
}

type refSession struct {
	id         string
	pid        int
	start      string
	stack      string
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
	if testing.Short() {
		r.deadline = 250 * time.Millisecond
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
		}), err)
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
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
	p, err := peerOf(conn)
	r.mu.Lock()
	r.open[p.pid]++
	busy := r.open[p.pid] > 256
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open[p.pid]--; r.has("never forgets a crowd") && r.open[p.pid] >= 255 {
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
	if r.has("one after the other") {
		r.turn.Lock()
		defer r.turn.Unlock()
	}
	frame, code := r.frame(conn, &p)
	if code == "" || r.has("carries out before it has read all") && bytes.HasSuffix(frame, []byte("}")) {
		answer := r.request(frame, p)
		if code == "" {
			r.answer(conn, answer)
			return
		}
	}
	r.answer(conn, refusal(code))
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
	text, _ := json.Marshal(a)
	err := conn.SetWriteDeadline(time.Now().Add(time.Second))
	if err == nil {
		_, err = conn.Write(append(text, end...))
	}
	if r.has("stays open") {
		<-time.After(6 * time.Second)
	}
	if r.has("gives back what nobody fetched") && err != nil && a["binding"] != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, tok := range r.tokens {
			if same, _ := json.Marshal(tok.binding); bytes.Contains(text, same) {
				tok.spent = false
			}
		}
	}
}

func peerOf(conn *net.UnixConn) (p refPeer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, err
	}
	var cred *syscall.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, inner); err != nil {
		return p, err
	}
	st, ok := lookUp(int(cred.Pid))
	if !ok || int(cred.Uid) != os.Geteuid() {
		return p, errors.New("refused")
	}
	return refPeer{pid: int(cred.Pid), start: st.start}, nil
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
		switch {
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

// writer judges the control messages that came with a piece.
func (r *reference) writer(oob []byte, p *refPeer) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		p.laden = true
	}
	for _, m := range messages {
		if cred, err := syscall.ParseUnixCredentials(&m); err == nil {
			if p.pieces++; p.pieces == 1 || !r.has("asks only for the first writer") {
				p.alien = p.alien || int(cred.Pid) != p.pid
			}
			continue
		}
		fds, _ := syscall.ParseUnixRights(&m)
		for _, fd := range fds {
			syscall.Close(fd)
		}
		p.laden = true
	}
}

// refProcess is what /proc says about one.
type refProcess struct {
	parent int
	start  string
	state  string
	stack  string // where it begins: anew with each execve
}

func lookUp(pid int) (refProcess, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return refProcess{}, false
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	parent, _ := strconv.Atoi(f[1])
	return refProcess{parent: parent, start: f[19], state: f[0], stack: f[25]}, true
}

func living(pid int, start string) bool {
	p, ok := lookUp(pid)
	return ok && p.start == start && p.state != "Z" && p.state != "X"
}

// descends follows parents.
func (r *reference) descends(p refPeer, s *refSession) bool {
	if r.has("takes everybody for a descendant") {
		return true
	}
	type known struct {
		pid   int
		start string
	}
	var way []known
	for pid, hops := p.pid, 0; pid > 1 && hops < 256; hops++ {
		now, ok := lookUp(pid)
		if !ok {
			return false
		}
		way = append(way, known{pid, now.start})
		if pid == s.pid && now.start == s.start {
			return !slices.ContainsFunc(way, func(k known) bool {
				again, ok := lookUp(k.pid)
				return !ok || again.start != k.start
			})
		}
		if r.has("looks at the parent only") && hops == 1 || r.has("goes up four steps") && hops == 4 {
			return false
		}
		pid = now.parent
	}
	return false
}

// fresh is a new session id or token.
func fresh() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}
