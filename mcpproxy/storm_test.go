package mcpproxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/mcpproxy"
)

// patient is a client with many requests under way that reads slowly. What it
// has got is kept.
type patient struct {
	in   io.Writer
	rng  *rand.Rand // of the reader
	room chan struct{}

	mu        sync.Mutex
	answers   map[string][]string // by id
	cancelled map[string]bool
	labels    map[string][]int // by stream, as they came
	news      chan struct{}    // closed and replaced when there is some
}

func (p *patient) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 64)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if p.rng.IntN(8) == 0 {
			<-time.After(time.Duration(p.rng.IntN(2000)) * time.Microsecond)
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Label string }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			m.Params.Label = "garbage:" + line
			m.Method = "garbage"
		}
		p.mu.Lock()
		if m.Method == "" {
			p.answers[string(m.ID)] = append(p.answers[string(m.ID)], line)
			select {
			case <-p.room:
			default:
			}
		} else {
			stream, n, _ := strings.Cut(m.Params.Label, ":")
			var at int
			_, _ = fmt.Sscan(n, &at)
			p.labels[stream] = append(p.labels[stream], at)
		}
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
		if m.Method == "ask" {
			go func() { _, _ = fmt.Fprintf(p.in, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID) }()
		}
	}
}

// await returns when ok holds of what has come, or false when it is late.
func (p *patient) await(ok func() bool) bool {
	late := time.After(patience)
	for {
		p.mu.Lock()
		good, news := ok(), p.news
		p.mu.Unlock()
		if good {
			return true
		}
		select {
		case <-news:
		case <-late:
			return false
		}
	}
}

// newest gives the token that harsh takes now.
type newest struct{ h *harsh }

func (n newest) Get(context.Context, credstore.Request) (credstore.Token, error) {
	n.h.mu.Lock()
	defer n.h.mu.Unlock()
	return credstore.Token{AccessToken: secret.New(fmt.Sprint("t", n.h.token))}, nil
}

// stormRounds are those for each revision.
func stormRounds(t *testing.T) int {
	switch {
	case os.Getenv("SPENDONCE_SOAK") == "1":
		return 2000
	case testing.Short():
		return 3
	}
	t.Log("a share of 25 of 2000 rounds for each revision")
	return 25
}

// Whatever the server does: a request has one answer or one error, nothing is
// acted on twice, and what is said on a stream that can be resumed comes once
// and in order.
func TestStormOfCutsRestartsAndForgottenSessionsLosesAndDoublesNothing(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			all := map[string]int{}
			for round := range stormRounds(t) {
				seed := uint64(round) + 1
				for what, n := range weather(t, seed, version) {
					all[what] += n
				}
				if t.Failed() {
					t.Fatalf("that was seed %d", seed)
				}
			}
			t.Log(all)
		})
	}
}

