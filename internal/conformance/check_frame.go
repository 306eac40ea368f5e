//go:build linux

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// limit is the size of the largest request, newline included.
const limit = 65536

func frameChecks() []check {
	return []check{
		{rule: "frame.one", name: "an object, a newline and end of file are a request", run: func(t *trial) {
			f := t.family()
			t.proven(f.anchor, f.anchor.session)
		}},
		{rule: "frame.one", name: "a request may come in many pieces", run: func(t *trial) {
			f := t.family()
			text := f.anchor.authenticate()
			chunks := pieces(text[:1], text[1:20], text[20:60], text[60:len(text)-1], text[len(text)-1:])
			for i := range chunks[1:] {
				chunks[i+1].Pause = 50 // else they arrive as one
			}
			a := t.insist(func() answer {
				return t.talk(f.child, order{
					Conn: "pieces", Socket: t.socket, Chunks: chunks, Shut: true, Read: patience, Close: true,
				})
			})
			t.granted(a, "session_id")
		}},
		{rule: "frame.one", name: "spaces and tabs between the members change nothing", run: func(t *trial) {
			f := t.family()
			text := strings.NewReplacer(",", " ,\t", ":", "\t: ", "{", "{ ", "}", "\t}").Replace(f.anchor.authenticate())
			t.granted(t.ask(f.child, text), "session_id")
		}},
		{rule: "frame.limit", name: "a request of exactly 65,536 bytes is carried out", run: func(t *trial) {
			f := t.family()
			t.granted(t.ask(f.child, padded(f.anchor.authenticate(), limit)), "session_id")
		}},
		{rule: "frame.limit", name: "a request of exactly 65,536 bytes is judged by its content", run: func(t *trial) {
			f := t.family()
			long := func(n int) string {
				b := plain()
				b[3] = `"h_payload":"` + strings.Repeat("a", n) + `"`
				return f.anchor.mintFor(b...)
			}
			t.refused(t.ask(f.child, long(limit-len(long(0)))), "REQUEST_INVALID")
		}},
		{rule: "frame.limit", name: "a request of 65,537 bytes is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.ask(f.child, padded(f.anchor.authenticate(), limit+1)), "FRAME_TOO_LARGE")
		}},
		{rule: "frame.limit", name: "a mebibyte without a newline is refused, though its end is never seen", run: func(t *trial) {
			t.refused(t.ajar(t.family().child, strings.Repeat(" ", 1<<20)), "FRAME_TOO_LARGE")
		}},
		{rule: "frame.terminated", name: "65,536 bytes without a newline and then end of file are unterminated", run: func(t *trial) {
			t.refused(t.ask(t.family().child, "{"+strings.Repeat(" ", limit-1)), "FRAME_UNTERMINATED")
		}},
		{rule: "frame.terminated", name: "end of file without a byte before it is refused", run: func(t *trial) {
			t.refused(t.ask(t.family().child, ""), "FRAME_UNTERMINATED")
		}},
		{rule: "frame.terminated", name: "a request without its newline is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.ask(f.child, strings.TrimSuffix(f.anchor.authenticate(), "\n")), "FRAME_UNTERMINATED")
		}},
		{rule: "frame.terminated", name: "half a request is refused", run: func(t *trial) {
			f := t.family()
			whole := f.anchor.authenticate()
			t.refused(t.ask(f.child, whole[:len(whole)/2]), "FRAME_UNTERMINATED")
		}},
		{rule: "frame.single", name: "two requests in one write are refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.ask(f.child, strings.Repeat(f.anchor.authenticate(), 2)), "FRAME_MULTIPLE")
		}},
		{rule: "frame.single", name: "a second request in a write of its own is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.later(f.child, f.anchor.authenticate(), f.anchor.authenticate(), 1), "FRAME_MULTIPLE")
		}},
		{rule: "frame.single", name: "a second request 100 ms later is refused", run: func(t *trial) {
			f := t.family()
			t.refused(t.later(f.child, f.anchor.authenticate(), f.anchor.authenticate(), 100), "FRAME_MULTIPLE")
		}},
		{rule: "frame.single", slow: true, name: "a second request 900 ms later is refused", run: func(t *trial) {
			f := t.family()
			// On a busy machine, or with a shorter deadline, it comes too late.
			a := t.later(f.child, f.anchor.authenticate(), f.anchor.authenticate(), 900)
			t.refused(a, "FRAME_MULTIPLE", "DEADLINE_EXCEEDED")
		}},
		{rule: "frame.single", name: "a single byte behind the newline is refused, whatever it is", run: func(t *trial) {
			f := t.family()
			var all []variant
			for _, b := range []string{"\n", " ", "\r", "\x00", "{"} {
				all = append(all, variant{fmt.Sprintf("%q", b), f.anchor.authenticate() + b})
			}
			t.each(f.child, all, "FRAME_MULTIPLE")
		}},
		{rule: "frame.single", name: "one byte behind 65,536 bytes that end with a newline is a second request", run: func(t *trial) {
			f := t.family()
			t.refused(t.ask(f.child, padded(f.anchor.authenticate(), limit)+" "), "FRAME_MULTIPLE")
		}},
		{rule: "frame.single", name: "a newline inside the object ends the request", run: func(t *trial) {
			f := t.family()
			t.refused(t.ask(f.child, strings.Replace(f.anchor.authenticate(), ",", ",\n", 1)), "FRAME_MULTIPLE")
		}},
		{rule: "frame.single", name: "the first of two requests is not carried out", run: func(t *trial) {
			a := t.anchor(1)
			t.refused(t.ask(a, register(2)+register(2)), "FRAME_MULTIPLE")
			t.proven(a, a.session)
		}},
	}
}

// padded is a request made n bytes long by spaces between two members.
func padded(request string, n int) string {
	return strings.Replace(request, ",", ","+strings.Repeat(" ", n-len(request)), 1)
}

// ajar sends text and waits for an answer without ever half-closing.
func (t *trial) ajar(p process, text string) answer {
	return t.talk(p, order{Conn: "ajar", Socket: t.socket, Chunks: pieces(text), Read: patience, Close: true})
}

// later sends a second text some ms after the first, and then half-closes.
func (t *trial) later(p process, first, second string, pause int) answer {
	return t.insist(func() answer {
		return t.talk(p, order{
			Conn: "later", Socket: t.socket, Chunks: []chunk{{Data: []byte(first)}, {Data: []byte(second), Pause: pause}},
			Shut: true, Read: patience, Close: true,
		})
	})
}

// variant is one of several ways to break one rule.
type variant struct{ what, frame string }

// each ends the check unless every variant is refused with one of the codes.
func (t *trial) each(p process, variants []variant, codes ...string) {
	for _, v := range variants {
		a := t.ask(p, v.frame)
		if a.problem != "" || a.ok || !slices.Contains(codes, a.code) {
			t.broken(v.what+": "+a.String(), strings.Join(codes, " or "))
		}
		t.got = fmt.Sprintf("%s, %d times", a.code, len(variants))
	}
	t.want = strings.Join(codes, " or ")
}
