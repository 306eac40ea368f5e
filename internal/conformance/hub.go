//go:build linux

package conformance

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// hub is where actors meet the kit. Each actor has a channel of its own to
// it, made by its parent before it was started, so that it can still be
// talked to when its parent is dead. Descriptors change hands here too.
type hub struct {
	name     string
	listener *net.UnixListener
	served   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	channels map[*net.UnixConn]bool
	awaited  map[string]chan *net.UnixConn // actors by name
	offered  map[string]sock               // descriptors by name
}

// openHub listens on an abstract socket, which leaves no file behind, by a
// name that nobody can guess.
func openHub() (*hub, error) {
	name := "@spendonce-conformance-" + rand.Text()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening for actors: %w", err)
	}
	h := &hub{
		name:     name,
		listener: listener,
		channels: map[*net.UnixConn]bool{},
		awaited:  map[string]chan *net.UnixConn{},
		offered:  map[string]sock{},
	}
	h.served.Go(h.serve)
	return h, nil
}

func (h *hub) serve() {
	for {
		conn, err := h.listener.AcceptUnix()
		if err != nil {
			return
		}
		h.served.Go(func() {
			if !h.keep(conn) || !h.greet(conn) {
				h.drop(conn)
			}
		})
	}
}

// greet hears what a new connection is for, and reports whether it is to stay.
func (h *hub) greet(conn *net.UnixConn) bool {
	if uid, err := peerUID(conn); err != nil || uid != os.Geteuid() {
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(channelTime))
	buf, oob := make([]byte, 64), make([]byte, syscall.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return false
	}
	what, name, _ := strings.Cut(string(buf[:n]), " ")
	switch what {
	case "give":
		s, err := descriptorIn(oob[:oobn])
		if err != nil {
			return false
		}
		h.offer(name, s)
		_, _ = conn.Write([]byte{'\n'})
	case "take":
		s, ok := h.fetch(name)
		if !ok {
			return false
		}
		_, _, _ = conn.WriteMsgUnix([]byte{'\n'}, syscall.UnixRights(int(s)), nil)
		s.close()
	case "actor":
		h.mu.Lock()
		arrived := h.awaited[name]
		delete(h.awaited, name)
		h.mu.Unlock()
		if arrived == nil {
			return false
		}
		_, err := conn.Write([]byte{'\n'})
		_ = conn.SetDeadline(time.Time{})
		arrived <- conn
		return err == nil
	}
	return false
}

func (h *hub) offer(name string, s sock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.close()
		return
	}
	h.offered[name] = s
}

func (h *hub) fetch(name string) (sock, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.offered[name]
	delete(h.offered, name)
	return s, ok
}

// await returns where the channel of the actor called name will arrive.
func (h *hub) await(name string) <-chan *net.UnixConn {
	arrived := make(chan *net.UnixConn, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaited[name] = arrived
	return arrived
}

// keep makes close end conn too.
func (h *hub) keep(conn *net.UnixConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.channels[conn] = true
	}
	return !h.closed
}

func (h *hub) drop(conn *net.UnixConn) {
	_ = conn.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.channels, conn)
}

// close ends all channels; actors exit when theirs ends.
func (h *hub) close() {
	_ = h.listener.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for conn := range h.channels {
		_ = conn.Close()
	}
	for _, s := range h.offered {
		s.close()
	}
	clear(h.offered)
}

func peerUID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	uid := -1
	var inner error
	err = raw.Control(func(fd uintptr) { uid, inner = sock(fd).peerUID() })
	return uid, errors.Join(err, inner)
}

// peerUID returns who is at the other end, as the kernel says.
func (s sock) peerUID() (int, error) {
	cred, err := syscall.GetsockoptUcred(int(s), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return -1, fmt.Errorf("asking who is at the other end: %w", err)
	}
	return int(cred.Uid), nil
}

// actor is a process that obeys the kit.
type actor struct {
	hub    *hub
	conn   *net.UnixConn
	in     *json.Decoder
	pid    int // as its parent sees it
	parent process
	buried bool
}

// orderTime bounds one order; the longest is a client that drips for 8 s.
const orderTime = 30 * time.Second

// start lets parent start an actor. What more says beside its name is up to the
// caller; an Argv there is a program that runs the actor as its child.
func (k *kit) start(parent process, more order) (*actor, error) {
	k.named++
	name := fmt.Sprintf("actor-%d", k.named)
	arrived := k.hub.await(name)
	more.Do, more.Control, more.Name = doSpawn, k.hub.name, name
	if len(more.Argv) == 0 {
		more.Argv = k.argv
	} else {
		more.Argv = append(append(more.Argv, k.argv[0]), k.argv[2:]...)
	}
	r := parent.do(more)
	if r.Failed != "" {
		return nil, fmt.Errorf("starting an actor: %s", r.Failed)
	}
	a := &actor{hub: k.hub, conn: <-arrived, pid: r.Pid, parent: parent}
	a.in = json.NewDecoder(bufio.NewReader(a.conn))
	k.actors = append(k.actors, a)
	if first := a.hear(); first.Failed != "" {
		return nil, fmt.Errorf("starting an actor: %s", first.Failed)
	}
	return a, nil
}

func (a *actor) do(o order) reply {
	_ = a.conn.SetWriteDeadline(time.Now().Add(orderTime))
	if err := json.NewEncoder(a.conn).Encode(o); err != nil {
		return reply{Failed: "an actor does not listen: " + err.Error()}
	}
	return a.hear()
}

func (a *actor) hear() (r reply) {
	_ = a.conn.SetReadDeadline(time.Now().Add(orderTime))
	if err := a.in.Decode(&r); err != nil {
		return reply{Failed: "an actor does not answer: " + err.Error()}
	}
	return r
}

// exit lets the actor exit and returns when its descriptors are closed. Its
// parent may not have reaped it yet.
func (a *actor) exit() error {
	defer a.hub.drop(a.conn)
	_ = a.conn.SetDeadline(time.Now().Add(orderTime))
	if err := json.NewEncoder(a.conn).Encode(order{Do: doExit}); err != nil {
		return nil // it was gone already
	}
	for {
		var late reply
		switch err := a.in.Decode(&late); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("ending an actor: %w", err)
		case err != nil:
			return nil
		}
	}
}
