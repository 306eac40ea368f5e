//go:build linux

package conformance

import "strings"

func orderChecks() []check {
	// Each name says which of two faults gives the code.
	first := func(name, code string, run func(*trial, *tree) answer) check {
		return check{rule: "order.checks", name: name, run: func(t *trial) { t.refused(run(t, t.family()), code) }}
	}
	malformed := func(text string) string { return strings.Replace(text, "}\n", ",}\n", 1) }
	nobody := session{never(), 1}
	all := []check{
		first("too large comes before malformed", "FRAME_TOO_LARGE", func(t *trial, f *tree) answer {
			return t.ask(f.child, strings.Repeat("x", limit+1))
		}),
		first("multiple comes before malformed", "FRAME_MULTIPLE", func(t *trial, f *tree) answer {
			return t.ask(f.child, "x\nx\n")
		}),
		first("unterminated comes before malformed", "FRAME_UNTERMINATED", func(t *trial, f *tree) answer {
			return t.ask(f.child, "x")
		}),
		first("malformed comes before a forbidden session id", "FRAME_MALFORMED", func(t *trial, f *tree) answer {
			return t.ask(f.child, malformed(frame(action("register_anchor"), `"session_id":null`, generation(1))))
		}),
		first("malformed comes before an unknown action", "FRAME_MALFORMED", func(t *trial, f *tree) answer {
			return t.ask(f.child, malformed(frame(action("status"))))
		}),
		first("malformed at the end comes before invalid at the beginning", "FRAME_MALFORMED", func(t *trial, f *tree) answer {
			return t.ask(f.child, frame(`"action":null`, `"a":{}`, `"b":1`, `"b":1`))
		}),
		first("invalid comes before an unknown session", "REQUEST_INVALID", func(t *trial, f *tree) answer {
			return t.ask(f.child, frame(and(nobody.members("authenticate"), `"a":1`)...))
		}),
		first("invalid comes before descent", "REQUEST_INVALID", func(t *trial, f *tree) answer {
			return t.ask(t.self, frame(and(f.anchor.members("authenticate"), `"a":1`)...))
		}),
		first("an invalid binding comes before a stale generation", "REQUEST_INVALID", func(t *trial, f *tree) answer {
			return t.ask(f.child, f.anchor.at(0).mintFor(without(plain(), 0)...))
		}),
		first("a malformed frame comes before its writer", "FRAME_MALFORMED", func(t *trial, f *tree) answer {
			return t.passed(f.anchor, f.child, "", malformed(f.anchor.authenticate()))
		}),
		first("an invalid request comes before its writer", "REQUEST_INVALID", func(t *trial, f *tree) answer {
			return t.passed(f.anchor, f.child, "", frame(f.anchor.members("authenticate")[:2]...))
		}),
		first("the writer comes before an unknown session", "PEER_REFUSED", func(t *trial, f *tree) answer {
			return t.passed(f.anchor, f.child, "", nobody.authenticate())
		}),
		first("the writer comes before descent", "PEER_REFUSED", func(t *trial, f *tree) answer {
			return t.passed(t.self, t.process(), "", f.anchor.authenticate())
		}),
		first("an unknown session comes before descent", "SESSION_UNKNOWN", func(t *trial, _ *tree) answer {
			return t.ask(t.self, nobody.authenticate())
		}),
		first("an unknown session comes before the token's spelling", "SESSION_UNKNOWN", func(t *trial, f *tree) answer {
			return t.ask(f.child, nobody.consume("x"))
		}),
		first("descent comes before a stale generation", "NOT_DESCENDANT", func(t *trial, f *tree) answer {
			return t.ask(t.self, f.anchor.at(0).authenticate())
		}),
		first("descent comes before an unknown generation", "NOT_DESCENDANT", func(t *trial, f *tree) answer {
			return t.ask(t.self, f.anchor.at(1<<40).authenticate())
		}),
		first("descent comes before the token's spelling", "NOT_DESCENDANT", func(t *trial, f *tree) answer {
			return t.ask(t.self, f.anchor.consume("x"))
		}),
		first("a stale generation comes before the token's spelling", "GENERATION_STALE", func(t *trial, f *tree) answer {
			return t.ask(f.child, f.anchor.at(0).consume("x"))
		}),
		first("an unknown generation comes before a replay", "GENERATION_UNKNOWN", func(t *trial, f *tree) answer {
			return t.ask(f.child, f.anchor.at(1<<40).consume(never()))
		}),
	}
	return append(all, check{
		rule: "order.checks", slow: true, name: "the deadline comes before malformed: content is judged at end of file", run: func(t *trial) {
			t.inTime(t.ajar(t.family().child, "x\n"), "DEADLINE_EXCEEDED")
		},
	})
}
