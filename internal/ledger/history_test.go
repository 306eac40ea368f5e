//go:build linux

package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// What follows judges whole histories of concurrent requests, over faults,
// crashes and restarts: there must be an order of them, one at a time and each
// between its question and its answer, in which the protocol gives every
// answer that was given. A request that was answered with ErrUnavailable, or
// cut off, may have happened at any time after it was asked, once, or never.

type question struct {
	what       string // register, mint, consume, authenticate, prune, die
	anchor     int
	id         string
	generation uint64
	token      string
	dead       []string // die: ids of sessions whose anchor was found dead at a start
}

type answer struct {
	err   error // nil, or the sentinel
	maybe bool
	id    string
	token string
}

// believed is the state of one anchor, in a form that == compares. Anchors do
// not touch each other as long as there is room.
type believed struct {
	id         string // "?" if it was made by a request that nobody got an answer to
	generation uint64
	tokens     string // each followed by a space, sorted
}

func (b believed) has(token string) bool { return strings.Contains(b.tokens, token+" ") }

func (b believed) with(token string) believed {
	all := append(strings.Fields(b.tokens), token)
	slices.Sort(all)
	b.tokens = strings.Join(all, " ") + " "
	return b
}

func (b believed) without(token string) believed {
	b.tokens = strings.Replace(b.tokens, token+" ", "", 1)
	return b
}

// refusal is what anything but registering is refused with.
func (b believed) refusal(q question) error {
	switch {
	case b.id == "" || b.id != q.id:
		return ledger.ErrSessionUnknown
	case q.generation < b.generation:
		return ledger.ErrGenerationStale
	case q.generation > b.generation:
		return ledger.ErrGenerationUnknown
	case q.what == "consume" && !b.has(q.token):
		return ledger.ErrTokenReplay
	}
	return nil
}

// after are the states that a request may leave if it happens and is answered
// so.
func (b believed) after(q question, a answer) []any {
	if a.maybe {
		next, err := b.happening(q, answer{id: "?", token: "?"})
		if err != nil || next == b {
			return []any{b}
		}
		return []any{b, next}
	}
	next, err := b.happening(q, a)
	if !errors.Is(a.err, err) || (err == nil) != (a.err == nil) {
		return nil
	}
	if err == nil && q.what == "register" && next.id != a.id {
		return nil
	}
	return []any{next}
}

// happening is the protocol.
func (b believed) happening(q question, a answer) (believed, error) {
	switch q.what {
	case "register":
		switch {
		case b.id == "":
			return believed{id: a.id, generation: q.generation}, nil
		case q.generation < b.generation:
			return b, ledger.ErrGenerationStale
		case q.generation > b.generation:
			b = believed{id: b.id, generation: q.generation}
		}
		if b.id == "?" {
			b.id = a.id // now somebody is told
		}
		return b, nil
	case "prune":
		if b.id == q.id {
			return believed{}, nil
		}
		return b, nil
	case "die":
		if slices.Contains(q.dead, b.id) {
			return believed{}, nil
		}
		return b, nil
	}
	if err := b.refusal(q); err != nil {
		return b, err
	}
	switch q.what {
	case "mint":
		return b.with(a.token), nil
	case "consume":
		return b.without(q.token), nil
	}
	return b, nil
}

func protocol() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			by := map[int][]porcupine.Operation{}
			for _, o := range all {
				n := o.Input.(question).anchor
				by[n] = append(by[n], o)
			}
			var parts [][]porcupine.Operation
			for _, part := range by {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{believed{}} },
		Step: func(state, input, output any) []any {
			return state.(believed).after(input.(question), output.(answer))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}).ToModel()
}

// history records what happens to a ledger that is closed and opened again
// and again.
type history struct {
	t      *testing.T
	random *rand.Rand
	path   string
	clock  atomic.Int64

	mu  sync.Mutex
	all []porcupine.Operation
	ids map[int][]string // by anchor, as far as they were told
	// Tokens that were told, by anchor; the last few are tried again and again.
	tokens map[int][]string
	dead   map[string]bool
}

func (h *history) record(client int, q question, ask func() answer) answer {
	call := h.clock.Add(1)
	a := ask()
	back := h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(a.err, ledger.ErrClosed):
		return a // has no effect, and tells of none
	case errors.Is(a.err, ledger.ErrUnavailable):
		if q.what == "authenticate" || q.what == "mint" {
			return a // a token that nobody was told is nobody's
		}
		a, back = answer{maybe: true}, math.MaxInt64
	case a.err == nil && a.id != "":
		h.ids[q.anchor] = append(h.ids[q.anchor], a.id)
	case a.err == nil && a.token != "":
		h.tokens[q.anchor] = append(h.tokens[q.anchor], a.token)
	}
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: q, Call: call, Output: a, Return: back})
	return a
}

