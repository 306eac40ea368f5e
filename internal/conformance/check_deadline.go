//go:build linux

package conformance

import (
	"fmt"
	"strings"
	"time"
)

func deadlineChecks() []check {
	return []check{
		{rule: "frame.half-close", slow: true, name: "a client that never half-closes gets no ok", run: func(t *trial) {
			f := t.family()
			t.inTime(t.ajar(f.child, f.anchor.authenticate()), "DEADLINE_EXCEEDED")
		}},
		{rule: "frame.half-close", slow: true, name: "a registration that is not half-closed changes nothing", run: func(t *trial) {
			a := t.anchor(1)
			t.inTime(t.ajar(a, register(2)), "DEADLINE_EXCEEDED")
			t.proven(a, a.session)
		}},
		{rule: "frame.half-close", slow: true, name: "a consumption that is not half-closed leaves the token pending", run: func(t *trial) {
			a := t.anchor(0)
			tok := t.mint(a, a.session)
			t.inTime(t.ajar(a, a.consume(tok)), "DEADLINE_EXCEEDED")
			t.spend(a, a.session, tok)
		}},
		{rule: "frame.deadline", slow: true, name: "a connection on which nothing comes is ended", run: func(t *trial) {
			t.inTime(t.ajar(t.family().child, ""), "DEADLINE_EXCEEDED")
		}},
		{rule: "frame.deadline", slow: true, name: "half a request and then nothing is ended", run: func(t *trial) {
			t.inTime(t.ajar(t.family().child, `{"action":`), "DEADLINE_EXCEEDED")
		}},
		{rule: "frame.deadline", slow: true, name: "a byte every 200 ms does not move the deadline", run: func(t *trial) {
			f := t.family()
			t.inTime(t.drip(f.child, f.anchor.authenticate()), "DEADLINE_EXCEEDED")
		}},
		{rule: "frame.isolation", name: "while 100 connections are silent others are answered", run: func(t *trial) {
			f, idle := t.family(), t.process()
			hold(t, idle, 100, order{})
			t.soon(f)
		}},
		{rule: "frame.isolation", name: "while 100 clients hold back their half-close others are answered", run: func(t *trial) {
			f, idle := t.family(), t.process()
			hold(t, idle, 100, order{Chunks: pieces(f.anchor.authenticate())})
			t.soon(f)
		}},
		{rule: "frame.isolation", name: "while 100 clients do not read their answers others are answered", run: func(t *trial) {
			f, idle := t.family(), t.child(t.family().anchor)
			hold(t, idle, 100, order{Chunks: pieces(f.anchor.authenticate()), Shut: true})
			t.soon(f)
		}},
		{rule: "frame.isolation", slow: true, name: "while a client drips others are answered", run: func(t *trial) {
			f, slow := t.family(), t.process()
			meanwhile(slow, t.dripping(f.anchor.authenticate()), func() {
				for range 6 {
					t.soon(f)
					<-time.After(150 * time.Millisecond)
				}
			})
		}},
	}
}

// dripping sends a byte every 200 ms, for 8 s at most.
func (t *trial) dripping(text string) order {
	var chunks []chunk
	for _, b := range []byte(text[:min(len(text), 40)]) {
		chunks = append(chunks, chunk{Data: []byte{b}, Pause: 200})
	}
	return order{Do: doTalk, Conn: "drip", Socket: t.socket, Chunks: chunks, Shut: true, Read: patience, Close: true}
}

func (t *trial) drip(p process, text string) answer { return t.talk(p, t.dripping(text)) }

// inTime ends the check unless a is a refusal with the code that came before
// the kit's patience ended.
func (t *trial) inTime(a answer, code string) {
	t.refused(a, code)
	if a.Took > patience {
		t.broken(fmt.Sprintf("%s after %d ms", a.code, a.Took), "an answer within 5 s")
	}
}

// hold opens n connections, does on each what o says, and leaves them open.
func hold(t *trial, p process, n int, o order) {
	o.Socket = t.socket
	for i := range n {
		o.Conn = fmt.Sprintf("held-%d", i)
		if a := t.talk(p, o); a.End != endUnread {
			t.broken(a.End, "a connection")
		}
	}
}

// soon ends the check unless the tree is served: not after the others'
// deadlines, which it would be if the broker took one after the other.
func (t *trial) soon(f *tree) {
	const some = 8
	for range some {
		t.proven(f.grandchild, f.anchor.session)
	}
	tok := t.mint(f.child, f.anchor.session)
	t.spend(f.anchor, f.anchor.session, tok)
	t.got = strings.Repeat("ok ", some) + "ok ok"
	t.want = t.got
}
