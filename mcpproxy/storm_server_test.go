package mcpproxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// harsh is a server with sessions that does what networks, crashes and
// operators do: it restarts, cuts what it says at any byte, forgets sessions,
// refuses tokens, and takes its time. What it was told and what it has said is
// kept, to be compared with what came of it.
type harsh struct {
	t       *testing.T
	version string
	marks   bool // its streams can be resumed
	keeps   bool // and it knows its sessions after a restart
	addr    string

	mu       sync.Mutex
	rng      *rand.Rand
	server   *http.Server
	down     int // connections that find nobody
	conns    map[net.Conn]struct{}
	calm     bool // it does nothing of all that
	token    int
	last     int // name that was given
	sessions map[string]*told
	streams  map[string]*told

	taken   map[string]int // what was acted on, or may have been
	refused map[string]int // what was answered with 404
	begun   int
	asked   string // the session of the last request
	deleted map[string]bool
	tally   map[string]int
}

// told is a stream and what was said on it.
type told struct {
	name   string
	events []string
	labels []string
	sent   int  // of a stream that cannot be resumed
	over   bool // nothing else follows
	lost   bool // with its session
	more   chan struct{}
}

func startHarsh(t *testing.T, seed uint64, version string) *harsh {
	h := &harsh{
		t: t, version: version, rng: rand.New(rand.NewPCG(seed, 1)), calm: true,
		sessions: map[string]*told{}, streams: map[string]*told{}, taken: map[string]int{}, refused: map[string]int{},
		deleted: map[string]bool{}, tally: map[string]int{},
	}
	h.marks, h.keeps = h.rng.IntN(4) > 0, h.rng.IntN(2) > 0
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr, h.conns = l.Addr().String(), map[net.Conn]struct{}{}
	h.server = &http.Server{Handler: h, ConnState: h.connection, ReadHeaderTimeout: time.Minute}
	go func() { _ = h.server.Serve(l) }()
	t.Cleanup(func() { _ = h.server.Close() })
	return h
}

// connection keeps account of them, and ends those that come during a restart.
func (h *harsh) connection(c net.Conn, state http.ConnState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch state {
	case http.StateNew:
		if h.down > 0 && !h.calm {
			h.down--
			_ = c.Close()
			return
		}
		h.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(h.conns, c)
	case http.StateActive, http.StateIdle:
	}
}

// one in n times it is true, and counted.
func (h *harsh) one(n int, what string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calm || h.rng.IntN(n) > 0 {
		return false
	}
	h.tally[what]++
	return true
}

func (h *harsh) number(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

func (h *harsh) setCalm(calm bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calm = calm
}

// restart ends all connections, and perhaps all that the server knew. Its
// address stays its own, or another program could have it meanwhile.
func (h *harsh) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.Close()
	}
	h.down = h.rng.IntN(4)
	for id := range h.sessions {
		if !h.keeps {
			h.forget(id)
		}
	}
}

// forget ends a session and its streams. mu is held.
func (h *harsh) forget(id string) {
	delete(h.sessions, id)
	for _, s := range h.streams {
		if strings.HasPrefix(s.name, id+".") && !s.lost {
			s.lost = true
			close(s.more)
		}
	}
}

// stream begins one of a session. mu is held.
func (h *harsh) stream(session string) *told {
	h.last++
	s := &told{name: fmt.Sprintf("%s.%d", session, h.last), more: make(chan struct{})}
	h.streams[s.name] = s
	return s
}

// tell puts a notification, or a request of the server, on a stream.
func (h *harsh) tell(s *told) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.lost || s.over {
		return
	}
	label := fmt.Sprintf("%s:%d", s.name, len(s.labels)+1)
	event := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/x","params":{"label":%q}}`, label)
	if h.rng.IntN(4) == 0 {
		event = fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"ask","params":{"label":%q}}`, "s"+label, label)
	}
	s.labels = append(s.labels, label)
	h.add(s, event)
}

// add is of any event. mu is held.
func (h *harsh) add(s *told, event string) {
	s.events = append(s.events, event)
	close(s.more)
	s.more = make(chan struct{})
}

func (h *harsh) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h.pause(r)
	if h.one(120, "restarts") {
		h.restart()
		cut()
	}
	h.mu.Lock()
	good := r.Header.Get("Authorization") == fmt.Sprint("Bearer t", h.token)
	h.mu.Unlock()
	if good && h.one(40, "tokens refused") {
		h.mu.Lock()
		h.token++
		h.mu.Unlock()
		good = false
	}
	if !good {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Key string }
	}
	if r.Method == http.MethodPost && json.Unmarshal(body, &m) != nil {
		h.t.Errorf("the server got %q", body)
	}
	id := r.Header.Get("Mcp-Session-Id")
	if m.Method == "initialize" {
		h.begin(w, r, m.ID)
		return
	}
	what := m.Params.Key
	if what == "" {
		what = string(m.ID) // of an answer
	}
	if h.one(100, "sessions forgotten") {
		h.mu.Lock()
		h.forget(id)
		h.mu.Unlock()
	}
	h.mu.Lock()
	own := h.sessions[id]
	if own == nil {
		h.refused[what]++
	}
	h.mu.Unlock()
	switch {
	case own == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		h.mu.Lock()
		h.deleted[id] = true
		h.mu.Unlock()
	case r.Method == http.MethodGet:
		h.listen(w, r, own)
	case h.one(30, "refusals"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader([]int{400, 500, 503, 429}[h.number(4)])
		if h.number(2) == 0 {
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"not now"}}`, m.ID)
		}
	default:
		h.mu.Lock()
		h.taken[what]++
		h.mu.Unlock()
		switch {
		case h.one(25, "silences"):
			cut()
		case m.Method == "" || m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			h.answer(w, r, id, m.ID, m.Params.Key)
		}
	}
}

