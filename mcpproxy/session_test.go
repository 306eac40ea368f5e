package mcpproxy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spendonce/spendonce/mcpproxy"
)

// forgetful keeps sessions S1, S2, ... and knows only the last, which forget
// makes it forget too. It streams what is sent to say on the newest stream.
type forgetful struct {
	*server
	begun   atomic.Int32
	known   atomic.Bool
	refuses atomic.Bool // every session, from now on, when it is to be of use
	calls   atomic.Int32
	old     atomic.Bool // answers 400, with the words of the official SDKs' first servers
}

func serveForgetful(t *testing.T, stream func(w http.ResponseWriter, r *http.Request)) *forgetful {
	f := &forgetful{}
	f.server = serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		session := r.Header.Get("Mcp-Session-Id")
		init := strings.Contains(body, `"method":"initialize"`)
		call := r.Method == http.MethodPost && !strings.Contains(body, `"method":"notifications/`)
		if !init && (call && f.refuses.Load() || !f.known.Load() || session != fmt.Sprint("S", f.begun.Load())) {
			if f.old.Load() {
				w.WriteHeader(http.StatusBadRequest)
				answer(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`)
				return
			}
			w.WriteHeader(http.StatusNotFound)
			answer(w, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`)
			return
		}
		switch {
		case init:
			f.known.Store(true)
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("S", f.begun.Add(1)))
			answer(w, welcome("2025-11-25"))
		case r.Method == http.MethodGet && stream != nil:
			stream(w, r)
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case strings.Contains(body, `"method":"notifications/`):
			w.WriteHeader(http.StatusAccepted)
		default:
			f.calls.Add(1)
			id, _, _ := strings.Cut(strings.TrimPrefix(body, `{"id":`), ",")
			answer(w, `{"id":`+id+`,"result":{}}`)
		}
	})
	return f
}

// bodies are the POSTs so far, without responses.
func (s *server) bodies() (all []string) {
	for _, r := range s.got() {
		if r.method == http.MethodPost {
			all = append(all, r.body)
		}
	}
	return all
}

// B48
func TestAForgottenSessionIsBegunAgainOnceAndTheRequestRepeated(t *testing.T) {
	for status, old := range map[string]bool{"404": false, "400": true} {
		t.Run(status, func(t *testing.T) {
			f := serveForgetful(t, nil)
			f.old.Store(old)
			c := connect(t, f.URL, mcpproxy.Config{})
			c.handshake("2025-11-25")
			c.say(`{"id":1,"method":"m"}`)
			c.want(`{"id":1,"result":{}}`)
			f.known.Store(false)
			c.say(`{"id":2,"method":"m"}`)
			c.want(`{"id":2,"result":{}}`)
			if rest := c.end(); len(rest) != 0 {
				t.Errorf("the client got %q too", rest)
			}
			want := []string{initialize, initialized, `{"id":1,"method":"m"}`, `{"id":2,"method":"m"}`, initialize, initialized, `{"id":2,"method":"m"}`}
			if got := f.bodies(); !slices.Equal(got, want) {
				t.Errorf("the server got %q", got)
			}
		})
	}
}

func TestManyRequestsInAForgottenSessionBeginOneNew(t *testing.T) {
	const n = 50
	f := serveForgetful(t, nil)
	c := connect(t, f.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	f.known.Store(false)
	for i := range n {
		c.say(fmt.Sprintf(`{"id":%d,"method":"m"}`, i+1))
	}
	got := map[string]bool{}
	for range n {
		got[c.hear()] = true
	}
	for i := range n {
		if !got[fmt.Sprintf(`{"id":%d,"result":{}}`, i+1)] {
			t.Errorf("request %d has no answer", i+1)
		}
	}
	if begun, calls := f.begun.Load(), f.calls.Load(); begun != 2 || calls != n {
		t.Errorf("%d sessions were begun, %d calls served", begun, calls)
	}
}

func TestASessionThatIsForgottenAtOnceIsAnErrorAndNoLoop(t *testing.T) {
	f := serveForgetful(t, nil)
	c := connect(t, f.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	f.waitFor(t, "the stream", func(r seen) bool { return r.method == http.MethodGet })
	f.refuses.Store(true)
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"id":1,"error":{"code":-32000`) || !strings.Contains(got, "in its place too") {
		t.Errorf("got %s", got)
	}
	if n := f.begun.Load(); n != 2 {
		t.Errorf("%d sessions were begun", n)
	}
}

// What is no 404 is the server's last word.
func TestOtherRefusalsAreShownAndNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		kind, body string
		want       string
	}{
		"400 with an error":                  {400, "application/json", `{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"no session"}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"no session"}}`},
		"400 with an error about sessions":   {400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: no session of parliament"}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"Bad Request: no session of parliament"}}`},
		"400 with an error to nobody":        {400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x", "data":1.0}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"x", "data":1.0}}`},
		"400 with an error to somebody else": {400, "application/json", `{"jsonrpc":"2.0","id":"server-error","error":{"code":-1,"message":"x"}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"x"}}`},
		"200 with an error":                  {200, "application/json", `{"jsonrpc":"2.0","id":5,"error":{"code":-32001,"message":"Session expired"}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-32001,"message":"Session expired"}}`},
		"200 with an error to nobody":        {200, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what"}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":-32700,"message":"what"}}`},
		"400 with HTML":                      {400, "text/html", "<html>", `"kind":"status","status":400`},
		"500":                                {500, "text/plain", "secret", `500 Internal Server Error","data":{"source":"spendonce","kind":"status","status":500}`},
		"503 and when":                       {503, "text/plain", "", "try again after 7 seconds"},
		"403":                                {403, "text/plain", "", `"status":403`},
		"200 with HTML":                      {200, "text/html; charset=utf-8", "<html>", "with text/html, which is neither JSON nor an event stream"},
		"200 without a type":                 {200, "", "{}", "content_type"},
		"202":                                {202, "", "", `"kind":"status","status":202`},
		"204":                                {204, "", "", `"kind":"status","status":204`},
		"JSON that is none":                  {200, "application/json", `{"id":5,"result":`, "not_json"},
		"JSON of another service":            {200, "application/json", `{"account":"alice","method":"POST"}`, "not_json"},
		"a body of nothing":                  {200, "application/json", ``, "not_json"},
		"another's answer":                   {200, "application/json", `{"id":6,"result":1}`, `"id":5,"error":{"code":-32000`},
		"the id as text":                     {200, "application/json", `{"id":"5","result":1}`, `{"id":"5","result":1}`},
		"an empty stream":                    {200, "text/event-stream", "", `"kind":"cut"`},
		"an unknown compression":             {200, "br", "", `"kind":"encoding"`},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) {
				calls.Add(1)
				w.Header()["Content-Type"] = []string{c.kind}
				if c.kind == "br" {
					w.Header().Set("Content-Encoding", "br")
				}
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			client := connect(t, s.URL, mcpproxy.Config{})
			client.handshake("2025-11-25")
			client.say(`{"jsonrpc":"2.0","id":5,"method":"m"}`)
			got := client.hear()
			if !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
				t.Errorf("got %s", got)
			}
			if rest := client.end(); len(rest) != 0 {
				t.Errorf("more came: %q", rest)
			}
			if calls.Load() != 1 {
				t.Errorf("the request was sent %d times", calls.Load())
			}
		})
	}
}

