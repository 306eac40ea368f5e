//go:build linux

package conformance

import (
	"fmt"
	"strings"
)

func peerChecks() []check {
	const refused = "PEER_REFUSED"
	return []check{
		{rule: "peer.writer", name: "a process of the tree that writes on a connection it was passed is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.passed(f.anchor, f.child, "", f.anchor.authenticate()), refused)
		}},
		{rule: "peer.writer", name: "a child that writes on a connection it inherited is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.insist(func() answer {
				t.talk(f.child, order{Conn: "mine", Socket: t.socket})
				heir, err := t.start(f.child, order{Conn: "mine"})
				t.must(err)
				t.local = append(t.local, heir)
				t.order(heir, order{Do: doAdopt, Conn: "theirs"})
				a := t.finish(heir, "theirs", f.anchor.authenticate())
				t.talk(f.child, order{Conn: "mine", Close: true})
				return a
			}), refused)
		}},
		{rule: "peer.writer", name: "a stranger that writes on a descendant's connection is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.passed(f.child, t.self, "", f.anchor.authenticate()), refused)
		}},
		{rule: "peer.writer", name: "a descendant that writes on a stranger's connection is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.passed(t.self, f.child, "", f.anchor.authenticate()), refused)
		}},
		{rule: "peer.writer", name: "a process that registers on a connection it was passed is refused", run: func(t *trial) {
			a, b := t.process(), t.process()
			t.refused(t.passed(a, b, "", register(0)), refused)
		}},
		{rule: "peer.writer", name: "a request that two processes wrote is refused, whoever began", run: func(t *trial) {
			f := t.family()
			text := f.anchor.authenticate()
			t.refused(t.passed(f.child, f.grandchild, text[:20], text[20:]), refused)
			t.refused(t.passed(f.child, f.grandchild, text[:len(text)-1], text[len(text)-1:]), refused)
		}},
		{rule: "peer.writer", name: "a refused writer's request has no effect", run: func(t *trial) {
			a := t.anchor(0)
			d := t.child(a)
			tok := t.mint(a, a.session)
			t.refused(t.passed(d, t.self, "", a.consume(tok)), refused)
			t.spend(a, a.session, tok)
		}},
		{rule: "peer.control", name: "a request that brings a descriptor is refused, with whatever piece it comes", run: func(t *trial) {
			f := t.family()
			text := f.anchor.authenticate()
			for with := range 3 {
				chunks := pieces(text[:20], text[20:len(text)-1], text[len(text)-1:])
				chunks[with].Descriptor = true
				t.refused(t.insist(func() answer {
					return t.talk(f.child, order{
						Conn: "laden", Socket: t.socket, Chunks: chunks, Shut: true, Read: patience, Close: true,
					})
				}), refused)
			}
		}},
		{rule: "peer.user", name: "a process of another user is refused, whatever it asks", run: func(t *trial) {
			f := t.family()
			d := t.child(f.anchor)
			for _, text := range []string{register(0), f.anchor.authenticate(), f.anchor.mint(), "x\n"} {
				a := t.insist(func() answer {
					return t.talk(d, order{
						Conn: "disguised", Socket: t.socket, AsUser: 12345, Chunks: pieces(text), Shut: true, Read: patience, Close: true,
					})
				})
				if strings.HasPrefix(a.End, cannotDisguise) {
					t.skip("only root can ask as another user: " + a.End)
				}
				t.refused(a, refused)
			}
		}},
		{rule: "peer.alive", name: "a peer that exited before its request was complete is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.insist(func() answer { return t.orphaned(f, true) }), refused)
		}},
		{rule: "peer.alive", name: "a peer that exited and waits to be reaped is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.insist(func() answer { return t.orphaned(f, false) }), refused)
		}},
	}
}

// passed lets one process connect and write the first part of a request, and
// another one, which is handed the connection, the rest.
func (t *trial) passed(from, to process, first, rest string) answer {
	return t.insist(func() answer {
		o := order{Conn: "passed", Socket: t.socket}
		if first != "" {
			o.Chunks = pieces(first)
		}
		t.talk(from, o)
		t.hand(from, to)
		return t.finish(to, "passed", rest)
	})
}

// hand moves the connection "passed" to another process.
func (t *trial) hand(from, to process) {
	t.named++
	name := fmt.Sprintf("passed-%d", t.named)
	t.order(from, order{Do: doGive, Conn: "passed", Control: t.hub.name, Name: name})
	t.order(to, order{Do: doTake, Conn: "passed", Control: t.hub.name, Name: name})
}

// finish writes the rest of a request on a connection there is, and reads.
func (t *trial) finish(p process, conn, rest string) answer {
	o := order{Conn: conn, Shut: true, Read: patience, Close: true}
	if rest != "" {
		o.Chunks = pieces(rest)
	}
	return t.talk(p, o)
}

// orphaned is what the broker says to a whole request of a descendant that
// exits before end of file; another process keeps the connection open.
func (t *trial) orphaned(f *tree, reaped bool) answer {
	brief := t.child(f.anchor)
	t.talk(brief, order{Conn: "passed", Socket: t.socket, Chunks: pieces(f.anchor.authenticate())})
	t.hand(brief, f.child)
	if reaped {
		t.must(t.bury(brief))
	} else {
		t.unreaped(brief)
	}
	return t.finish(f.child, "passed", "")
}
