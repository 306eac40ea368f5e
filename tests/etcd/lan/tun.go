//go:build linux

package lan

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openTUN makes a device in the thread's namespace. What the namespace sends
// is read from the file, packet by packet, and what is written to it arrives.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("making a TUN device: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// bringUp gives a device of the thread's namespace its address, if it has
// one, and switches it on.
func bringUp(name string, addr netip.Prefix) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	set := func(what uint, fill func(*unix.Ifreq) error) {
		if err != nil {
			return
		}
		var ifr *unix.Ifreq
		if ifr, err = unix.NewIfreq(name); err == nil {
			err = fill(ifr)
		}
		if err == nil {
			err = unix.IoctlIfreq(s, what, ifr)
		}
	}
	if addr.IsValid() {
		set(unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr.Addr().AsSlice()) })
		set(unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(net.CIDRMask(addr.Bits(), 32)) })
	}
	set(unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil })
	if err != nil {
		return fmt.Errorf("bringing up %s: %w", name, err)
	}
	return nil
}

// maxPacket is more than a device sends at its MTU of 1500.
const maxPacket = 1 << 16

// latePacket is one on a slow line.
type latePacket struct {
	to    *Host
	due   time.Time
	bytes []byte
}

// carry brings each packet of a host to where it is addressed. Packets for
// nobody, from or to a host that is cut off, and more of them than a slow line
// holds are dropped, as on any network.
func (g *namespaces) carry(from *Host, r *room) {
	buf := make([]byte, maxPacket)
	for {
		n, err := r.tun.Read(buf)
		if err != nil {
			return
		}
		packet := buf[:n]
		to := g.addressee(packet)
		if to == nil || blocked(from, to) != nil {
			continue
		}
		g.lan.record.packet(packet)
		if d := from.delayed(); d > 0 {
			select {
			case r.late <- latePacket{to, time.Now().Add(d), append([]byte(nil), packet...)}:
			default:
			}
			continue
		}
		_, _ = g.rooms[to].tun.Write(packet)
	}
}

// deliverLate is the slow line: first in, first out, each in its time.
func (g *namespaces) deliverLate(from *Host, r *room) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var p latePacket
		select {
		case p = <-r.late:
		case <-g.lan.ended.Done():
			return
		}
		timer.Reset(time.Until(p.due))
		select {
		case <-timer.C:
		case <-g.lan.ended.Done():
			return
		}
		if blocked(from, p.to) == nil {
			_, _ = g.rooms[p.to].tun.Write(p.bytes)
		}
	}
}

const ipv4Header = 20

// addressee is the host that the packet is for, nil if none is.
func (g *namespaces) addressee(packet []byte) *Host {
	if len(packet) < ipv4Header || packet[0]>>4 != 4 {
		return nil
	}
	return g.lan.hostAt(netip.AddrFrom4([4]byte(packet[16:20])))
}
