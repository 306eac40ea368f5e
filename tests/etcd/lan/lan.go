//go:build linux

// Package lan gives a test several hosts on one network: each has an address,
// runs processes, can be cut off and joined again, and its line can be slow.
// What crosses the network can be recorded and searched.
//
//	net := lan.New(t, 2)
//	a, b := net.Hosts[0], net.Hosts[1]
//	b.Start(exec.Command("server", "--listen", b.Listen(80)))
//	conn, err := a.Dial(ctx, "tcp", b.At(80))
//	b.Cut()
//
// As root on Linux a host is a network namespace with a TUN device, and the
// network is goroutines that carry packets from one device to another: nothing
// of it can be reached from outside, a host that is cut off hears nothing at
// all, not even a refusal, and everything is gone when the process is.
//
// Where that is not allowed a host is a loopback address, and in front of what
// it serves stands a relay that lets bytes through or keeps them. See
// [LAN.Isolated] for what that leaves open.
package lan

import (
	"net/netip"
	"testing"
)

// LAN is a network of hosts that lasts until its test ends.
type LAN struct {
	Hosts []*Host

	ground ground
	record recorder
}

// ground is what hosts stand on.
type ground interface {
	// on calls f where sockets and children belong to the host, on a thread
	// that lives as long as the host if it is to have children.
	on(h *Host, children bool, f func())
	// listen is where a server of the host is to listen, see [Host.Listen].
	listen(h *Host, port uint16) (netip.AddrPort, error)
	close()
}

// maxHosts is how many addresses a network has for them.
const maxHosts = 64

// New makes a network of n hosts.
func New(t testing.TB, n int) *LAN {
	t.Helper()
	if n < 1 || n > maxHosts {
		t.Fatalf("a network has 1 to %d hosts, not %d", maxHosts, n)
	}
	l, err := newIsolated(n)
	if err != nil {
		t.Fatalf("making hosts: %v", err)
	}
	t.Cleanup(l.close)
	return l
}

func (l *LAN) close() {
	for _, h := range l.Hosts {
		h.killAll()
	}
	if l.ground != nil {
		l.ground.close()
	}
}

// hostAt is the host with the address, nil if there is none.
func (l *LAN) hostAt(a netip.Addr) *Host {
	for _, h := range l.Hosts {
		if h.Addr == a {
			return h
		}
	}
	return nil
}
