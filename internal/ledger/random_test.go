//go:build linux

package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// mirror is the state as two maps: the rules again, in the plainest words.
type mirror struct {
	boot     string
	sessions map[int]looseSession  // by anchor
	tokens   map[string]looseToken // by token
}

func (m mirror) clone() mirror {
	return mirror{m.boot, maps.Clone(m.sessions), maps.Clone(m.tokens)}
}

// anchorOf returns which session has an id.
func (m mirror) anchorOf(id string) (int, bool) {
	for n, s := range m.sessions {
		if s.ID == id {
			return n, true
		}
	}
	return 0, false
}

func (m mirror) drop(id string) {
	if n, ok := m.anchorOf(id); ok {
		delete(m.sessions, n)
	}
	m.revoke(id)
}

func (m mirror) revoke(id string) {
	maps.DeleteFunc(m.tokens, func(_ string, t looseToken) bool { return t.SessionID == id })
}

func (m mirror) loose() looseState {
	s := looseState{Version: 1, BootID: m.boot, Sessions: []looseSession{}, Tokens: []looseToken{}}
	s.Sessions = slices.AppendSeq(s.Sessions, maps.Values(m.sessions))
	s.Tokens = slices.AppendSeq(s.Tokens, maps.Values(m.tokens))
	return s
}

// size is how long the file is.
func (m mirror) size() int {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m.loose()); err != nil {
		panic(err)
	}
	return b.Len()
}

// walk is a random walk over a ledger and its mirror.
type walk struct {
	t      *testing.T
	random *rand.Rand
	path   string
	cfg    ledger.Config
	disk   flakyDisk
	dir    *durable.Dir
	l      *ledger.Ledger
	m      mirror
	dead   map[string]bool // ids of sessions whose anchors exited
	tokens []string        // seen lately
	ids    []string
	// What the file may hold since a commit failed, beside m.
	maybe []mirror

	asked, refused, failed, restarts int
}

// flakyDisk skips fsync, and fails when told to. It needs no lock: only one
// goroutine at a time has anything to do.
type flakyDisk struct {
	op   string
	done bool
	left int
	hits int
}

func (d *flakyDisk) hook(s durable.Step, do func() error) error {
	if d.left > 0 && s.Op == d.op {
		d.left--
		d.hits++
		if d.done && d.op != "fsync" && d.op != "fsyncdir" {
			_ = do()
		}
		return unix.EIO
	}
	if s.Op == "fsync" || s.Op == "fsyncdir" {
		return nil
	}
	return do()
}

func (w *walk) open() {
	for {
		var err error
		w.dir, err = durable.Disk{Hook: w.disk.hook}.OpenDir(w.path)
		must(w.t, err)
		w.l, err = ledger.Open(w.dir, w.cfg)
		if err == nil {
			return
		}
		w.dir.Close()
		if w.disk.hits == 0 || !errors.Is(err, ledger.ErrNotCommitted) {
			w.t.Fatalf("opening: %v", err)
		}
		w.disk = flakyDisk{}
	}
}

func (w *walk) close() {
	stop(w.t, w.l)
	w.dir.Close()
}

const (
	anchors     = 7
	maxSessions = 5
	maxTokens   = 6
	maxBytes    = 3600
)

func (w *walk) step() {
	if w.random.IntN(25) == 0 {
		ops := []string{"create", "write", "fsync", "rename", "fsyncdir"}
		w.disk = flakyDisk{op: ops[w.random.IntN(len(ops))], done: w.random.IntN(2) == 0, left: 1 + w.random.IntN(3)}
	}
	w.disk.hits = 0
	switch p := w.random.IntN(1000); {
	case p < 180:
		w.register()
	case p < 520:
		w.mint()
	case p < 880:
		w.consume()
	case p < 930:
		w.authenticate()
	case p < 950:
		w.prune()
	case p < 995:
		if s, ok := w.m.sessions[w.random.IntN(anchors)]; ok && w.random.IntN(3) == 0 {
			w.dead[s.ID] = true
		}
	default:
		w.restart()
	}
	st := w.l.Stats()
	if st.Sessions != len(w.m.sessions) || st.Pending != len(w.m.tokens) {
		w.t.Fatalf("%d sessions and %d tokens, want %d and %d", st.Sessions, st.Pending, len(w.m.sessions), len(w.m.tokens))
	}
}

// judge compares an answer and takes over the state that goes with it.
func (w *walk) judge(what string, got, want error, next mirror) (granted bool) {
	w.asked++
	changes := !next.loose().same(w.m.loose())
	if want == nil && changes && next.size() > maxBytes {
		want = ledger.ErrTooLarge
	}
	if w.disk.hits > 0 {
		// A commit failed under this very request.
		if !errors.Is(got, ledger.ErrUnavailable) {
			w.t.Fatalf("%s, on a disk that failed: %v", what, got)
		}
		w.failed++
		if w.disk.op == "rename" || w.disk.op == "fsyncdir" {
			w.maybe = append(w.maybe, next)
		}
		return false
	}
	if want == nil && got != nil || !errors.Is(got, want) {
		w.t.Fatalf("%s: %v, want %v", what, got, want)
	}
	if want != nil {
		w.refused++
		return false
	}
	w.m = next
	if changes {
		w.maybe = nil
	}
	return true
}

