//go:build linux

package broker_test

import (
	"strings"
	"testing"
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
