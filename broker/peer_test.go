//go:build linux

package broker_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// K15.
func TestAConnectionThatSomebodyElseWritesToIsRefused(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	for name, whole := range map[string]bool{"all of the request": true, "its second half": false} {
		anchor.tell(order{Do: "dial", Path: at.socket})
		text := s.frame("authenticate")
		if !whole {
			anchor.tell(order{Do: "send", Text: text[:10]})
			text = text[10:]
		}
		conn := anchor.gives()
		if _, err := conn.WriteString(text); err != nil {
			t.Fatal(err)
		}
		anchor.tell(order{Do: "half-close"})
		want(t, name, refusalIn(t, anchor.tell(order{Do: "receive"}).Text), "PEER_REFUSED")
		conn.Close()
	}
	if r := at.lastRefusal(); r.PID != anchor.pid || !strings.Contains(r.Reason, "another process") {
		t.Errorf("the reason is %+v", r)
	}
	// What is wrong with the bytes comes first.
	anchor.tell(order{Do: "dial", Path: at.socket})
	conn := anchor.gives()
	if _, err := conn.WriteString("{}"); err != nil {
		t.Fatal(err)
	}
	anchor.tell(order{Do: "half-close"})
	want(t, "half a frame", refusalIn(t, anchor.tell(order{Do: "receive"}).Text), "FRAME_UNTERMINATED")
	conn.Close()
}

func TestARequestThatBringsDescriptorsIsRefused(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	before := descriptors(t)
	for range 10 {
		anchor.tell(order{Do: "dial", Path: at.socket})
		anchor.tell(order{Do: "send-descriptors", Text: s.frame("authenticate"), N: 3})
		anchor.tell(order{Do: "half-close"})
		want(t, "a request with descriptors", refusalIn(t, anchor.tell(order{Do: "receive"}).Text), "PEER_REFUSED")
	}
	eventually(t, func() bool { return descriptors(t) <= before })
}

// K04: the peer is gone when the broker looks.
func TestAPeerThatHasExitedIsRefused(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	for name, reaped := range map[string]bool{"as a zombie": false, "reaped": true} {
		peer := anchor.spawn()
		peer.tell(order{Do: "dial", Path: at.socket})
		peer.tell(order{Do: "send", Text: s.frame("authenticate")})
		conn := peer.gives() // keeps it open
		peer.exit()
		if reaped {
			anchor.tell(order{Do: "reap", PID: peer.pid})
		}
		want(t, name, refusalIn(t, finish(t, conn)), "PEER_REFUSED")
		if r := at.lastRefusal(); r.PID != peer.pid || !strings.Contains(r.Reason, "exited") {
			t.Errorf("%s: the reason is %+v", name, r)
		}
	}
	// Nor does one become an anchor so.
	peer := c.actor()
	peer.tell(order{Do: "dial", Path: at.socket})
	peer.tell(order{Do: "send", Text: `{"action":"register_anchor","runtime_generation":0}` + "\n"})
	conn := peer.gives()
	peer.exit()
	want(t, "a dead registration", refusalIn(t, finish(t, conn)), "PEER_REFUSED")
	if n := len(at.status().Sessions); n != 1 {
		t.Errorf("there are %d sessions", n)
	}
}

// descriptors counts those of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// gives takes the connection that a has dialed; a keeps its own descriptor.
func (a *actor) gives() *os.File {
	a.t.Helper()
	if err := a.say(order{Do: "give"}); err != nil {
		a.t.Fatal(err)
	}
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := a.line.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		a.t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		a.t.Fatal(messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.hear(); err != nil {
		a.t.Fatal(err)
	}
	conn := os.NewFile(uintptr(fds[0]), "a connection of another process")
	a.t.Cleanup(func() { conn.Close() })
	return conn
}
