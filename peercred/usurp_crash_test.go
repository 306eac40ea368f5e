//go:build crash && linux

package peercred_test

import (
	"testing"

	"github.com/spendonce/spendonce/peercred"
)

// usurped is a walk from an orphan whose parent died after the orphan was read
// and before the parent was, and whose parent's pid went to a child of the
// anchor in between.
type usurped struct {
	orphan, parent, anchor int

	chain peercred.Chain
	err   error
}

func usurp(t *testing.T, l *peercred.Listener, wait func(orphan peercred.Process)) usurped {
	t.Helper()
	pr, f := newProver(t), newFamily(t)
	anchor, parent := f.child(nil), f.child(nil)
	a := anchored(t, pr, anchor.callsWell(l))
	u := usurped{anchor: anchor.pid, parent: parent.pid}
	u.orphan = number(t, parent.tell("clone-caller 0 %s", l.Addr()))
	c := accept(t, l)
	orphan, err := pr.Identify(c)
	if err != nil {
		t.Fatal(err)
	}
	pr.SetPause(func(pass, hop int) {
		if pass != 1 || hop != 0 {
			return
		}
		endOf(t, parent.pid)
		wait(orphan)
		anchor.tell("clone-idle %d", parent.pid)
		t.Cleanup(func() { anchor.tell("kill %d", parent.pid) })
	})
	u.chain, u.err = pr.Descends(c, a)
	if len(u.chain) < 2 || u.chain[1].PID != parent.pid || u.chain[1].PPID != anchor.pid {
		t.Fatalf("the walk did not meet the usurper: %v, %v", u.chain, u.err)
	}
	return u
}

// K14.
func TestAMidChainPidRecycledUnderTheAnchorIsNoWayToIt(t *testing.T) {
	needRoot(t)
	l, pr := listen(t), newProver(t)
	u := usurp(t, l, func(orphan peercred.Process) { tick(t, pr, orphan) })
	wantError(t, u.err, peercred.ErrAncestryChanged)
	if at := hop(t, u.err); at != u.parent {
		t.Errorf("%v, want process %d blamed", u.err, u.parent)
	}
}

// Within a clock tick the usurper did not start after its child. All start
// times of both passes are the same then: only the orphan's parent is not.
func TestAMidChainPidRecycledWithinAClockTickIsNoWayToTheAnchor(t *testing.T) {
	needRoot(t)
	l, pr := listen(t), newProver(t)
	const tries = 500
	for range tries {
		u := usurp(t, l, func(peercred.Process) {})
		if u.chain[1].StartTime > u.chain[0].StartTime {
			continue
		}
		if len(u.chain) != 3 || u.chain[2].PID != u.anchor {
			t.Errorf("the walk did not reach the anchor: %v", u.chain)
		}
		wantError(t, u.err, peercred.ErrAncestryChanged)
		if at := hop(t, u.err); at != u.orphan {
			t.Errorf("%v, want process %d blamed", u.err, u.orphan)
		}
		for _, link := range u.chain {
			if now, _ := pr.Explain(link.PID, peercred.Process{}); len(now) == 0 || now[0].Process != link.Process {
				t.Errorf("not even the start time is the same: %v, now %v", link, now)
			}
		}
		return
	}
	t.Fatalf("no usurper within a clock tick in %d tries", tries)
}

// A kept entry is of its process for good, so that in the second pass nobody
// can answer in its place: not even with the same pid, parent and tick.
func TestAParentsSuccessorDoesNotAnswerForIt(t *testing.T) {
	needRoot(t)
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor := f.child(nil)
	a := anchored(t, pr, anchor.callsWell(l))
	const tries = 500
	for range tries {
		middle := number(t, anchor.tell("clone-pair 0 %s", l.Addr()))
		c := accept(t, l)
		pr.SetPause(func(pass, hop int) {
			if pass == 2 && hop == 1 {
				anchor.tell("kill %d", middle)
				anchor.tell("clone-idle %d", middle)
			}
		})
		chain, err := pr.Descends(c, a)
		pr.SetPause(nil)
		now, _ := pr.Explain(middle, a.Process())
		anchor.tell("kill %d", middle)
		wantError(t, err, peercred.ErrAncestryChanged)
		if at := hop(t, err); at != middle {
			t.Errorf("%v, want process %d blamed", err, middle)
		}
		if len(now) > 1 && now[0].Process == chain[1].Process && now[1].Process == a.Process() {
			return
		}
	}
	t.Fatalf("no successor within a clock tick in %d tries", tries)
}
