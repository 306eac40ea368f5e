package lockmodel

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Result is what a search found.
type Result struct {
	States, Edges int
	// Complete tells that every reachable state was walked.
	Complete bool
	Found    Kinds
	// Outcomes counts how often a process ended in each way.
	Outcomes map[string]int
	traces   map[Kind][]string
}

// Trace returns the shortest interleaving to the first violation of k, one
// line per step.
func (r *Result) Trace(k Kind) []string { return r.traces[k] }

// Explain prints the shortest interleaving.
func (r *Result) Explain(k Kind) string {
	var b strings.Builder
	for i, line := range r.traces[k] {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, line)
	}
	fmt.Fprintf(&b, "     ==> %s\n", k)
	return b.String()
}

// visited is the set of states in the order of their discovery, with the step
// that discovered each.
type visited struct {
	seed   maphash.Seed
	states [][]state // in chunks: to grow copies nothing
	count  int
	parent []uint32
	by     []event
	slots  []uint32 // index + 1
}

func newVisited() *visited {
	return &visited{seed: maphash.MakeSeed(), slots: make([]uint32, 1<<12)}
}

const chunk = 1 << 14

func (v *visited) at(i int) *state { return &v.states[i/chunk][i%chunk] }

func (v *visited) find(s *state) (slot uint64, at int) {
	last := uint64(len(v.slots) - 1)
	for slot = maphash.Comparable(v.seed, *s) & last; v.slots[slot] != 0; slot = (slot + 1) & last {
		if at := v.slots[slot] - 1; *v.at(int(at)) == *s {
			return slot, int(at)
		}
	}
	return slot, -1
}

func (v *visited) add(s *state, parent int, by event) int {
	slot, at := v.find(s)
	if at >= 0 {
		return at
	}
	if v.count%chunk == 0 {
		v.states = append(v.states, make([]state, chunk))
	}
	*v.at(v.count) = *s
	v.count++
	v.parent = append(v.parent, uint32(parent))
	v.by = append(v.by, by)
	v.slots[slot] = uint32(v.count)
	if 2*v.count > len(v.slots) {
		v.slots = make([]uint32, 2*len(v.slots))
		for i := range v.count {
			slot, _ := v.find(v.at(i))
			v.slots[slot] = uint32(i + 1)
		}
	}
	return v.count - 1
}

// path returns the events that lead to state at.
func (v *visited) path(at int) []event {
	var events []event
	for ; at != 0; at = int(v.parent[at]) {
		events = append(events, v.by[at])
	}
	for i, j := 0, len(events)-1; i < j; i, j = i+1, j-1 {
		events[i], events[j] = events[j], events[i]
	}
	return events
}

// Search walks every interleaving of c, breadth first.
func Search(c Config) *Result {
	m := newModel(c)
	r := &Result{Outcomes: map[string]int{}, traces: map[Kind][]string{}}
	v := newVisited()
	first := m.initial()
	v.add(&first, 0, event{})
	var buf []edge
	g := graph{}
	for at := 0; at < v.count; at++ {
		from := *v.at(at)
		buf = m.next(&from, buf[:0])
		r.Edges += len(buf)
		moves := false
		for i := range buf {
			e := &buf[i]
			to := v.add(&e.next, at, e.event)
			moves = moves || to != at
			if c.Live && to != at {
				g.to = append(g.to, uint32(to))
			}
			if e.kinds&^r.Found != 0 {
				m.report(r, e.kinds, append(v.path(at), e.event))
			}
		}
		if c.Live {
			g.end = append(g.end, uint32(len(g.to)))
		}
		if !moves && m.waits(&from) {
			m.report(r, 1<<Deadlock, v.path(at))
		}
		if !moves {
			m.count(r, &from)
		}
		if c.StopAt != 0 && r.Found&c.StopAt == c.StopAt || c.Limit > 0 && v.count > c.Limit {
			r.States = v.count
			return r
		}
	}
	r.States, r.Complete = v.count, true
	if c.Live {
		if cycle := g.cycle(); cycle != nil {
			m.report(r, 1<<Endless, m.tellCycle(v, cycle))
		}
	}
	return r
}

// report keeps the first, and so the shortest, way to each kind.
func (m *model) report(r *Result, kinds Kinds, events []event) {
	for k := range kindCount {
		if !kinds.Has(k) || r.Found.Has(k) {
			continue
		}
		for _, e := range events {
			r.traces[k] = append(r.traces[k], m.tell(e))
		}
	}
	r.Found |= kinds
}

// waits tells that a process could go on if it were let.
func (m *model) waits(s *state) bool {
	for i := range m.Procs {
		if !s.procs[i].idle() {
			return true
		}
	}
	return false
}

func (m *model) count(r *Result, s *state) {
	for i := range m.Procs {
		p := &s.procs[i]
		switch {
		case p.has(dead):
			r.Outcomes["dead"]++
		case p.has(stopped):
			r.Outcomes["stopped"]++
		default:
			r.Outcomes[p.outcome.String()]++
		}
	}
}

func (o outcome) String() string {
	return [...]string{"running", "done", "adopted", "took outcome", "newer stays", "no login", "login required",
		"outcome unknown", "refused, unmarked", "temporary", "lock busy", "unsaved", "unsaved, unmarked", "spent found", "no pin"}[o]
}
