//go:build linux

package peercred_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/spendonce/spendonce/internal/proctest"
	"github.com/spendonce/spendonce/peercred"
)

// K09 and K11: descent alone decides, and who has an anchor of its own is still
// a descendant of the outer one.
func TestTheAnchorItsChildAndItsGrandchildDescend(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor := f.child(nil)
	child := anchor.spawn()
	grandchild := child.spawn()
	c := anchor.callsWell(l)
	a := anchored(t, pr, c)
	for hops, m := range []*member{anchor, child, grandchild} {
		chain, err := pr.Descends(m.callsWell(l), a)
		if err != nil {
			t.Errorf("%d hops: %v", hops, err)
		}
		if len(chain) != hops+1 || chain[0].PID != m.pid || chain[hops].Process != a.Process() {
			t.Errorf("%d hops: the chain is %v", hops, chain)
		}
	}
	inner := anchored(t, pr, child.callsWell(l))
	if _, err := pr.Descends(grandchild.callsWell(l), inner); err != nil {
		t.Errorf("of an anchor inside: %v", err)
	}
	if _, err := pr.Descends(anchor.callsWell(l), inner); err == nil {
		t.Error("the outer anchor descends from the inner one")
	}
}

// K08.
func TestAStrangerIsNotADescendant(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	a := anchored(t, pr, f.child(nil).callsWell(l))
	stranger := f.child(nil)
	chain, err := pr.Descends(stranger.callsWell(l), a)
	wantError(t, err, peercred.ErrNotDescendant)
	if len(chain) == 0 || chain[0].PID != stranger.pid {
		t.Errorf("the chain is %v", chain)
	}
}

func TestAChildWhoseParentDiedDescendsNoMore(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor := f.child(nil)
	middle := anchor.spawn()
	orphan := middle.spawn()
	a := anchored(t, pr, anchor.callsWell(l))
	if _, err := pr.Descends(orphan.callsWell(l), a); err != nil {
		t.Fatal(err)
	}
	middle.exit()
	anchor.tell("reap %d", middle.pid)
	_, err := pr.Descends(orphan.callsWell(l), a)
	wantError(t, err, peercred.ErrNotDescendant)
}

func TestAnAnchorThatAdoptsOrphansKeepsThem(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor := f.child(nil)
	anchor.tell("adopt")
	middle := anchor.spawn()
	orphan := middle.spawn()
	a := anchored(t, pr, anchor.callsWell(l))
	middle.exit()
	anchor.tell("reap %d", middle.pid)
	if _, err := pr.Descends(orphan.callsWell(l), a); err != nil {
		t.Error(err)
	}
}

// More than are kept open for the second pass.
func TestADeepDescentLeavesNoDescriptorsOpen(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor := f.child(nil)
	a := anchored(t, pr, anchor.callsWell(l))
	deepest := anchor
	for range peercred.KeptEntries + 4 {
		deepest = deepest.spawn()
	}
	c := deepest.callsWell(l)
	before := openDescriptors(t)
	chain, err := pr.Descends(c, a)
	if err != nil || len(chain) != peercred.KeptEntries+5 {
		t.Errorf("%d links: %v", len(chain), err)
	}
	c.Close()
	if after := openDescriptors(t); after != before-2 { // the socket and the pidfd
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestExplainTellsOfAnyProcess(t *testing.T) {
	pr, f := newProver(t), newFamily(t)
	m := f.child(nil)
	chain, err := pr.Explain(m.pid, peercred.Process{})
	wantError(t, err, peercred.ErrNotDescendant)
	if len(chain) < 2 || chain[0].PID != m.pid || chain[1].PID != os.Getpid() || chain[0].PPID != os.Getpid() || chain[1].Comm == "" {
		t.Fatalf("%v", chain)
	}
	if again, err := pr.Explain(m.pid, chain[1].Process); err != nil || len(again) != 2 {
		t.Errorf("%v, %v", again, err)
	}
	m.exit()
	proctest.Reap(t, m.pid)
	_, err = pr.Explain(m.pid, chain[1].Process)
	wantError(t, err, peercred.ErrUnreadable)
	wantError(t, err, peercred.ErrNoProcess)
	if at := hop(t, err); at != m.pid {
		t.Errorf("%v blames process %d", err, at)
	}
}

// K06: in a walk, all others' names count too.
func TestACommandNameLeadsNoWalkAstray(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor, stranger := f.child(nil), f.child(nil)
	a := anchored(t, pr, anchor.callsWell(l))
	child := anchor.spawn()
	for _, name := range []string{"a b", ") S 1 1 1 0", "x)\nS 1 (", "))))", "(", "\xff"} {
		child.tell("rename %q", name)
		if chain, err := pr.Descends(child.callsWell(l), a); err != nil || chain[0].PPID != anchor.pid {
			t.Errorf("%q: %v, %v", name, chain, err)
		}
	}
	stranger.tell("rename %q", fmt.Sprintf(") S %d (", anchor.pid))
	if chain, err := pr.Descends(stranger.callsWell(l), a); !errors.Is(err, peercred.ErrNotDescendant) {
		t.Errorf("%v, %v", chain, err)
	}
}
