//go:build linux

package broker_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// K09: descent alone decides.
func TestAnAnchorAndItsDescendantsAreMembers(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	for name, a := range map[string]*actor{"the anchor": anchor, "its child": child, "its grandchild": child.spawn()} {
		want(t, name, a.authenticate(s), ok)
		token := a.mint(s)
		want(t, name+" consumes", a.consume(s, token), ok)
		want(t, name+" consumes again", a.consume(s, token), "TOKEN_REPLAY")
	}
}

func TestADescendantFarBelowIsAMember(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	deep := 40
	if testing.Short() {
		deep = 20
	}
	last := anchor.below(deep)
	want(t, "a late descendant", last.authenticate(s), ok)
	want(t, "a late descendant consumes", last.consume(s, last.mint(s)), ok)
}

// K08 and K10: a session id and a token that got out.
func TestAStrangerWithTheSessionAndATokenIsRefusedAndTheTokenStays(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor, stranger := c.actor(), c.actor()
	s := anchor.register(at.socket, 0)
	own := stranger.register(at.socket, 0)
	token := anchor.mint(s)

	want(t, "a stranger authenticates", stranger.authenticate(s), "NOT_DESCENDANT")
	code, _ := stranger.tryMint(s)
	want(t, "a stranger mints", code, "NOT_DESCENDANT")
	want(t, "a stranger consumes", stranger.consume(s, token), "NOT_DESCENDANT")
	want(t, "a stranger consumes it in a session of its own", stranger.consume(own, token), "TOKEN_REPLAY")
	// The test is the anchor's parent.
	want(t, "the anchor's parent", codeOf(at.client().Authenticate(t.Context(), sessionOf(s.order("")))), "NOT_DESCENDANT")
	want(t, "the anchor consumes", anchor.consume(s, token), ok)
}

// K11.
func TestAnAnchorInsideAnotherHasASessionOfItsOwn(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	outer := c.actor()
	inner := outer.spawn()
	s, own := outer.register(at.socket, 5), inner.register(at.socket, 0)
	if s.id == own.id {
		t.Fatal("both have the same session")
	}
	token := outer.mint(s)
	inner.register(at.socket, 9)
	want(t, "the outer one, after the inner one's next generation", outer.authenticate(s), ok)
	want(t, "the inner one in the outer session", inner.authenticate(s), ok)
	want(t, "the outer one in the inner session", outer.authenticate(session{at.socket, own.id, 9}), "NOT_DESCENDANT")
	want(t, "the outer token", inner.consume(s, token), ok)

	inner.exit()
	outer.tell(order{Do: "reap", PID: inner.pid})
	want(t, "the outer one, after the inner one's end", outer.authenticate(s), ok)
}

func TestAChildWhoseParentDiedIsNoMemberAnyMore(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	parent := anchor.spawn()
	orphan := parent.spawn()
	want(t, "while its parent lives", orphan.authenticate(s), ok)
	parent.exit()
	anchor.tell(order{Do: "reap", PID: parent.pid})
	want(t, "an orphan", orphan.authenticate(s), "NOT_DESCENDANT")
}

func TestAnOrphanStaysAMemberBelowAnAnchorThatAdopts(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	anchor.tell(order{Do: "adopt"})
	s := anchor.register(at.socket, 0)
	parent := anchor.spawn()
	orphan := parent.below(2)
	parent.exit()
	anchor.tell(order{Do: "reap", PID: parent.pid})
	want(t, "an orphan's child", orphan.authenticate(s), ok)
}

// K02: /proc/<pid> of such a process belongs to root.
func TestAPeerThatCannotBeDumpedIsServed(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	anchor.tell(order{Do: "hide"})
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	child.tell(order{Do: "hide"})
	want(t, "a hidden child", child.authenticate(s), ok)
}

// K06.
func TestANameThatImitatesOtherFieldsMisleadsNobody(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor, stranger := c.actor(), c.actor()
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	for _, name := range []string{") S 1 1 1 1", "a) R 2\n(b", ")))))"} {
		for _, a := range []*actor{anchor, child, stranger} {
			a.tell(order{Do: "rename", Text: name})
		}
		want(t, "a child named "+name, child.authenticate(s), ok)
		want(t, "a stranger named "+name, stranger.authenticate(s), "NOT_DESCENDANT")
	}
}

// K13 and K36.
func TestASessionEndsWithItsAnchorAndItsTokensWithIt(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	anchor.tell(order{Do: "adopt"})
	child := anchor.spawn()
	token := child.mint(s)
	anchor.end()
	want(t, "a child of the dead anchor", child.authenticate(s), "SESSION_UNKNOWN")
	want(t, "its token", child.consume(s, token), "SESSION_UNKNOWN")

	fresh := c.actor()
	next := fresh.register(at.socket, 0)
	want(t, "a new anchor", fresh.authenticate(next), ok)
	want(t, "the old token in the new session", fresh.consume(next, token), "TOKEN_REPLAY")
	// Its records go as soon as its end is noticed, whoever asks.
	eventually(t, func() bool { st := at.status(); return len(st.Sessions) == 1 && st.Pending == 0 && st.Revoked == 1 })
	if state := at.stateFile(); strings.Contains(state, s.id) || !strings.Contains(state, next.id) {
		t.Error("the state file still has the session")
	}
}

// An anchor that waits to be reaped still has its pid.
func TestAZombieIsNoAnchor(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	anchor.tell(order{Do: "adopt"})
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	anchor.exit()
	want(t, "its child", child.authenticate(s), "SESSION_UNKNOWN")
}

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

// K12: whatever is wrong, no token comes of it.
func TestNoRefusedRequestHasAnEffect(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor, stranger := c.actor(), c.actor()
	s := anchor.register(at.socket, 3)
	token := anchor.mint(s)
	before := at.stateFile()
	for name, try := range map[string]func() string{
		"another session":    func() string { return anchor.authenticate(session{at.socket, strings.Repeat("A", 43), 3}) },
		"no session":         func() string { return anchor.authenticate(session{at.socket, "", 3}) },
		"a lower generation": func() string { code, _ := anchor.tryMint(session{at.socket, s.id, 2}); return code },
		"a higher one":       func() string { return anchor.consume(session{at.socket, s.id, 4}, token) },
		"another token":      func() string { return anchor.consume(s, strings.Repeat("A", 43)) },
		"a misspelt token":   func() string { return anchor.consume(s, token[:42]) },
		"a stranger":         func() string { return stranger.consume(s, token) },
		"a lower generation to register": func() string {
			return anchor.tell(order{Do: "register", Path: at.socket, Generation: 2}).Code
		},
	} {
		if code := try(); code == ok || code == unknown {
			t.Errorf("%s: %s", name, code)
		}
	}
	if at.stateFile() != before {
		t.Error("the state has changed")
	}
	want(t, "the token", anchor.consume(s, token), ok)
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
