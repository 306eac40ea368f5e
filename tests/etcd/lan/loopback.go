//go:build linux

package lan

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// loopback is the ground where hosts are addresses of this machine. Whoever
// serves listens at another address, and a relay at the host's own.
type loopback struct {
	lan     *LAN
	claim   net.Listener // keeps others from the same addresses
	parent  chan func()  // a thread that has the processes as children
	running sync.WaitGroup
}

// claimPort is where a network holds its addresses, and behind is how far the
// address where a host's server listens is from the host's own.
const (
	claimPort = 20000
	behind    = maxHosts
)

func newLoopback(n int) (*LAN, error) {
	claim, err := claimAddresses()
	if err != nil {
		return nil, err
	}
	l := newLAN()
	g := &loopback{lan: l, claim: claim, parent: make(chan func())}
	l.ground = g
	at, err := netip.ParseAddrPort(claim.Addr().String())
	if err != nil {
		return nil, err
	}
	for i := range n {
		l.Hosts = append(l.Hosts, newHost(l, nth(netip.PrefixFrom(at.Addr(), 24), i)))
	}
	go onOwnThread(func() {
		for f := range g.parent {
			f()
		}
	})
	return l, nil
}

// claimAddresses takes one of the networks 127.x.y.0/24 that nobody here has.
func claimAddresses() (net.Listener, error) {
	var err error
	for range 100 {
		var b [2]byte
		_, _ = rand.Read(b[:])
		var ln net.Listener
		addr := netip.AddrFrom4([4]byte{127, b[0], b[1], 1})
		if ln, err = net.Listen("tcp", netip.AddrPortFrom(addr, claimPort).String()); err == nil {
			return ln, nil
		}
	}
	return nil, fmt.Errorf("finding free loopback addresses: %w", err)
}

func (g *loopback) isolated() bool { return false }

func (g *loopback) on(_ *Host, children bool, f func()) {
	if !children {
		f()
		return
	}
	done := make(chan struct{})
	g.parent <- func() { defer close(done); f() }
	<-done
}

// dialer shows by its address which host dials.
func (g *loopback) dialer(h *Host) net.Dialer {
	return net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.Addr, 0))}
}

func (g *loopback) listen(h *Host, port uint16) (netip.AddrPort, error) {
	a := h.Addr.As4()
	a[3] += behind
	server := netip.AddrPortFrom(netip.AddrFrom4(a), port)
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.Addr, port)))
	if err != nil {
		return netip.AddrPort{}, err
	}
	context.AfterFunc(g.lan.ended, func() { ln.Close() })
	g.running.Go(func() {
		for {
			c, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			g.running.Go(func() { g.relay(c, h, server) })
		}
	})
	return server, nil
}

// relay connects who called with the host's server. No byte is lost while one
// of them is cut off: it comes late, as TCP would bring it.
func (g *loopback) relay(c *net.TCPConn, to *Host, server netip.AddrPort) {
	defer c.Close()
	from := g.origin(c)
	if !g.awaitPath(from, to) {
		return
	}
	s, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(server))
	if err != nil {
		return
	}
	defer s.Close()
	defer context.AfterFunc(g.lan.ended, func() { c.Close(); s.Close() })()
	there := direction{addrPort(c.RemoteAddr()), addrPort(c.LocalAddr())}
	back := direction{there.to, there.from}
	var both sync.WaitGroup
	both.Go(func() { g.pump(s, c, from, to, g.lan.record.stream(there)) })
	both.Go(func() { g.pump(c, s, to, from, g.lan.record.stream(back)) })
	both.Wait()
}

// pump brings what one host sends to another, its end too, when it is due and
// there is a path.
func (g *loopback) pump(w, r *net.TCPConn, from, to *Host, f *flow) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if from != nil && !g.pass(from.delayed()) || !g.awaitPath(from, to) {
			return
		}
		g.lan.record.add(f, buf[:n])
		if _, werr := w.Write(buf[:n]); werr != nil {
			r.Close()
			return
		}
		if errors.Is(err, io.EOF) {
			_ = w.CloseWrite()
			return
		}
		if err != nil {
			w.Close()
			return
		}
	}
}

// awaitPath waits until nothing stands between the two, unless the test ends
// before.
func (g *loopback) awaitPath(from, to *Host) bool {
	for wait := blocked(from, to); wait != nil; wait = blocked(from, to) {
		select {
		case <-wait:
		case <-g.lan.ended.Done():
			return false
		}
	}
	return true
}

// pass lets time pass, unless the test ends before.
func (g *loopback) pass(d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-g.lan.ended.Done():
		return false
	}
}

func (g *loopback) close() {
	close(g.parent)
	g.claim.Close()
	g.running.Wait()
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return tcp.AddrPort()
}