func (w *walk) register() {
	n := w.random.IntN(anchors)
	standing, ok := w.m.sessions[n]
	generation := standing.Generation
	switch w.random.IntN(4) {
	case 0:
		generation++
	case 1:
		if generation > 0 {
			generation--
		}
	}
	next, want := w.m.clone(), error(nil)
	if ok && w.dead[standing.ID] {
		next.drop(standing.ID)
		ok = false
	}
	made := looseSession{PID: int32(anchor(n).PID), StartTime: anchor(n).StartTime, UID: 1, GID: 2, Generation: generation}
	switch {
	case ok && generation < standing.Generation:
		want = ledger.ErrGenerationStale
	case ok && generation > standing.Generation:
		next.revoke(standing.ID)
		standing.Generation = generation
		next.sessions[n] = standing
	case !ok:
		if len(next.sessions) == maxSessions {
			for _, s := range next.clone().sessions {
				if w.dead[s.ID] {
					next.drop(s.ID)
				}
			}
		}
		if len(next.sessions) == maxSessions {
			next, want = w.m, ledger.ErrSessionCapacity
		} else {
			made.ID = strings.Repeat("?", 43)
			next.sessions[n] = made
		}
	}
	got, err := w.l.Register(never, anchor(n), 1, 2, generation)
	if w.judge("registering", err, want, next) {
		id := got.ID.Reveal()
		if !ok {
			made.ID = id
			w.m.sessions[n] = made
			w.ids = append(w.ids, id)
		}
		if s := w.m.sessions[n]; s.ID != id || s.Generation != got.Generation {
			w.t.Fatalf("registered generation %d, want %d", got.Generation, s.Generation)
		}
	}
}

// any is a session, its id mostly a good one, and mostly its generation.
func (w *walk) any(id string) (string, uint64) {
	if id == "" || w.random.IntN(10) == 0 {
		if len(w.ids) == 0 {
			return id1, 0
		}
		id = w.ids[max(0, len(w.ids)-1-w.random.IntN(8))]
	}
	n, ok := w.m.anchorOf(id)
	generation := w.m.sessions[n].Generation
	if !ok || w.random.IntN(12) == 0 {
		generation += uint64(w.random.IntN(3))
		generation -= min(generation, 1)
	}
	return id, generation
}

func (w *walk) admits(id string, generation uint64) error {
	n, ok := w.m.anchorOf(id)
	switch is := w.m.sessions[n].Generation; {
	case !ok:
		return ledger.ErrSessionUnknown
	case generation < is:
		return ledger.ErrGenerationStale
	case generation > is:
		return ledger.ErrGenerationUnknown
	}
	return nil
}

func (w *walk) mint() {
	id, generation := w.any("")
	b := ledger.Binding{
		CompactionEpoch: w.random.Uint64N(1 << 53), RequestEpoch: w.random.Uint64N(100), SchemaVersion: 1 + w.random.Uint64N(3),
		HSource: strings.Repeat(`x"`, 1+w.random.IntN(100)), HPayload: strconv.FormatUint(w.random.Uint64(), 36),
	}
	next, want := w.m.clone(), w.admits(id, generation)
	if want == nil && len(next.tokens) == maxTokens {
		for _, t := range w.m.tokens {
			if w.dead[t.SessionID] {
				next.drop(t.SessionID)
			}
		}
		if _, ok := next.anchorOf(id); !ok {
			want = ledger.ErrSessionUnknown
		} else if len(next.tokens) == maxTokens {
			want = ledger.ErrTokenCapacity
		}
	}
	record := looseToken{
		SHA256: strings.Repeat("?", 64), SessionID: id, Generation: generation,
		Binding: looseBinding{b.CompactionEpoch, b.RequestEpoch, b.HSource, b.HPayload, b.SchemaVersion},
	}
	if want == nil {
		next.tokens["?"] = record
	}
	token, err := w.l.Mint(never, secret.New(id), generation, b)
	if w.judge("minting", err, want, next) {
		delete(w.m.tokens, "?")
		record.SHA256 = hashOf(token.Reveal())
		w.m.tokens[token.Reveal()] = record
		w.tokens = append(w.tokens, token.Reveal())
	}
}

