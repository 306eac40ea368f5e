//go:build linux

package lan

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// origin is the host that a connection comes from: by its address if
// [Host.Dial] made it, else by the process that holds the other end. It is nil
// if no host has that.
func (g *loopback) origin(c net.Conn) *Host {
	peer := addrPort(c.RemoteAddr())
	if h := g.lan.hostAt(peer.Addr()); h != nil {
		return h
	}
	socket := socketOf(peer, addrPort(c.LocalAddr()))
	if socket == "" {
		return nil
	}
	// A program may move a file to another number just when we look there.
	for range 5 {
		for _, h := range g.lan.Hosts {
			if slices.ContainsFunc(h.pids(), func(pid int) bool { return holds(pid, socket) }) {
				return h
			}
		}
		if holdsItself(os.Getpid(), socket) {
			return nil
		}
	}
	return nil
}

// socketOf is how /proc/PID/fd names the socket with these ends.
func socketOf(local, remote netip.AddrPort) string {
	f, err := os.Open("/proc/thread-self/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	here, there := inTable(local), inTable(remote)
	const from, to, inode = 1, 2, 9
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > inode && f[from] == here && f[to] == there {
			return "socket:[" + f[inode] + "]"
		}
	}
	return ""
}

// inTable is how the kernel's table writes an address: as a number in the
// machine's order of bytes.
func inTable(a netip.AddrPort) string {
	b := a.Addr().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), a.Port())
}

// holds tells whether the process or one that descends from it has the file.
func holds(pid int, file string) bool {
	if holdsItself(pid, file) {
		return true
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil && holds(child, file) {
				return true
			}
		}
	}
	return false
}

func holdsItself(pid int, file string) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(fds, func(fd string) bool {
		target, err := os.Readlink(fd)
		return err == nil && target == file
	})
}
