package lockmodel

// model is a configuration made ready for walking.
type model struct {
	Config
	kept    [ruleCount]bool
	family  [maxProcs]uint8 // of the token that a login process mints
	servers [4]uint8        // that issued a family
}

func newModel(c Config) *model {
	m := &model{Config: c}
	for r := range m.kept {
		m.kept[r] = true
	}
	for _, r := range c.Without {
		m.kept[r] = false
	}
	m.servers[0] = serverA
	next := uint8(1)
	for i, r := range c.Procs {
		if !r.signsIn() {
			continue
		}
		m.family[i] = next
		m.servers[next] = serverA
		if r == LoginB || r == SourceLoginB {
			m.servers[next] = serverB
		}
		next++
	}
	return m
}

func (m *model) keeps(r Rule) bool { return m.kept[r] }

func (m *model) machine(i int) uint8 { return m.OtherMachine >> i & 1 }

func (m *model) hasGuards(i int) bool { return !m.NoKernelLocks && !m.Procs[i].source() }

func (m *model) initial() state {
	s := state{
		store:      storeFile{rt: firstRT},
		session:    sessionFile{there: true, pin: serverA, login: 1},
		config:     config{server: m.UserFile, edits: m.Edits},
		server:     server{valid: 1 << firstRT, next: firstRT + 1},
		crashes:    m.Crashes,
		stops:      m.Stops,
		clockSteps: m.ClockSteps,
		diskFaults: m.DiskFaults,
	}
	if m.Unpinned {
		s.session = sessionFile{}
	}
	for i := range s.procs {
		if i >= len(m.Procs) {
			s.procs[i].end()
			continue
		}
		p := &s.procs[i]
		p.pc = m.first(i)
		if p.pc == pcGuard || p.pc == pcCreate {
			p.on, p.goal = store, toWrite
		}
	}
	return s
}

func (m *model) first(i int) step {
	switch r := m.Procs[i]; {
	case r.signsIn():
		return pcMint
	case !r.refreshes() && m.hasGuards(i):
		return pcGuard
	case !r.refreshes():
		return pcCreate
	case !m.keeps(PinAfterRecord) && !r.source():
		return pcPinFirst
	}
	return pcArrive
}

// unmoved tells that a process has not taken its first step. (A writer that
// lost its lock and holds nothing looks the same, and is as good as new.)
func (m *model) unmoved(s *state, i int) bool {
	p := &s.procs[i]
	return p.pc == m.first(i) && p.flags == 0 && p.got == 0
}

// edge is one possible step out of a state.
type edge struct {
	next  state
	event event
	kinds Kinds
}

// turn collects the steps that one process can take from one state.
type turn struct {
	*model
	from *state
	p    *proc // in from
	i    int
	me   uint8 // i + 1
	out  []edge
}

func (t *turn) role() Role { return t.Procs[t.i] }

// can adds a step. The change is made on a copy of the state.
func (t *turn) can(what verb, a, b uint8, change func(n *state, p *proc)) {
	t.out = append(t.out, edge{next: *t.from, event: event{uint8(t.i), what, t.p.on, a, b}})
	n := &t.out[len(t.out)-1].next
	change(n, &n.procs[t.i])
}

// breaks notes that the step just added breaks a promise.
func (t *turn) breaks(k Kind) { t.out[len(t.out)-1].kinds |= 1 << k }

// next appends every step from s to out.
func (m *model) next(s *state, out []edge) []edge {
	t := turn{model: m, from: s, out: out}
	for i, r := range m.Procs {
		p := &s.procs[i]
		if p.idle() {
			continue
		}
		first := m.unmoved(s, i)
		// Processes of one role are interchangeable until they move: letting
		// them start in order loses nothing and saves their permutations.
		if first && i > 0 && m.Procs[i-1] == r && m.OtherMachine == 0 && m.unmoved(s, i-1) {
			continue
		}
		t.p, t.i, t.me = p, i, uint8(i+1)
		program[p.pc](&t)
		if !first {
			t.faults()
		}
	}
	if s.clockSteps > 0 && (s.locks[target].owner != 0 || s.locks[store].owner != 0) {
		out := edge{next: *s, event: event{what: vClock}}
		out.next.clockSteps--
		for l := range out.next.locks {
			out.next.locks[l].old = out.next.locks[l].owner != 0
		}
		t.out = append(t.out, out)
	}
	if s.config.edits > 0 && s.config.used {
		out := edge{next: *s, event: event{what: vEdit, a: serverA + serverB - s.config.server}}
		out.next.config.edits--
		out.next.config.server = out.event.a
		t.out = append(t.out, out)
	}
	return t.out
}

// faults are what may happen to a process between any two steps.
func (t *turn) faults() {
	if t.from.crashes > 0 {
		t.can(vCrash, 0, 0, func(n *state, p *proc) {
			n.crashes--
			for l := range n.guards {
				for m := range n.guards[l] {
					if n.guards[l][m] == t.me {
						n.guards[l][m] = 0
					}
				}
			}
			p.flags = dead
			p.end()
		})
	}
	if t.from.stops > 0 {
		t.can(vStop, 0, 0, func(n *state, p *proc) {
			n.stops--
			p.flags |= stopped
		})
	}
}

// stuck tells that process o-1 takes no step within StaleAfter: it is idle, or
// waits for a guard or a lock file of one that is.
func (m *model) stuck(s *state, o uint8) bool {
	for range maxProcs {
		if o == 0 {
			return false
		}
		p := &s.procs[o-1]
		if p.idle() {
			return true
		}
		switch p.pc {
		case pcGuard:
			o = s.guards[p.on][m.machine(int(o-1))]
		case pcCreate:
			o = s.locks[p.on].owner
		default:
			return false
		}
	}
	return false
}

// aged judges a lock file older than StaleAfter.
func (m *model) aged(s *state, f lockFile) bool {
	return m.Clock == Free || f.old || m.stuck(s, f.owner)
}

// unchanged judges that a lock file stood for the watching time.
func (m *model) unchanged(s *state, f lockFile) bool {
	if m.Clock == Free || !m.keeps(WatchBeforeBreak) || m.stuck(s, f.owner) {
		return true
	}
	switch s.procs[f.owner-1].pc {
	case pcAnswer, pcGuard, pcCreate:
		return true
	}
	return false
}