func TestAServerThatDoesNotKnowADiscoveryRefusesItInJSONRPC(t *testing.T) {
	const discover = `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		http.Error(w, "Bad Request: no session", http.StatusBadRequest)
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.say(discover)
	if got := c.hear(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"d","error":{"code":-32000,"message":"the server answered 400 Bad Request"`) {
		t.Errorf("got %s", got)
	}
	if got := s.got(); len(got) != 1 || got[0].method != http.MethodPost {
		t.Errorf("the server got %v", got)
	}
}

func TestAMessageThatNamesItsRevisionSaysSoInItsHeaders(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	for body, want := range map[string]string{
		`{"id":1,"method":"tools/list","params":{` + meta + `}}`:                                 "2026-07-28 tools/list ",
		`{"id":1,"method":"tools/call","params":{"name":"get_weather",` + meta + `}}`:            "2026-07-28 tools/call get_weather",
		`{"id":1,"params":{` + meta + `,"name":" Grüße"},"method":"prompts/get"}`:                "2026-07-28 prompts/get =?base64?IEdyw7zDn2U=?=",
		`{"id":1,"method":"resources/read","params":{"uri":"file:///a b",` + meta + `}}`:         "2026-07-28 resources/read file:///a b",
		`{"id":1,"method":"tools/call","params":{"name":" padded ",` + meta + `}}`:               "2026-07-28 tools/call =?base64?IHBhZGRlZCA=?=",
		`{"id":1,"method":"tools/call","params":{"name":"=?base64?literal?=",` + meta + `}}`:     "2026-07-28 tools/call =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		`{"id":1,"method":"tools/call","params":{"name":"x\r\nEvil: 1",` + meta + `}}`:           "2026-07-28 tools/call =?base64?eA0KRXZpbDogMQ==?=",
		`{"id":1,"method":"tools/call","params":{"name":"x","arguments":{"_meta":"elsewhere"}}}`: "2025-11-25  ",
	} {
		s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, r *http.Request, _ string) {
			if strings.Contains(r.Header.Get("Mcp-Protocol-Version"), "2026") && r.Header.Get("Mcp-Session-Id") != "" {
				t.Error("a message without sessions names one")
			}
			answer(w, `{"id":1,"result":{}}`)
		})
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-11-25")
		c.say(body)
		c.want(`{"id":1,"result":{}}`)
		r := s.waitFor(t, "it", func(r seen) bool { return r.body == body })
		if got := r.header.Get("Mcp-Protocol-Version") + " " + r.header.Get("Mcp-Method") + " " + r.header.Get("Mcp-Name"); got != want {
			t.Errorf("%s has the headers %q", body, got)
		}
		c.end()
	}
}

func TestTheHandshakeIsOverBeforeAnythingElseIsSent(t *testing.T) {
	var mu sync.Mutex
	var order []string
	var early atomic.Bool
	hold := make(chan struct{})
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case body == initialize:
			<-hold
			note("initialize answered")
			answer(w, welcome("2025-11-25"))
		case body == initialized:
			early.Store(true)
			note("initialized")
			w.WriteHeader(http.StatusAccepted)
		default:
			note("request")
			answer(w, `{"id":1,"result":{}}`)
		}
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.say(initialize, initialized, `{"id":1,"method":"m"}`)
	close(hold)
	c.want(welcome("2025-11-25"))
	c.want(`{"id":1,"result":{}}`)
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(order, ", "); got != "initialize answered, initialized, request" {
		t.Errorf("the server saw: %s", got)
	}
}

func TestNotificationsAndResponsesKeepTheirOrder(t *testing.T) {
	const n = 100
	s := serveSession(t, "2025-11-25", nil)
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	want := []string{initialize, initialized}
	for i := range n {
		m := fmt.Sprintf(`{"method":"notifications/progress","params":{"progress":%d}}`, i)
		c.say(m)
		want = append(want, m)
	}
	c.end()
	if got := s.bodies(); !slices.Equal(got, want) {
		t.Errorf("the server got %q", got)
	}
}
