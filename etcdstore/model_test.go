package etcdstore_test

import (
	"fmt"
	"testing"
)

// rules are what the protocol of package doc consists of. The search below
// takes them out, one by one, and must miss each. The lock's check before a send
// is not among them: it is about time, and keeps the lease from ending before
// the send does unless the machine stops, of which there is no time here.
type rules struct {
	create  bool // the lock is created only where there is none
	lease   bool // the lock ends without its holder
	held    bool // a mark is put only by who has the lock
	recheck bool // the value is looked at after the mark, before the send
	version bool // a commit compares the value's version
	marked  bool // who lost the lock commits only while the mark is its own
	late    bool // ... and may then
}

var all = rules{create: true, lease: true, held: true, recheck: true, version: true, marked: true, late: true}

const machines = 3

const (
	nobody = -1
	first  = 0 // the refresh token that is stored at the beginning
	signed = 9 // that of a login meanwhile
)

// Where a machine is on its way. Each is one request to etcd, or the send.
const (
	locking = iota
	reading
	pinning // a put under the lock that leaves the token as it is
	marking
	looking
	sending
	comparing
	committing
	committingLate
	releasing
	gone
)

type machine struct {
	at      int
	token   int // read, or what came back
	version int
	sent    bool
	lapsed  bool // its lock ended without it, before its send
}

// world is all that there is. Whoever stops, or is cut off, is a machine that
// takes no further step; each prefix of each run is searched.
type world struct {
	token, version int
	lock, mark     int            // whose
	overtaken      [machines]bool // somebody else who had the lock has sent the token after its mark
	contested      [machines]bool // somebody else who had the lock has marked after it
	login          bool
	m              [machines]machine
}

// steps calls next with every world that can follow, or says which promise was
// broken on the way.
func (w world) steps(r rules, next func(world)) (broken string) {
	if r.lease && w.lock != nobody {
		n := w
		if n.m[w.lock].at <= sending {
			n.m[w.lock].lapsed = true
		}
		n.lock = nobody
		next(n)
	}
	if !w.login {
		n := w
		n.login, n.token, n.version = true, signed, n.version+1
		next(n)
	}
	for i := range w.m {
		n, b := w.step(i, r)
		if b != "" {
			return fmt.Sprintf("machine %d, at step %d: %s", i, w.m[i].at, b)
		}
		next(n)
	}
	return ""
}

func (w world) step(i int, r rules) (world, string) {
	m := &w.m[i]
	mine := w.lock == i
	to := func(at int, ok bool) {
		m.at = releasing
		if ok {
			m.at = at
		}
	}
	switch m.at {
	case locking:
		if w.lock == nobody || !r.create {
			w.lock = i
			m.at = reading
		}
	case reading:
		m.token, m.version = w.token, w.version
		to(pinning, w.token == first) // else there is a fresh one
	case pinning:
		if ok := mine && m.version == w.version; ok {
			w.version++
			to(marking, true)
		} else {
			to(reading, mine)
		}
	case marking:
		if ok := mine || !r.held; ok {
			w.mark = i
			for j := range w.m {
				w.contested[j] = w.contested[j] || j != i && mine
			}
			w.contested[i], w.overtaken[i] = false, false
			to(looking, true)
		} else {
			to(0, false)
		}
	case looking:
		to(sending, w.token == m.token || !r.recheck)
	case sending:
		for j := range w.m {
			if j != i && w.m[j].sent && !m.lapsed && w.lock == j {
				return w, "sent beside one who has the lock"
			}
			w.overtaken[j] = w.overtaken[j] || j != i && !m.lapsed
		}
		if !m.lapsed && w.token != m.token && w.token != signed {
			return w, "sent a token whose successor is stored"
		}
		m.sent, m.at = true, comparing
	case comparing:
		m.version = w.version
		to(committing, w.token == m.token) // else the newer one stays
	case committing:
		switch {
		case mine && (m.version == w.version || !r.version):
			return w.commit(i)
		case m.version != w.version && r.version:
			m.at = comparing
		default:
			m.at = committingLate
		}
	case committingLate:
		switch {
		case r.late && (m.version == w.version || !r.version) && (w.mark == i || !r.marked):
			return w.commit(i)
		case m.version == w.version && !w.contested[i]:
			return w, "lost what came back, though nobody else was about to send"
		default:
			m.at = releasing
		}
	case releasing:
		if mine {
			w.lock = nobody
		}
		m.at = gone
	}
	return w, ""
}

func (w world) commit(i int) (world, string) {
	m := &w.m[i]
	if w.token != m.token {
		return w, "overwrote a login, or another's successor"
	}
	if w.overtaken[i] {
		return w, "stored what a later send has made worthless"
	}
	w.token, w.version = 10+i, w.version+1
	m.at = releasing
	return w, ""
}

// canEnd tells whether the machine comes to its end though all others stop.
func (w world) canEnd(i int, r rules) bool {
	for range 4 * gone {
		switch {
		case w.m[i].at == gone:
			return true
		case w.lock != nobody && w.lock != i && r.lease:
			w.lock = nobody
		}
		var broken string
		if w, broken = w.step(i, r); broken != "" {
			return true // which is found by itself
		}
	}
	return false
}

// search looks at every world that can be, and returns how many there are and
// the first promise that was broken.
func search(r rules) (worlds int, broken string) {
	start := world{lock: nobody, mark: nobody}
	seen := map[world]bool{start: true}
	for queue := []world{start}; len(queue) > 0 && broken == ""; queue = queue[1:] {
		broken = queue[0].steps(r, func(n world) {
			if !seen[n] {
				seen[n] = true
				queue = append(queue, n)
			}
		})
		for i := range machines {
			if broken == "" && !queue[0].canEnd(i, r) {
				broken = fmt.Sprintf("machine %d waits for ever for one that has stopped", i)
			}
		}
	}
	return len(seen), broken
}

func TestEveryInterleavingKeepsThePromisesOfTheProtocol(t *testing.T) {
	worlds, broken := search(all)
	if broken != "" {
		t.Error(broken)
	}
	if worlds < 10_000 {
		t.Errorf("only %d worlds were seen", worlds)
	}
	t.Logf("%d worlds", worlds)
}

func TestNoRuleOfTheProtocolCanBeTakenOut(t *testing.T) {
	for name, out := range map[string]func(*rules){
		"exclusive creation":        func(r *rules) { r.create = false },
		"the lease":                 func(r *rules) { r.lease = false },
		"the lock below the mark":   func(r *rules) { r.held = false },
		"the look at the value":     func(r *rules) { r.recheck = false },
		"the version":               func(r *rules) { r.version = false },
		"the mark below a commit":   func(r *rules) { r.marked = false },
		"the commit without a lock": func(r *rules) { r.late = false },
	} {
		t.Run(name, func(t *testing.T) {
			r := all
			out(&r)
			worlds, broken := search(r)
			if broken == "" {
				t.Errorf("nothing is broken in %d worlds", worlds)
			}
			t.Log(broken)
		})
	}
}
