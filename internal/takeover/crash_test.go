package takeover_test

import (
	"errors"
	"os"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/takeover"
)

func TestAFaultAtAnyStepOfAMoveLeavesOneHolderAndTheNextCallCompletesIt(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var g *ground
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		g = newGround(t, server)
		return g.in(disk)
	}, func(_ *durabletest.Fault, err error) {
		h := g.oneHolder(t)
		if err == nil {
			g.moved(t)
		}
		if h.store == nil || h.between != nil || h.other != nil {
			must(t, g.in(durable.Disk{}))
		}
		g.moved(t)
		g.refresh(t)
		g.moved(t)
	})
	t.Logf("%d steps", steps)
}

func TestAFaultAtAnyStepOfGivingBackLeavesOneHolderAndTheNextCallCompletesIt(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var g *ground
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		g = newGround(t, server)
		must(t, g.in(durable.Disk{}))
		g.refresh(t)
		return g.out(disk)
	}, func(_ *durabletest.Fault, err error) {
		h := g.oneHolder(t)
		if err == nil {
			g.back(t)
		}
		// The store may go on between the calls: what was written for
		// mcp-remote is then out of date, and must not be given to it.
		if h.store != nil {
			g.refresh(t)
			g.oneHolder(t)
		}
		if err := g.out(durable.Disk{}); err != nil && !(h.other != nil && errors.Is(err, takeover.ErrNothing)) {
			t.Errorf("giving back again: %v", err)
		}
		g.back(t)
	})
	t.Logf("%d steps", steps)
}

// A move in that was cut short can also be taken back, and the other way
// round.
func TestAFaultAtAnyStepCanBeAnsweredInTheOtherDirection(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var g *ground
	durabletest.Sweep(t, func(disk durable.Disk) error {
		g = newGround(t, server)
		return g.in(disk)
	}, func(*durabletest.Fault, error) {
		if err := g.out(durable.Disk{}); err != nil && !errors.Is(err, takeover.ErrNothing) {
			t.Errorf("giving back: %v", err)
		}
		g.back(t)
	})
	durabletest.Sweep(t, func(disk durable.Disk) error {
		g = newGround(t, server)
		must(t, g.in(durable.Disk{}))
		return g.out(disk)
	}, func(*durabletest.Fault, error) {
		h := g.look(t)
		if h.store != nil && h.between == nil {
			return
		}
		if h.store != nil {
			g.refresh(t) // what waits to be moved is out of date now
		}
		must(t, g.in(durable.Disk{}))
		g.moved(t)
	})
}

func TestAKillAtAnyStepLeavesOneHolderAndTheNextCallCompletesIt(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, out := range []bool{false, true} {
		kills, every := 0, 1
		if os.Getenv("SPENDONCE_SOAK") != "1" {
			every = 4
		}
		for at := 1; ; at += every {
			g := newGround(t, server)
			if out {
				must(t, g.in(durable.Disk{}))
				g.refresh(t)
			}
			if !run(t, job{Ground: *g, Out: out, KillAt: at}) {
				break
			}
			kills++
			h := g.oneHolder(t)
			if out {
				if h.store != nil {
					g.refresh(t)
				}
				if err := g.out(durable.Disk{}); err != nil && !(h.other != nil && errors.Is(err, takeover.ErrNothing)) {
					t.Errorf("killed before step %d, giving back again: %v", at, err)
				}
				g.back(t)
			} else {
				if h.store == nil || h.between != nil {
					must(t, g.in(durable.Disk{}))
				}
				g.moved(t)
			}
			if t.Failed() {
				t.Fatalf("killed before step %d, out %t", at, out)
			}
		}
		t.Logf("out %t: %d kills", out, kills)
		if kills < 15 {
			t.Errorf("only %d kills", kills)
		}
	}
}
