//go:build linux

package lan

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
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
	socket := socketOf(peer)
	if socket == "" {
		return nil
	}
	for _, h := range g.lan.Hosts {
		for _, pid := range h.pids() {
			if holds(pid, socket) {
				return h
			}
		}
	}
	return nil
}

// socketOf is how /proc/PID/fd names the socket with the local address.
func socketOf(local netip.AddrPort) string {
	f, err := os.Open("/proc/thread-self/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	a := local.Addr().As4()
	// The address is printed as a number in the machine's order of bytes.
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X", a[3], a[2], a[1], a[0], local.Port())
	const address, inode = 1, 9
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > inode && f[address] == want {
			return "socket:[" + f[inode] + "]"
		}
	}
	return ""
}

// holds tells whether the process or one that descends from it has the file.
func holds(pid int, file string) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && target == file {
			return true
		}
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