// shift is one client's work in one life of the broker.
func (h *history) shift(l *ledger.Ledger, client, n int, random *rand.Rand, requests int) {
	for range requests {
		h.mu.Lock()
		q := question{anchor: n, id: last(random, h.ids[n], 2), token: last(random, h.tokens[n], 4), generation: uint64(random.IntN(3))}
		if at, ok := l.SessionOf(anchor(n)); ok && random.IntN(4) > 0 {
			q.generation = at.Generation
		}
		h.mu.Unlock()
		if q.token == "" {
			q.token = token1 // that nobody has
		}
		q.what = []string{"register", "register", "mint", "mint", "mint", "consume", "consume", "consume", "consume", "authenticate", "prune"}[random.IntN(11)]
		if q.id == "" {
			q.what = "register"
		}
		if q.what == "register" {
			q.generation = min(q.generation+uint64(random.IntN(2)), q.generation+1)
		}
		a := h.record(client, q, func() answer {
			id := secret.New(q.id)
			switch q.what {
			case "register":
				s, err := l.Register(never, anchor(n), 0, 0, q.generation)
				return answer{err: err, id: s.ID.Reveal()}
			case "mint":
				token, err := l.Mint(never, id, q.generation, bound(n))
				return answer{err: err, token: token.Reveal()}
			case "consume":
				_, err := l.Consume(never, id, q.generation, secret.New(q.token))
				return answer{err: err}
			case "prune":
				return answer{err: l.Prune(id)}
			default:
				return answer{err: l.Authenticate(id, q.generation)}
			}
		})
		if a.maybe && random.IntN(2) == 0 {
			return // few of those make many orders
		}
	}
}

// last is one of the last few.
func last(random *rand.Rand, of []string, few int) string {
	if len(of) == 0 {
		return ""
	}
	return of[max(0, len(of)-1-random.IntN(few))]
}

// life opens the ledger on a disk that fails at some time, lets clients work,
// and closes it in their midst, or when they are through.
func (h *history) life(anchors, clients, requests int) {
	f := &durabletest.Fault{At: 5 + h.random.IntN(90)}
	if h.random.IntN(4) > 0 {
		f.Mode = durabletest.Modes[h.random.IntN(3)]
	}
	cfg := ledger.Config{BootID: thisBoot, Alive: func(s ledger.Session) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.dead[s.ID.Reveal()]
	}}
	call := h.clock.Add(1)
	dying := -1
	if h.random.IntN(3) == 0 {
		dying = h.random.IntN(anchors)
		for _, id := range h.ids[dying] {
			h.dead[id] = true
		}
	}
	dir, err := f.Disk().OpenDir(h.path)
	var l *ledger.Ledger
	if err == nil {
		defer dir.Close()
		l, err = ledger.Open(dir, cfg)
	}
	if err != nil {
		if !f.Hit() {
			h.t.Fatalf("opening: %v", err)
		}
		dir, err = durable.Disk{}.OpenDir(h.path)
		must(h.t, err)
		defer dir.Close()
		l, err = ledger.Open(dir, cfg)
		must(h.t, err) // always starts again
	}
	if dying >= 0 {
		h.all = append(h.all, porcupine.Operation{
			ClientId: 99, Input: question{what: "die", anchor: dying, dead: slices.Clone(h.ids[dying])}, Call: call, Output: answer{}, Return: h.clock.Add(1),
		})
	}
	var wg sync.WaitGroup
	for c := range clients {
		random := rand.New(rand.NewPCG(h.random.Uint64(), uint64(c)))
		wg.Go(func() { h.shift(l, c, c%anchors, random, requests) })
	}
	if h.random.IntN(2) == 0 {
		wg.Wait()
	}
	stop(h.t, l)
	wg.Wait()
}

func TestHistoriesOverCrashesAreThoseOfTheProtocol(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	histories := chosen(20_000, 1_000, 30)
	requests, doubtful := 0, 0
	for i := range histories {
		h := &history{
			t: t, random: rand.New(rand.NewPCG(seed, uint64(i))), path: memory(t),
			ids: map[int][]string{}, tokens: map[int][]string{}, dead: map[string]bool{},
		}
		for range 4 {
			h.life(2, 6, 10)
		}
		requests += len(h.all)
		for _, o := range h.all {
			if o.Output.(answer).maybe {
				doubtful++
			}
		}
		switch result, info := porcupine.CheckOperationsVerbose(protocol(), h.all, time.Minute); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			t.Errorf("history %d of seed %d could not be judged in time: %d requests", i, seed, len(h.all))
		default:
			h.tell()
			file := t.ArtifactDir() + "/history.html"
			_ = porcupine.VisualizePath(protocol(), info, file)
			t.Fatalf("history %d of seed %d is none of the protocol's: see %s", i, seed, file)
		}
	}
	t.Logf("%d histories, %d requests, of which %d had no answer to go by", histories, requests, doubtful)
}

// tell prints the part of a history that no order explains.
func (h *history) tell() {
	for n := range 2 {
		var part []porcupine.Operation
		for _, o := range h.all {
			if o.Input.(question).anchor == n {
				part = append(part, o)
			}
		}
		if porcupine.CheckOperations(protocol(), part) {
			continue
		}
		for len(part) > 0 && !porcupine.CheckOperations(protocol(), part[:len(part)-1]) {
			part = part[:len(part)-1]
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, o := range part {
			h.t.Logf("%d client %d: %+v -> %+v, %d", o.Call, o.ClientId, o.Input, o.Output, o.Return)
		}
	}
}
