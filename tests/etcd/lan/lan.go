//go:build linux

// Package lan gives a test several hosts on one network: each has an address,
// runs processes, can be cut off and joined again, and its line can be slow.
// What crosses the network can be recorded and searched.
//
//	net := lan.New(t, 2)
//	a, b := net.Hosts[0], net.Hosts[1]
//	listen, err := b.Listen(8080)
//	err = b.Start(exec.Command("server", "--listen", listen))
//	conn, err := a.Dial(ctx, "tcp", b.At(8080))
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
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// LAN is a network of hosts that lasts until its test ends.
type LAN struct {
	Hosts []*Host

	ground ground
	record recorder

	ended context.Context // when the test did
	end   context.CancelFunc

	mu    sync.RWMutex
	users sync.WaitGroup // calls of on; none begins when ended is done
}

func newLAN() *LAN {
	l := &LAN{}
	l.ended, l.end = context.WithCancel(context.Background())
	return l
}

// ground is what hosts stand on.
type ground interface {
	isolated() bool
	// on calls f where sockets and children belong to the host, on a thread
	// that lives as long as the host if it is to have children.
	on(h *Host, children bool, f func())
	dialer(h *Host) net.Dialer
	// listen is where a server of the host is to listen, see [Host.Listen].
	listen(h *Host, port uint16) (netip.AddrPort, error)
	close()
}

// maxHosts is how many addresses a network has for them.
const maxHosts = 64

// New makes a network of n hosts: namespaces, or loopback addresses where those
// are not allowed.
func New(t testing.TB, n int) *LAN {
	t.Helper()
	return begin(t, n, func(n int) (*LAN, error) {
		l, err := newIsolated(n)
		if err != nil {
			t.Logf("hosts are loopback addresses, for: %v", err)
			return newLoopback(n)
		}
		return l, nil
	})
}

// NewLoopback makes a network of hosts that are loopback addresses, for what
// is different there.
func NewLoopback(t testing.TB, n int) *LAN {
	t.Helper()
	return begin(t, n, newLoopback)
}

func begin(t testing.TB, n int, hosts func(int) (*LAN, error)) *LAN {
	t.Helper()
	if n < 1 || n > maxHosts {
		t.Fatalf("a network has 1 to %d hosts, not %d", maxHosts, n)
	}
	l, err := hosts(n)
	if err != nil {
		t.Fatalf("making hosts: %v", err)
	}
	t.Cleanup(l.close)
	return l
}

// Isolated tells whether hosts are namespaces. On loopback addresses, a process
// can reach what listens there beside [Host.Listen]; a host that is cut off can
// still connect, and then waits; and what another process serves at the same
// address is not kept from it.
func (l *LAN) Isolated() bool { return l.ground.isolated() }

var errEnded = errors.New("the network has ended with its test")

// on calls f on the host, unless the network has ended.
func (l *LAN) on(h *Host, children bool, f func()) error {
	l.mu.RLock()
	if l.ended.Err() != nil {
		l.mu.RUnlock()
		return errEnded
	}
	l.users.Add(1)
	l.mu.RUnlock()
	defer l.users.Done()
	l.ground.on(h, children, f)
	return nil
}

func (l *LAN) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.users.Wait()
	for _, h := range l.Hosts {
		h.killAll()
	}
	l.ground.close()
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
