//go:build linux

package broker_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The protocol's rules for one session, as a checker of histories wants them.

// asked is a request of one session.
type asked struct {
	what       string
	generation uint64
	token      string
}

// told is what came of it.
type told struct {
	code  string
	token string
}

// known is what a broker knows of a session.
type known struct {
	registered bool
	generation uint64
	pending    map[string]bool
}

func (k known) with(token string) known {
	k.pending = maps.Clone(k.pending)
	if k.pending == nil {
		k.pending = map[string]bool{}
	}
	k.pending[token] = true
	return k
}

func (k known) without(token string) known {
	k.pending = maps.Clone(k.pending)
	delete(k.pending, token)
	return k
}

// rules says whether a request may be answered so, and what is known then. A
// request without an answer is taken to have been granted: as it may have been
// at any time, also after everything else, that is no more than may be.
func rules(state, input, output any) (bool, any) {
	k, q, a := state.(known), input.(asked), output.(told)
	var grant string
	then := k
	switch {
	case q.what == "register" && (!k.registered || q.generation > k.generation):
		grant, then = ok, known{registered: true, generation: q.generation}
	case q.generation < k.generation:
		grant = "GENERATION_STALE"
	case q.what == "register":
		grant = ok
	case q.generation > k.generation:
		grant = "GENERATION_UNKNOWN"
	case q.what == "authenticate":
		grant = ok
	case q.what == "mint":
		grant, then = ok, k.with(a.token)
	case k.pending[q.token]:
		grant, then = ok, k.without(q.token)
	default:
		grant = "TOKEN_REPLAY"
	}
	return a.code == grant || a.code == unknown, then
}

var sessionModel = porcupine.Model{
	Init: func() any { return known{} },
	Step: rules,
	Equal: func(a, b any) bool {
		x, y := a.(known), b.(known)
		return x.registered == y.registered && x.generation == y.generation && maps.Equal(x.pending, y.pending)
	},
	DescribeOperation: func(input, output any) string {
		q, a := input.(asked), output.(told)
		return fmt.Sprintf("%s %d %.4s: %s %.4s", q.what, q.generation, q.token, a.code, a.token)
	},
}

// play is one history of several sessions, with what their members know.
type play struct {
	t      testing.TB
	socket string
	clock  atomic.Int64 // answers so far

	mu     sync.Mutex
	scenes []*scene
	tokens []string // all that anybody has seen
	epochs map[string]uint64
}

// scene is one session.
type scene struct {
	id         string
	generation uint64 // the highest that is, or may be, registered
	history    []porcupine.Operation
}

// refusals that have no effect, whatever is known, and say nothing about it.
var sayNothing = []string{"BUSY", "DEADLINE_EXCEEDED", noBroker}

