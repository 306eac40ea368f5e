//go:build linux

package conformance

import "fmt"

// anchor is an actor that has registered.
type anchor struct {
	*actor
	session
}

// tree is an anchor of generation 1 with a child and a grandchild.
type tree struct {
	anchor     *anchor
	child      *actor
	grandchild *actor
}

// child starts an actor below parent that ends with the check.
func (t *trial) child(parent process) *actor {
	a, err := t.start(parent, order{})
	t.must(err)
	t.local = append([]*actor{a}, t.local...)
	return a
}

// process starts an actor beside all anchors.
func (t *trial) process() *actor { return t.child(t.self) }

// anchor starts an actor and registers it.
func (t *trial) anchor(gen uint64) *anchor { return t.anchorBelow(t.self, gen) }

func (t *trial) anchorBelow(parent process, gen uint64) *anchor {
	return t.registered(t.child(parent), gen)
}

// registered registers an actor; the check ends if it cannot.
func (t *trial) registered(a *actor, gen uint64) *anchor {
	ans := t.ask(a, register(gen))
	t.granted(ans, "session_id")
	same(t, string(ans.generation), fmt.Sprint(gen), "generation in the answer")
	return &anchor{a, session{ans.sessionID, gen}}
}

// raise registers the anchor's next generation.
func (t *trial) raise(a *anchor) {
	a.session = t.registered(a.actor, a.generation+1).session
}

// family returns the tree that checks share.
func (t *trial) family() *tree {
	if t.tree == nil {
		a := t.anchor(1)
		d := t.child(a)
		g := t.child(d)
		t.tree = &tree{a, d, g}
		t.local = t.local[3:] // they outlive the check
	}
	return t.tree
}

// mint gets a token; the check ends if it cannot.
func (t *trial) mint(p process, s session) string {
	a := t.ask(p, s.mint())
	t.granted(a, "token")
	return a.token
}

// spend consumes a token; the check ends if that is not granted.
func (t *trial) spend(p process, s session, tok string) answer {
	a := t.ask(p, s.consume(tok))
	t.granted(a, "binding")
	return a
}

// proven authenticates; the check ends if that is not granted.
func (t *trial) proven(p process, s session) {
	a := t.ask(p, s.authenticate())
	t.granted(a, "session_id")
	same(t, a.sessionID, s.id, "session id in the answer")
	same(t, string(a.generation), fmt.Sprint(s.generation), "generation in the answer")
}

// canonical ends the check unless id is spelt as session ids and tokens are.
func (t *trial) canonical(id string) {
	t.got, t.want = "43 characters", "43 characters of base64url for 256 bits"
	if wrong := misspelling(id); wrong != "" {
		t.broken(wrong, t.want)
	}
}
