//go:build linux

package peercred_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spendonce/spendonce/internal/procfs"
	"github.com/spendonce/spendonce/peercred"
)

// creature is a process of a world.
type creature struct {
	pid     int
	start   uint64
	parent  *creature
	zombie  bool
	gone    bool // reaped: the pid is free
	adopts  bool // PR_SET_CHILD_SUBREAPER
	ordinal int
}

// world is a kernel as far as its processes go, with few pids, so that they
// come back soon.
type world struct {
	t      *rapid.T
	clock  uint64
	coarse bool // several processes may start within a tick
	byPID  map[int]*creature
	first  *creature
	born   int
}

const highestPID = 7

func newWorld(t *rapid.T, coarse bool) *world {
	w := &world{t: t, coarse: coarse, byPID: map[int]*creature{}}
	w.first = &creature{pid: 1}
	w.byPID[1] = w.first
	for range rapid.IntRange(2, 6).Draw(t, "processes") {
		w.fork()
	}
	return w
}

// all returns who is not reaped, the first process left out.
func (w *world) all(zombie bool) []*creature {
	var some []*creature
	for pid := 2; pid <= highestPID; pid++ {
		if c := w.byPID[pid]; c != nil && c.zombie == zombie {
			some = append(some, c)
		}
	}
	return some
}

func (w *world) pick(some []*creature, label string) *creature {
	return some[rapid.IntRange(0, len(some)-1).Draw(w.t, label)]
}

func (w *world) fork() {
	var free []int
	for pid := 2; pid <= highestPID; pid++ {
		if w.byPID[pid] == nil {
			free = append(free, pid)
		}
	}
	if len(free) == 0 {
		return
	}
	w.bear(rapid.SampledFrom(free).Draw(w.t, "pid"))
}

func (w *world) bear(pid int) {
	if !w.coarse {
		w.clock++
	}
	w.born++
	c := &creature{
		pid:     pid,
		start:   w.clock,
		parent:  w.pick(append(w.all(false), w.first), "parent"),
		ordinal: w.born,
	}
	w.byPID[c.pid] = c
}

func (w *world) exit(c *creature) {
	c.zombie = true
	heir := c.parent
	for heir != w.first && (heir.zombie || !heir.adopts) {
		heir = heir.parent
	}
	for _, child := range w.byPID {
		if child.parent == c {
			child.parent = heir
		}
	}
}

func (w *world) reap(c *creature) {
	c.gone = true
	delete(w.byPID, c.pid)
}

// step lets something happen.
func (w *world) step() {
	living, zombies := w.all(false), w.all(true)
	switch what := rapid.IntRange(0, 7).Draw(w.t, "step"); {
	case what == 0:
		w.clock++
	case what <= 2:
		w.fork()
	case what == 3 && len(living) > 0:
		w.exit(w.pick(living, "exits"))
	case what == 4 && len(zombies) > 0:
		w.reap(w.pick(zombies, "reaped"))
	case what >= 6 && len(living) > 0:
		// Rare otherwise, and what all this is about.
		c := w.pick(living, "recycled")
		w.exit(c)
		w.reap(c)
		w.bear(c.pid)
	case len(living) > 0:
		w.pick(living, "adopts").adopts = true
	}
}

// from reports whether c is of, or descends from it.
func (c *creature) from(of *creature) bool {
	for ; c != nil; c = c.parent {
		if c == of {
			return true
		}
	}
	return false
}

func (c *creature) stat() procfs.Stat {
	ppid := 0
	if c.parent != nil {
		ppid = c.parent.pid
	}
	return procfs.Stat{PID: c.pid, PPID: ppid, StartTime: c.start}
}

// observed is a world in which things happen while it is walked.
type observed struct {
	*world
	still, kept    bool
	caller, anchor *creature
	was, wasNot    bool // at some time: a descendant; none
	looked         []*creature
	again          int
}

func (o *observed) live() {
	if !o.still {
		for range rapid.IntRange(0, 3).Draw(o.t, "steps") {
			o.step()
			o.note()
		}
	}
	o.note()
}

func (o *observed) note() {
	if o.caller.from(o.anchor) {
		o.was = true
	} else {
		o.wasNot = true
	}
}

func (o *observed) Look(pid int, _ bool) (procfs.Stat, procfs.Entry, error) {
	o.live()
	c := o.byPID[pid]
	if c == nil {
		return procfs.Stat{}, procfs.Entry{}, procfs.ErrNoProcess
	}
	o.looked = append(o.looked, c)
	return c.stat(), procfs.Entry{}, nil
}

func (o *observed) Again(pid int, _ procfs.Entry) (procfs.Stat, error) {
	o.live()
	c := o.byPID[pid]
	if o.kept {
		c = o.looked[o.again]
		o.again++
	}
	if c == nil || c.gone {
		return procfs.Stat{}, procfs.ErrNoProcess
	}
	return c.stat(), nil
}

// rounds is how often a property is tried a hundred times.
func rounds() int {
	switch {
	case os.Getenv("SPENDONCE_SOAK") != "":
		return 20_000
	case testing.Short():
		return 20
	}
	return 100
}

// Whoever is let in was a descendant: with entries kept open, also when all
// processes start within one tick; with pids alone, if no two do.
func TestNoWalkLetsAStrangerInWhateverHappensMeanwhile(t *testing.T) {
	let, refused := 0, 0
	for range rounds() {
		rapid.Check(t, func(t *rapid.T) {
			kept := rapid.Bool().Draw(t, "kept")
			w := newWorld(t, kept)
			all := w.all(false)
			o := &observed{world: w, kept: kept, caller: w.pick(all, "caller"), anchor: w.pick(all, "anchor")}
			o.note()
			chain, err := peercred.Walk(o, o.caller.pid, peercred.Process{PID: o.anchor.pid, StartTime: o.anchor.start})
			o.live()
			if o.caller.zombie || o.anchor.zombie {
				return // the pidfds say so
			}
			switch {
			case err == nil && !o.was:
				t.Fatalf("let in, and never a descendant: %v", chain)
			case errors.Is(err, peercred.ErrNotDescendant) && !o.wasNot:
				t.Fatalf("refused for good, and always a descendant: %v, %v", chain, err)
			case err == nil:
				let++
			default:
				refused++
			}
		})
	}
	if let == 0 || refused == 0 {
		t.Errorf("%d let in, %d refused: nothing was tried", let, refused)
	}
}

func TestInAStillWorldAWalkIsTheTruth(t *testing.T) {
	for range rounds() {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t, rapid.Bool().Draw(t, "coarse"))
			for range rapid.IntRange(0, 8).Draw(t, "steps") {
				w.step()
			}
			all := w.all(false)
			if len(all) == 0 {
				return
			}
			o := &observed{world: w, still: true, caller: w.pick(all, "caller"), anchor: w.pick(append(all, w.first), "anchor")}
			chain, err := peercred.Walk(o, o.caller.pid, peercred.Process{PID: o.anchor.pid, StartTime: o.anchor.start})
			var want error
			if !o.caller.from(o.anchor) {
				want = peercred.ErrNotDescendant
			}
			if !errors.Is(err, want) {
				t.Fatalf("%v, want %v", err, want)
			}
			var parents []int
			for c := o.caller; len(parents) < len(chain); c = c.parent {
				parents = append(parents, c.pid)
			}
			if !slices.EqualFunc(chain, parents, func(l peercred.Link, pid int) bool { return l.PID == pid }) {
				t.Fatalf("%v, want %v", chain, parents)
			}
		})
	}
}