// ask has an actor make one random request of its session.
func (p *play) ask(a *actor, client int, in *scene, anchor bool, random *rand.Rand) {
	p.mu.Lock()
	q := asked{what: "consume", generation: in.generation}
	switch n := random.IntN(100); {
	case anchor && n < 10:
		q.what, q.generation = "register", in.generation+1
	case anchor && n < 20:
		q.what = "register"
	case n < 25:
		q.what = "authenticate"
	case n < 60:
		q.what = "mint"
	}
	if random.IntN(10) == 0 { // a generation that is over, or was never there
		q.generation = max(1, q.generation+uint64(random.IntN(3))) - 1
	}
	if q.what == "consume" {
		if len(p.tokens) == 0 {
			p.mu.Unlock()
			return
		}
		// Often the latest, so that several are after the same.
		q.token = p.tokens[max(0, len(p.tokens)-1-int(random.ExpFloat64()*3))]
	}
	p.mu.Unlock()

	o := session{p.socket, in.id, q.generation}.order(q.what)
	o.Token = q.token
	o.Binding = aBinding
	o.Binding.RequestEpoch = uint64(random.IntN(1 << 30))
	r := a.tell(o)
	p.clock.Add(1)
	got := told{r.Code, r.Token}
	switch {
	case slices.Contains(sayNothing, r.Code):
		return
	case r.Code == "STATE_UNAVAILABLE", r.Code != ok && !isRefusal(r.Code):
		got.code, r.Ended = unknown, math.MaxInt64
		if q.what == "mint" || q.what == "authenticate" {
			return // nobody knows the token
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.what == "register" && (got.code == ok || got.code == unknown) {
		in.generation = max(in.generation, q.generation)
	}
	in.history = append(in.history, porcupine.Operation{ClientId: client, Input: q, Output: got, Call: r.Began, Return: r.Ended})
	if got.code != ok {
		return
	}
	switch q.what {
	case "mint":
		p.tokens = append(p.tokens, r.Token)
		p.epochs[r.Token] = o.Binding.RequestEpoch
	case "consume":
		if r.Binding.RequestEpoch != p.epochs[q.token] || r.Binding.HSource != aBinding.HSource {
			p.t.Errorf("the binding that came back is %+v", r.Binding)
		}
	case "register":
		if in.id != r.Session {
			p.t.Error("the anchor's session has another id")
		}
	}
}

func isRefusal(code string) bool {
	for _, c := range code {
		if (c < 'A' || c > 'Z') && c != '_' {
			return false
		}
	}
	return true
}

// Registrations, mints, consumptions and higher generations by nine processes,
// while the broker is killed and started again. Each session's history must be
// one that the protocol allows: in some order that agrees with the clock, every
// answer is what the rules give.
func TestHistoriesOverCrashesAreLinearizable(t *testing.T) {
	rounds := share(300, 5, 3, 1)
	for round := range rounds {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprintf("%d with seed %d", round, seed), func(t *testing.T) { oneHistory(t, seed) }) {
			return
		}
	}
}

func oneHistory(t *testing.T, seed uint64) {
	const anchors, children, between = 3, 2, 120
	crashes := share(5, 5, 5, 2)
	random := rand.New(rand.NewPCG(seed, 0))
	at, c := newSite(t), newCast(t)
	b := at.run(nil)
	p := &play{t: t, socket: at.socket, epochs: map[string]uint64{}}
	done := make(chan struct{})
	var members sync.WaitGroup
	client := 0
	join := func(a *actor, in *scene, anchor bool) {
		own, n := rand.New(rand.NewPCG(seed, uint64(client+1))), client
		client++
		members.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					p.ask(a, n, in, anchor, own)
				}
			}
		})
	}
	type member struct {
		*actor
		in     *scene
		anchor bool
	}
	var all []member
	for range anchors {
		a := c.actor()
		r := a.tell(order{Do: "register", Path: at.socket})
		in := &scene{id: r.Session}
		in.history = append(in.history, porcupine.Operation{Input: asked{what: "register"}, Output: told{code: r.Code}, Call: r.Began, Return: r.Ended})
		all = append(all, member{a, in, true})
		for range children {
			all = append(all, member{a.below(1), in, false})
		}
		p.scenes = append(p.scenes, in)
	}
	for _, m := range all {
		join(m.actor, m.in, m.anchor)
	}
	for crash := range crashes {
		until := p.clock.Load() + between/2 + int64(random.IntN(between))
		eventually(t, func() bool { return p.clock.Load() >= until })
		if crash%3 == 2 {
			b.end()
		} else {
			b.kill()
		}
		b = at.run(nil)
	}
	until := p.clock.Load() + between
	eventually(t, func() bool { return p.clock.Load() >= until })
	close(done)
	members.Wait()
	for _, in := range p.scenes {
		codes := map[string]int{}
		for _, o := range in.history {
			codes[o.Input.(asked).what+" "+o.Output.(told).code]++
		}
		began := time.Now()
		switch porcupine.CheckOperationsTimeout(sessionModel, in.history, time.Minute) {
		case porcupine.Illegal:
			t.Errorf("no order of these %d requests agrees with the rules: %v", len(in.history), codes)
		case porcupine.Unknown:
			t.Errorf("no verdict over %d requests: %v", len(in.history), codes)
		default:
			t.Logf("%d requests, judged in %s: %v", len(in.history), time.Since(began).Round(time.Millisecond), codes)
		}
	}
}
