//go:build linux

package peercred_test

import (
	"testing"

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
