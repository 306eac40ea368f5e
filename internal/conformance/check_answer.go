//go:build linux

package conformance

import (
	"fmt"
	"strings"
)

func limitChecks() []check {
	const crowd = 300 // over what one process may have open by default
	return []check{
		{rule: "limits.busy", slow: true, name: "300 silent connections of one process are refused each, and others are answered", run: func(t *trial) {
			f, crowded := t.family(), t.process()
			o := order{Do: doVolley, Socket: t.socket, Frames: make([][]byte, crowd), Read: patience}
			r := meanwhile(crowded, o, func() { t.soon(f) })
			if r.Failed != "" {
				t.must(fmt.Errorf("volley: %s", r.Failed))
			}
			counts := map[string]int{}
			for _, h := range r.Heard {
				if strings.Contains(h.End, "open files") {
					t.skip("a process may not open 300 files here")
				}
				a := t.note(h)
				counts[a.String()]++
				t.refused(a, "BUSY", "DEADLINE_EXCEEDED")
			}
			t.got = fmt.Sprintf("%d BUSY, %d DEADLINE_EXCEEDED", counts["BUSY"], counts["DEADLINE_EXCEEDED"])
		}},
		{rule: "limits.busy", slow: true, name: "a process that was busy is served again afterwards", run: func(t *trial) {
			a := t.anchor(0)
			t.order(a, order{Do: doVolley, Socket: t.socket, Frames: make([][]byte, crowd), Read: patience})
			t.proven(a, a.session)
		}},
	}
}

func answerChecks() []check {
	// Each judges every answer of the run.
	every := func(rule, name string, of func(answer) bool, fault func(answer) string) check {
		return check{rule: rule, name: name, run: func(t *trial) {
			judged, wrong := 0, 0
			first := ""
			for _, a := range t.answers {
				if len(a.Raw) == 0 || !of(a) {
					continue
				}
				judged++
				if f := fault(a); f != "" {
					if wrong++; wrong == 1 {
						first = fmt.Sprintf("%s: %s", f, redact(short(fmt.Sprintf("%q", a.Raw), 200)))
					}
				}
			}
			t.want = fmt.Sprintf("%d of %d answers", judged, judged)
			t.got = t.want
			if wrong > 0 {
				t.broken(fmt.Sprintf("%d of %d not, the first %s", wrong, judged, first), t.want)
			}
		}}
	}
	all := func(answer) bool { return true }
	refusals := func(a answer) bool { return !a.ok }
	grants := func(a answer) bool { return a.ok }
	return []check{
		every("answer.shape", "every answer is one object on one line", all, answer.line),
		every("answer.shape", "every refusal has ok and code and nothing else", refusals, answer.members),
		every("answer.shape", "every refusal has a code of the protocol", refusals, answer.known),
		every("answer.shape", "every success has the members of its request and nothing else", grants, answer.members),
		every("answer.end", "every answer ends with one newline", all, answer.newline),
		every("answer.end", "after every answer comes end of file", all, answer.ending),
		{rule: "frame.deadline", name: "no answer took longer than 5 s", run: func(t *trial) {
			var slowest int64
			for _, a := range t.answers {
				slowest = max(slowest, a.Took)
			}
			t.got, t.want = fmt.Sprintf("at most %d ms", slowest), "at most 5000 ms"
			if slowest >= patience {
				t.broken(t.got, t.want)
			}
		}},
	}
}
