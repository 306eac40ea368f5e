//go:build linux

package broker_test

import (
	"strings"
	"testing"

	"github.com/spendonce/spendonce/broker"
)

// K37.
func TestAHigherGenerationRevokesWhatWasMintedBefore(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor, other := c.actor(), c.actor()
	child := anchor.spawn()
	old, foreign := anchor.register(at.socket, 4), other.register(at.socket, 0)
	first, second, kept := child.mint(old), child.mint(old), other.mint(foreign)
	if again := anchor.register(at.socket, 4); again != old {
		t.Errorf("the same generation again: %+v, want %+v", again, old)
	}
	want(t, "after the same generation again", child.consume(old, first), ok)

	next := anchor.register(at.socket, 5)
	if next.id != old.id {
		t.Error("the session has another id")
	}
	want(t, "an old child", child.authenticate(old), "GENERATION_STALE")
	want(t, "an old token", child.consume(old, second), "GENERATION_STALE")
	want(t, "an old token in the new generation", child.consume(next, second), "TOKEN_REPLAY")
	want(t, "a generation to come", child.authenticate(session{at.socket, next.id, 6}), "GENERATION_UNKNOWN")
	want(t, "the old generation again", anchor.tell(order{Do: "register", Path: at.socket, Generation: 4}).Code, "GENERATION_STALE")
	want(t, "a new token", child.consume(next, child.mint(next)), ok)
	want(t, "another session's token", other.consume(foreign, kept), ok)
}

func TestADescendantCannotRaiseTheGenerationOfItsAnchor(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	if own := anchor.spawn().register(at.socket, 7); own.id == s.id {
		t.Error("a child has its anchor's session")
	}
	want(t, "the anchor", anchor.authenticate(s), ok)
}

// K36: what dead anchors hold makes room.
func TestTokensAreRefusedAtTheBoundAndTheDeadMakeRoom(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve(func(c *broker.Config) { c.MaxTokens = 3 })
	anchor, other := c.actor(), c.actor()
	s, o := anchor.register(at.socket, 0), other.register(at.socket, 0)
	token := anchor.mint(s)
	other.mint(o)
	other.mint(o)
	before := at.stateFile()
	code, _ := anchor.tryMint(s)
	want(t, "one more", code, "TOKEN_CAPACITY")
	if at.stateFile() != before {
		t.Error("the state has changed")
	}
	want(t, "a consumption", anchor.consume(s, token), ok)
	anchor.mint(s)
	other.end()
	anchor.mint(s)
	anchor.mint(s)
	code, _ = anchor.tryMint(s)
	want(t, "one more, of the living", code, "TOKEN_CAPACITY")
}

func TestSessionsAreRefusedAtTheBoundAndTheDeadMakeRoom(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve(func(c *broker.Config) { c.MaxSessions = 2 })
	first, second, third := c.actor(), c.actor(), c.actor()
	s := first.register(at.socket, 0)
	second.register(at.socket, 0)
	want(t, "one more", third.tell(order{Do: "register", Path: at.socket}).Code, "SESSION_CAPACITY")
	want(t, "one that is there", first.authenticate(first.register(at.socket, 1)), ok)
	second.end()
	third.register(at.socket, 0)
	want(t, "the first", first.authenticate(session{at.socket, s.id, 1}), ok)
}

func TestAStateThatWouldBeTooLargeIsRefusedAndTheNextThatFitsIsNot(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve(func(c *broker.Config) { c.MaxState = 1000 })
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	token, code := "", ok
	for n := 0; code == ok && n < 10; n++ {
		var minted string
		if code, minted = anchor.tryMint(s); code == ok {
			token = minted
		}
	}
	want(t, "the mint that was too much", code, "STATE_TOO_LARGE")
	if n := len(at.stateFile()); n > 1000 {
		t.Errorf("the file has %d bytes", n)
	}
	want(t, "a consumption", anchor.consume(s, token), ok)
	anchor.mint(s)
}

func TestIdsAreLongAndOfTheirOwn(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	seen := map[string]bool{}
	anchor, other := c.actor(), c.actor()
	s, o := anchor.register(at.socket, 0), other.register(at.socket, 0)
	ids := []string{s.id, o.id}
	for range 20 {
		ids = append(ids, anchor.mint(s))
	}
	const last = "AEIMQUYcgkosw048" // of 256 bits only four are in it
	for _, id := range ids {
		if len(id) != 43 || seen[id] || !strings.Contains(last, id[42:]) {
			t.Errorf("an id is %s", id)
		}
		seen[id] = true
	}
}