func (w *walk) consume() {
	token := token1
	if len(w.tokens) > 0 {
		token = w.tokens[max(0, len(w.tokens)-1-w.random.IntN(12))]
	}
	record, pending := w.m.tokens[token]
	id, generation := w.any(record.SessionID)
	next, want := w.m.clone(), w.admits(id, generation)
	if want == nil && (!pending || record.SessionID != id || record.Generation != generation) {
		want = ledger.ErrTokenReplay
	}
	if want == nil {
		delete(next.tokens, token)
	}
	got, err := w.l.Consume(never, secret.New(id), generation, secret.New(token))
	if w.judge("consuming", err, want, next) {
		if b := record.Binding; got != (ledger.Binding{CompactionEpoch: b.CompactionEpoch, RequestEpoch: b.RequestEpoch, HSource: b.HSource, HPayload: b.HPayload, SchemaVersion: b.SchemaVersion}) {
			w.t.Fatalf("the token was bound to %+v, want %+v", got, b)
		}
	}
}

func (w *walk) authenticate() {
	id, generation := w.any("")
	w.judge("authenticating", w.l.Authenticate(secret.New(id), generation), w.admits(id, generation), w.m)
}

func (w *walk) prune() {
	next := w.m.clone()
	var ids []secret.Secret
	for id := range w.dead {
		next.drop(id)
		ids = append(ids, secret.New(id))
	}
	w.judge("pruning", w.l.Prune(ids...), nil, next)
}

func (w *walk) restart() {
	w.restarts++
	w.close()
	file := loose(w.t, []byte(contentOf(w.t, stateFile(w.path))))
	if i := slices.IndexFunc(append([]mirror{w.m}, w.maybe...), func(m mirror) bool { return m.loose().like(file) }); i < 0 {
		w.t.Fatalf("the file holds what nobody asked for: %+v, want %+v or one of %d", file, w.m.loose(), len(w.maybe))
	}
	w.take(file)
	if w.random.IntN(10) == 0 {
		w.cfg.BootID = map[string]string{thisBoot: otherBoot, otherBoot: thisBoot}[w.cfg.BootID]
		w.m = mirror{w.cfg.BootID, map[int]looseSession{}, map[string]looseToken{}}
	}
	for id := range w.dead {
		w.m.drop(id)
	}
	w.maybe = nil
	w.open()
	clear(w.dead)
	if file := loose(w.t, []byte(contentOf(w.t, stateFile(w.path)))); !file.same(w.m.loose()) {
		w.t.Fatalf("the file holds %+v, want %+v", file, w.m.loose())
	}
	if names := tempsIn(w.t, w.path); len(names) > 0 {
		w.t.Fatalf("%q are left", names)
	}
}

// like is same, with ids and hashes that the failed request never told.
func (s looseState) like(file looseState) bool {
	s.Sessions, s.Tokens = slices.Clone(s.Sessions), slices.Clone(s.Tokens)
	known := map[string]bool{}
	for _, x := range s.Sessions {
		known[x.ID] = true
	}
	for _, x := range s.Tokens {
		known[x.SHA256] = true
	}
	for i, x := range s.Sessions {
		for _, y := range file.Sessions {
			if x.ID[0] == '?' && !known[y.ID] && x.PID == y.PID {
				s.Sessions[i].ID = y.ID
			}
		}
	}
	for i, x := range s.Tokens {
		for _, y := range file.Tokens {
			if x.SHA256[0] == '?' && !known[y.SHA256] {
				s.Tokens[i].SHA256 = y.SHA256
			}
		}
	}
	return s.same(file)
}

// take makes the file the mirror. Tokens that were never told have none but
// their hash.
func (w *walk) take(file looseState) {
	told := map[string]string{}
	for _, token := range w.tokens {
		told[hashOf(token)] = token
	}
	w.m = mirror{file.BootID, map[int]looseSession{}, map[string]looseToken{}}
	for _, s := range file.Sessions {
		w.m.sessions[int(s.PID)-anchor(0).PID] = s
		w.ids = append(w.ids, s.ID)
	}
	for _, t := range file.Tokens {
		token, ok := told[t.SHA256]
		if !ok {
			token = "never told: " + t.SHA256
		}
		w.m.tokens[token] = t
	}
	w.tokens = w.tokens[max(0, len(w.tokens)-50):]
	w.ids = w.ids[max(0, len(w.ids)-50):]
}

// Its seed is printed; SPENDONCE_SEED repeats a walk.
func TestAMillionRandomOperationsAgreeWithAMap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SPENDONCE_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	w := &walk{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), path: memory(t), dead: map[string]bool{},
		m: mirror{thisBoot, map[int]looseSession{}, map[string]looseToken{}},
	}
	w.cfg = ledger.Config{
		BootID: thisBoot, MaxSessions: maxSessions, MaxTokens: maxTokens, MaxBytes: maxBytes,
		Alive: func(s ledger.Session) bool { return !w.dead[s.ID.Reveal()] },
	}
	w.open()
	defer func() { w.close() }()
	operations := chosen(1_000_000, 200_000, 10_000)
	done := 0
	defer func() {
		t.Logf("SPENDONCE_SEED=%d: %d of %d operations, %s", seed, done, operations,
			fmt.Sprintf("%d requests, %d refused, %d failed, %d restarts", w.asked, w.refused, w.failed, w.restarts))
	}()
	for ; done < operations; done++ {
		w.step()
	}
}