// pause is what an answer takes.
func (h *harsh) pause(r *http.Request) {
	if h.number(3) > 0 {
		return
	}
	select {
	case <-time.After(time.Duration(h.number(3000)) * time.Microsecond):
	case <-r.Context().Done():
	}
}

func (h *harsh) begin(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
	if h.one(10, "handshakes cut") {
		cut()
	}
	h.mu.Lock()
	h.begun++
	name := fmt.Sprint("S", h.begun)
	h.sessions[name] = h.stream(name)
	h.mu.Unlock()
	w.Header().Set("Mcp-Session-Id", name)
	result := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q}}`, id, h.version)
	if h.number(2) == 0 {
		answer(w, result)
		return
	}
	h.mu.Lock()
	s := h.stream(name)
	h.add(s, result)
	s.over = true
	h.mu.Unlock()
	h.speak(w, r, s, 0)
}

// answer acts on a request.
func (h *harsh) answer(w http.ResponseWriter, r *http.Request, session string, id json.RawMessage, key string) {
	h.mu.Lock()
	own := h.sessions[session]
	h.asked = session
	h.mu.Unlock()
	if own != nil && h.number(2) == 0 {
		h.tell(own)
	}
	result := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"key":%q,"text":%q}}`, id, key, strings.Repeat("x", h.number(2000)))
	if h.number(3) == 0 {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(result)))
		if h.one(5, "answers cut") {
			_, _ = io.WriteString(w, result[:h.number(len(result))])
			_ = http.NewResponseController(w).Flush()
			cut()
		}
		_, _ = io.WriteString(w, result)
		return
	}
	h.mu.Lock()
	s := h.stream(session)
	h.mu.Unlock()
	n := h.number(5)
	twice := h.one(10, "answers repeated")
	go func() { // whoever listens
		for range n {
			h.tell(s)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if !s.lost {
			h.add(s, result)
			if twice {
				h.add(s, result)
			}
			if twice && own != nil && !own.lost {
				h.add(own, result)
			}
			s.over = true
		}
	}()
	h.speak(w, r, s, 0)
}

// listen is a request for the server's own stream, or for another to go on.
func (h *harsh) listen(w http.ResponseWriter, r *http.Request, own *told) {
	if h.one(10, "streams refused") {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	from := r.Header.Get("Last-Event-Id")
	if from == "" {
		h.speak(w, r, own, 0)
		return
	}
	name, n, _ := strings.Cut(from, "/")
	at, err := strconv.Atoi(n)
	h.mu.Lock()
	s := h.streams[name]
	h.tally["streams resumed"]++
	h.mu.Unlock()
	if s == nil || err != nil || !h.marks {
		h.t.Errorf("a stream is to go on at %q", from)
		return
	}
	h.speak(w, r, s, at)
}

// speak says the events of a stream, until they are over or it is cut.
func (h *harsh) speak(w http.ResponseWriter, r *http.Request, s *told, from int) {
	room := 1 << 30
	if h.one(3, "streams cut") {
		room = h.number(1500)
	}
	send := events(w)
	say := func(piece string) bool {
		if len(piece) <= room {
			send(piece)
			room -= len(piece)
			return true
		}
		send(piece[:room])
		if h.number(2) == 0 {
			cut()
		}
		return false
	}
	if h.marks && !say(fmt.Sprintf("retry: 1\nid: %s/%d\ndata:\n\n", s.name, from)) {
		return
	}
	for {
		h.mu.Lock()
		if !h.marks {
			from = s.sent
		}
		more, ended := s.more, s.lost || s.over && from == len(s.events)
		event := ""
		if from < len(s.events) && !s.lost {
			event = s.events[from]
			s.sent++
		}
		h.mu.Unlock()
		switch {
		case event != "":
			from++
			if !say(h.written(s, event, from)) {
				return
			}
			h.pause(r)
		case ended:
			return
		default:
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// written is an event in one of the many ways that there are.
func (h *harsh) written(s *told, event string, n int) string {
	text := "data: " + strings.Replace(event, `,"`, ",\ndata:\"", h.number(3)) + "\n\n"
	if h.marks {
		text = fmt.Sprintf("id: %s/%d\n", s.name, n) + text
	}
	if h.number(3) == 0 {
		text = ": so it goes\nevent: message\n" + text
	}
	if h.number(3) == 0 {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}
