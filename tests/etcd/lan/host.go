//go:build linux

package lan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Host is one machine on the network.
type Host struct {
	Addr netip.Addr

	lan *LAN

	starting sync.Mutex // held until what started is in processes

	mu        sync.Mutex
	in, out   chan struct{} // closed by Join; nil while the way is free
	delay     time.Duration
	skew      int64 // seconds
	processes []process
}

// process is one that was started; the pidfd ends its life and tells its end.
type process struct{ pid, fd int }

func newHost(l *LAN, addr netip.Addr) *Host { return &Host{Addr: addr, lan: l} }

// At is the address of a port of the host, for whoever connects to it.
func (h *Host) At(port uint16) string { return netip.AddrPortFrom(h.Addr, port).String() }

// Cut takes the host off the network: until Join, nothing that it sends
// arrives anywhere else, and nothing reaches it. Nobody is told.
func (h *Host) Cut() {
	h.Mute()
	h.Deafen()
}

// Mute lets nothing that the host sends arrive anywhere else, until Join.
func (h *Host) Mute() { h.block(&h.out) }

// Deafen lets nothing reach the host, until Join. What it asks for still
// happens, but it never hears of it.
func (h *Host) Deafen() { h.block(&h.in) }

func (h *Host) block(way *chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *way == nil {
		*way = make(chan struct{})
	}
}

// Join puts the host back on the network.
func (h *Host) Join() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, way := range []*chan struct{}{&h.in, &h.out} {
		if *way != nil {
			close(*way)
			*way = nil
		}
	}
}

// blocked is closed when what stands between two hosts may be gone; it is nil
// if nothing does. A host that is not known is never in the way.
func blocked(from, to *Host) <-chan struct{} {
	if from == to {
		return nil
	}
	if from != nil {
		if c := from.way(&from.out); c != nil {
			return c
		}
	}
	if to != nil {
		return to.way(&to.in)
	}
	return nil
}

func (h *Host) way(of *chan struct{}) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *of
}

// Delay makes everything that the host sends take d longer from now on.
func (h *Host) Delay(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delay = d
}

func (h *Host) delayed() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.delay
}

// Listen is the address at which a server on the host is to listen, so that
// others reach it at [Host.At] of the same port.
func (h *Host) Listen(port uint16) (string, error) {
	a, err := h.lan.ground.listen(h, port)
	return a.String(), err
}

// Dial connects from the host. The address must hold an IP address: names are
// looked up elsewhere.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dialing from a host: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.lan.ended, cancel)()
	var conn net.Conn
	var err error
	ended := h.lan.on(h, false, func() {
		d := h.lan.ground.dialer(h)
		conn, err = d.DialContext(ctx, network, address)
	})
	return conn, cmp.Or(ended, err)
}

// Serve listens on the host, at an address that [Host.Listen] gave.
func (h *Host) Serve(address string) (net.Listener, error) {
	var ln net.Listener
	var err error
	ended := h.lan.on(h, false, func() { ln, err = net.Listen("tcp", address) })
	return ln, cmp.Or(ended, err)
}

// Start starts the command on the host, as a process group. It is killed when
// this process ends, in whatever way, and so is the group at the end of the test.
func (h *Host) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	fd := -1
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.PidFD = &fd
	cmd.SysProcAttr.Setpgid = true
	h.starting.Lock()
	defer h.starting.Unlock()
	var err error
	ended := h.lan.on(h, true, func() {
		if skew := h.clock(); skew != 0 {
			err = startSkewed(cmd, skew)
		} else {
			err = cmd.Start()
		}
	})
	if err := cmp.Or(ended, err); err != nil {
		return fmt.Errorf("starting %q on a host: %w", cmd.Path, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.processes = append(h.processes, process{cmd.Process.Pid, fd})
	return nil
}

// Run starts the command on the host and waits for it.
func (h *Host) Run(cmd *exec.Cmd) error {
	if err := h.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

func (h *Host) pids() []int {
	h.starting.Lock()
	defer h.starting.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []int
	for _, p := range h.processes {
		all = append(all, p.pid)
	}
	return all
}

// killAll ends what was started here, and returns when all of it has ended.
func (h *Host) killAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.processes {
		if unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP) != nil {
			_ = unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) // a kernel before 6.9
		}
	}
	for _, p := range h.processes {
		awaitExit(p.fd)
		_ = unix.Close(p.fd)
	}
	h.processes = nil
}

func awaitExit(pidfd int) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
