//go:build linux

package lan

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// subnet is one of those that RFC 5737 keeps for examples: a packet that got
// out of here would go nowhere.
var subnet = netip.MustParsePrefix("192.0.2.0/24")

// namespaces is the ground where each host is a network namespace.
type namespaces struct {
	lan   *LAN
	home  *os.File // where this process is
	rooms map[*Host]*room
	pumps sync.WaitGroup
}

// room is one host's namespace: a thread that stays in it and has the host's
// children, since children die with the thread that started them; and its line.
type room struct {
	space *os.File
	work  chan func()
	tun   *os.File
	late  chan latePacket
}

func newIsolated(n int) (_ *LAN, err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	l := newLAN()
	g := &namespaces{lan: l, home: home, rooms: map[*Host]*room{}}
	l.ground = g
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	for i := range n {
		h := newHost(l, nth(subnet, i))
		r, err := newRoom(h.Addr)
		if err != nil {
			return nil, err
		}
		g.rooms[h] = r
		l.Hosts = append(l.Hosts, h)
	}
	for h, r := range g.rooms {
		g.pumps.Go(func() { g.carry(h, r) })
		g.pumps.Go(func() { g.deliverLate(h, r) })
	}
	return l, nil
}

// nth is the address of the host with the number i.
func nth(in netip.Prefix, i int) netip.Addr {
	a := in.Addr().As4()
	a[3] = byte(11 + i)
	return netip.AddrFrom4(a)
}

func newRoom(addr netip.Addr) (*room, error) {
	r := &room{work: make(chan func()), late: make(chan latePacket, 4096)}
	ready := make(chan error)
	go onOwnThread(func() {
		err := r.furnish(addr)
		ready <- err
		if err != nil {
			return
		}
		for f := range r.work {
			f()
		}
	})
	if err := <-ready; err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// onOwnThread calls f on a thread that nothing else runs on, and that ends
// with it. It is not the process's first one: that cannot end, and what
// /proc/self says is said of it.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		started := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(started)
			f()
		}()
		<-started
		runtime.UnlockOSThread()
		return
	}
	f()
}

// furnish moves the calling thread into a namespace of its own and connects
// that to a TUN device with the address.
func (r *room) furnish(addr netip.Addr) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace: %w", err)
	}
	space, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	r.space = space
	if r.tun, err = openTUN("lan0"); err != nil {
		return err
	}
	if err := bringUp("lo", netip.Prefix{}); err != nil {
		return err
	}
	return bringUp("lan0", netip.PrefixFrom(addr, subnet.Bits()))
}

func (g *namespaces) on(h *Host, children bool, f func()) {
	r := g.rooms[h]
	done := make(chan struct{})
	if children {
		r.work <- func() { defer close(done); f() }
	} else {
		go func() { defer close(done); g.visit(r, f) }()
	}
	<-done
}

// visit calls f in the namespace, on a thread that it brings back. Were that
// thread to end instead, what others started on it would die.
func (g *namespaces) visit(r *room, f func()) {
	runtime.LockOSThread()
	if err := unix.Setns(int(r.space.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("entering a host: %v", err))
	}
	f()
	if err := unix.Setns(int(g.home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("leaving a host: %v", err))
	}
	runtime.UnlockOSThread()
}

func (g *namespaces) isolated() bool { return true }

func (g *namespaces) dialer(*Host) net.Dialer { return net.Dialer{} }

func (g *namespaces) listen(h *Host, port uint16) (netip.AddrPort, error) {
	return netip.AddrPortFrom(h.Addr, port), nil
}

func (g *namespaces) close() {
	for _, r := range g.rooms {
		r.close()
	}
	g.pumps.Wait()
	g.home.Close()
}

func (r *room) close() {
	close(r.work)
	for _, f := range []*os.File{r.tun, r.space} {
		if f != nil {
			f.Close()
		}
	}
}
