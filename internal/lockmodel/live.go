package lockmodel

// graph is the graph of states without its self loops: the successors of
// state i are to[end[i-1]:end[i]].
type graph struct {
	to, end []uint32
}

func (g *graph) of(i uint32) []uint32 {
	from := uint32(0)
	if i > 0 {
		from = g.end[i-1]
	}
	return g.to[from:g.end[i]]
}

// cycle returns the states of a cycle, or nil. A graph without one has only
// runs that end. States are peeled off from the start: what has no way in
// that is not peeled itself goes next; what remains lies on or behind a cycle.
func (g *graph) cycle() []uint32 {
	n := len(g.end)
	in := make([]uint32, n)
	for _, t := range g.to {
		in[t]++
	}
	var free []uint32
	left := n
	for i := range in {
		if in[i] == 0 {
			free = append(free, uint32(i))
		}
	}
	for len(free) > 0 {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		left--
		for _, t := range g.of(i) {
			if in[t]--; in[t] == 0 {
				free = append(free, t)
			}
		}
	}
	if left == 0 {
		return nil
	}
	return g.walkBack(in)
}

// walkBack follows predecessors that remain until one is met again.
func (g *graph) walkBack(in []uint32) []uint32 {
	before := map[uint32]uint32{}
	var at uint32
	for i := range g.end {
		if in[i] == 0 {
			continue
		}
		for _, t := range g.of(uint32(i)) {
			before[t] = uint32(i)
		}
		at = uint32(i)
	}
	seen := map[uint32]bool{}
	for !seen[at] {
		seen[at] = true
		at = before[at]
	}
	cycle := []uint32{at}
	for b := before[at]; b != at; b = before[b] {
		cycle = append(cycle, b)
	}
	cycle = append(cycle, at)
	for i, j := 0, len(cycle)-1; i < j; i, j = i+1, j-1 {
		cycle[i], cycle[j] = cycle[j], cycle[i]
	}
	return cycle
}

// tellCycle gives the way into a cycle and one turn of it.
func (m *model) tellCycle(v *visited, cycle []uint32) []event {
	events := v.path(int(cycle[0]))
	for i := 1; i < len(cycle); i++ {
		for _, e := range m.next(v.at(int(cycle[i-1])), nil) {
			if e.next == *v.at(int(cycle[i])) {
				events = append(events, e.event)
				break
			}
		}
	}
	return events
}
