//go:build linux

package conformance_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func (r *reference) peerOf(conn *net.UnixConn) (p refPeer, err error) {
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
	if !ok || int(cred.Uid) != os.Geteuid() && !r.has("takes every user") {
		return p, errors.New("refused")
	}
	return refPeer{pid: int(cred.Pid), start: st.start}, nil
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
	switch ns := "/proc/" + strconv.Itoa(p.pid) + "/ns/pid"; {
	case r.has("takes everybody for a descendant"):
		return true
	case r.has("serves only its own pid namespace"):
		own, _ := os.Readlink("/proc/self/ns/pid")
		if other, _ := os.Readlink(ns); own != other {
			return false
		}
	case r.has("serves only whom it saw in time"):
		if start, _ := strconv.ParseInt(p.start, 10, 64); start >= s.since {
			return false
		}
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
		if r.has("believes command names") {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			now.parent, _ = strconv.Atoi(strings.Fields(string(stat[bytes.IndexByte(stat, ')')+1:]))[1])
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

// ticks is the time as starttimes are counted.
func ticks() int64 {
	up, _ := os.ReadFile("/proc/uptime")
	whole, _, _ := strings.Cut(string(up), " ")
	f, _ := strconv.ParseFloat(whole, 64)
	return int64(f * 100)
}