// weather is one round. It returns how often what has happened.
func weather(t *testing.T, seed uint64, version string) map[string]int {
	const n, atOnce = 60, 24
	h := startHarsh(t, seed, version)
	origin, err := bearer.ParseOrigin("http://" + h.addr)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	defer base.CloseIdleConnections()
	transport, err := bearer.New(bearer.Config{Target: "box", Source: newest{h}, Origins: []bearer.Origin{origin}, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	log := &logs{}
	defer func() {
		if t.Failed() {
			t.Logf("the log:\n%s", log)
		}
	}()
	proxy, err := mcpproxy.New(mcpproxy.Config{
		Target: "box", URL: "http://" + h.addr + "/mcp", Transport: transport, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Limits: mcpproxy.Limits{Pause: time.Millisecond, Linger: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	in, toProxy := io.Pipe()
	fromProxy, out := io.Pipe()
	rng := rand.New(rand.NewPCG(seed, 2))
	p := &patient{
		in: toProxy, rng: rand.New(rand.NewPCG(seed, 3)), room: make(chan struct{}, atOnce),
		answers: map[string][]string{}, cancelled: map[string]bool{}, labels: map[string][]int{}, news: make(chan struct{}),
	}
	ended, read := make(chan error, 1), make(chan struct{})
	go func() {
		err := proxy.Run(context.Background(), in, out)
		_ = in.CloseWithError(io.ErrClosedPipe)
		_ = out.Close()
		ended <- err
	}()
	go func() {
		defer close(read)
		p.read(fromProxy)
	}()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(toProxy, format+"\n", args...) }

	say(initialize)
	if !p.await(func() bool { return len(p.answers["0"]) == 1 }) {
		t.Fatal("no handshake")
	}
	say(initialized)
	h.setCalm(false)
	var ids []string
	for i := range n {
		id := fmt.Sprint(i + 1)
		if rng.IntN(3) == 0 {
			id = fmt.Sprintf("%q", id)
		}
		ids = append(ids, id)
		p.room <- struct{}{}
		say(`{"jsonrpc":"2.0","id":%s,"method":"m","params":{"key":"k%d"}}`, id, i)
		switch rng.IntN(20) {
		case 0:
			p.mu.Lock()
			p.cancelled[id] = true
			p.mu.Unlock()
			say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"key":"c%d"}}`, id, i)
			select {
			case <-p.room:
			default:
			}
		case 1, 2:
			say(`{"jsonrpc":"2.0","method":"notifications/y","params":{"key":"n%d"}}`, i)
		}
	}
	complete := func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return len(p.answers[id]) == 0 && !p.cancelled[id] })
	}
	if !p.await(complete) {
		for _, id := range ids {
			if len(p.answers[id]) == 0 && !p.cancelled[id] {
				t.Errorf("request %s has no answer", id)
			}
		}
		t.FailNow()
	}

	// When the server is itself again, all is as it was.
	h.setCalm(true)
	own := calmDown(p, h, say)
	if own == nil {
		t.Fatal("the server is well, and requests are not answered")
	}
	h.tell(own)
	// Without marks, a connection that the server does not know to be dead
	// swallows what it says.
	if h.marks && !p.await(func() bool { return len(p.labels[own.name]) > 0 && slices.Max(p.labels[own.name]) == len(own.labels) }) {
		t.Errorf("what the server said last did not come; of %d there are %v", len(own.labels), p.labels[own.name])
	}
	_ = toProxy.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the proxy does not end")
	}
	<-read
	p.judge(t, h, ids, own)
	return h.tally
}

// calmDown asks until there is a result, and returns the stream of the session
// in which that was.
func calmDown(p *patient, h *harsh, say func(string, ...any)) *told {
	for i := range 10 {
		id := fmt.Sprintf(`"probe%d"`, i)
		say(`{"jsonrpc":"2.0","id":%s,"method":"m","params":{"key":"probe%d"}}`, id, i)
		if !p.await(func() bool { return len(p.answers[id]) > 0 }) {
			return nil
		}
		p.mu.Lock()
		good := strings.Contains(p.answers[id][0], `"result"`)
		p.mu.Unlock()
		if good {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.sessions[h.asked]
		}
	}
	return nil
}

// judge compares what was said with what has come.
func (p *patient) judge(t *testing.T, h *harsh, ids []string, own *told) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, id := range ids {
		key := fmt.Sprint("k", i)
		got := p.answers[id]
		delete(p.answers, id)
		if len(got) > 1 {
			t.Errorf("request %s has %d answers: %q", id, len(got), got)
		}
		if len(got) == 1 && strings.Contains(got[0], `"result"`) {
			h.tally["results"]++
			if !strings.Contains(got[0], fmt.Sprintf(`%q`, key)) || h.taken[key] != 1 {
				t.Errorf("request %s was acted on %d times and has the answer %s", id, h.taken[key], got[0])
			}
		} else if len(got) == 1 {
			h.tally["errors"]++
		}
		if h.refused[key] > 2 {
			t.Errorf("request %s was sent to %d sessions that were over", id, h.refused[key])
		}
	}
	for id, got := range p.answers {
		if len(got) != 1 || id != "0" && !strings.HasPrefix(id, `"probe`) {
			t.Errorf("of %s there are the answers %q", id, got)
		}
	}
	for what, n := range h.taken {
		if n > 1 && what != "" { // the end of the handshake has no name
			t.Errorf("%s was acted on %d times", what, n)
		}
	}
	for name, came := range p.labels {
		s := h.streams[name]
		if s == nil {
			t.Errorf("%q came of no stream", name)
			continue
		}
		h.tally["messages"] += len(came)
		for i, n := range came {
			if i > 0 && n <= came[i-1] || h.marks && n != i+1 {
				t.Errorf("of the stream %s came %v", name, came)
				break
			}
		}
	}
	if h.marks && len(p.labels[own.name]) != len(own.labels) {
		t.Errorf("of the server's own stream %d messages came of %d", len(p.labels[own.name]), len(own.labels))
	}
	if !h.deleted[h.asked] {
		t.Error("the last session was not ended at the server")
	}
}
