package spendoncetest

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// request is what a handler needs of an HTTP request, read in full before
// anything is decided: only then can net/http see a client go away.
type request struct {
	r        *http.Request
	endpoint Endpoint
	body     []byte
	params   url.Values // of the form, the JSON body or the query
	bad      string     // why the body could not be read as the endpoint's kind
	cfg      TokenServerConfig
	answer   Answer
	scripted bool
	entry    *LogEntry
}

func (q *request) isToken() bool {
	return q.r.Method == http.MethodPost && (q.endpoint == OAuth2Endpoint || q.endpoint == HypawareEndpoint)
}

// bearer is the access token of the Authorization header.
func (q *request) bearer() string {
	scheme, token, _ := strings.Cut(q.r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// response is an answer before it is written: JSON members, or a body.
type response struct {
	status      int
	header      http.Header
	members     map[string]any
	body        string
	contentType string
	outcome     string
}

func jsonResponse(status int, members map[string]any) *response {
	return &response{status: status, members: members, outcome: "ok"}
}

func oauthError(status int, code, description string) *response {
	return &response{status: status, outcome: code,
		members: map[string]any{"error": code, "error_description": description}}
}

const maxBody = 1 << 20

// handle wraps the life of a request around process: count, log, script,
// gates, latency. process runs under no lock.
func (s *TokenServer) handle(endpoint Endpoint, process func(*request) *response) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &request{r: r, endpoint: endpoint}
		if !s.enter() {
			panic(http.ErrAbortHandler)
		}
		defer s.leave()
		q.read(w)
		s.receive(q)
		if !s.run(w, q, process) {
			// Returning would make net/http answer 200.
			panic(http.ErrAbortHandler)
		}
	}
}

// run takes the request from receipt to its answer, and reports whether the
// connection has been dealt with.
func (s *TokenServer) run(w http.ResponseWriter, q *request, process func(*request) *response) bool {
	a := q.answer
	var before, after time.Duration
	if q.isToken() {
		before, after = q.cfg.LatencyBefore, q.cfg.Latency
	}
	if !s.stand(q, Before, before) {
		s.settle(q, 0, "abandoned", func(c *Counters) { c.Abandoned++ })
		return false
	}
	if a.Drop == Before {
		s.wait(q, a.Delay)
		s.settle(q, 0, "dropped", nil)
		s.drop(w, a.Reset)
		return true
	}
	var resp *response
	if a.processes() {
		resp = process(q)
	}
	if a.replaces() {
		resp = a.response(q)
	}
	if resp != nil {
		a.patch(q, resp)
	}
	lost := func(c *Counters) { c.AnswersLost++ }
	if !s.stand(q, After, after+a.Delay) {
		s.settle(q, 0, "lost", lost)
		return false
	}
	switch {
	case a.Drop == After:
		s.settle(q, 0, "dropped", lost)
		s.drop(w, a.Reset)
		return true
	case a.Hang && (!a.Truncate || resp == nil):
		s.settle(q, 0, "hung", nil)
		s.wait(q, -1)
		return false
	}
	s.settle(q, resp.status, resp.outcome, nil)
	s.write(w, q, resp)
	return true
}

// settle notes what becomes of the request, before its client can know.
func (s *TokenServer) settle(q *request, status int, outcome string, count func(*Counters)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.entry.Status, q.entry.Outcome = status, outcome
	if count != nil {
		s.update(count)
	}
}

// enter counts the request as being served, unless the server is closed:
// Close waits for all those that have entered.
func (s *TokenServer) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.update(func(c *Counters) { c.Requests++; c.InFlight++ })
	return true
}

func (s *TokenServer) leave() { s.tally(func(c *Counters) { c.InFlight-- }) }

// tally is update for those who do not hold mu.
func (s *TokenServer) tally(change func(*Counters)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(change)
}

// receive counts and logs the request and hands it its scripted answer.
func (s *TokenServer) receive(q *request) {
	shown := q.params.Get("refresh_token")
	if shown == "" {
		shown = q.params.Get("token")
	}
	if shown == "" {
		shown = q.bearer()
	}
	q.entry = &LogEntry{Time: time.Now(), Method: q.r.Method, Path: clip(q.r.URL.Path, 200),
		Token: secret.New(shown).Fingerprint()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.add(q.entry)
	q.cfg = s.cfg
	q.answer, q.scripted = s.takeAnswer(q.endpoint, q.r.URL.Path, q.params)
	s.update(func(c *Counters) {
		if q.scripted {
			c.ScriptedAnswers++
		}
		switch {
		case q.isToken():
			c.TokenPosts++
		case q.endpoint == ResourceEndpoint:
			c.ResourceRequests++
		case q.endpoint == DiscoveryEndpoint:
			c.DiscoveryRequests++
		}
	})
}

// read takes in the whole body and its parameters.
func (q *request) read(w http.ResponseWriter) {
	q.params = url.Values{}
	body, err := io.ReadAll(http.MaxBytesReader(w, q.r.Body, maxBody))
	q.body = body
	if err != nil {
		q.bad = "the body could not be read"
		return
	}
	if q.r.Method == http.MethodGet || q.r.Method == http.MethodHead {
		if q.params, err = url.ParseQuery(q.r.URL.RawQuery); err != nil {
			q.bad = "the query is malformed"
		}
		return
	}
	kind, _, _ := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		if q.params, err = url.ParseQuery(string(body)); err != nil {
			q.bad = "the form is malformed"
		}
	case "application/json":
		var members map[string]any
		if err := json.Unmarshal(body, &members); err != nil {
			q.bad = "the body is not a JSON object"
		}
		for name, v := range members {
			if text, ok := v.(string); ok {
				q.params.Set(name, text)
			}
		}
	default:
		q.bad = "the content type is neither a form nor JSON"
	}
}

func clip(text string, n int) string {
	if len(text) > n {
		return text[:n]
	}
	return text
}
