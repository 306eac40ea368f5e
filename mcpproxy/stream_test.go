package mcpproxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spendonce/spendonce/mcpproxy"
)

// cut breaks the connection of an answer.
func cut() { panic(http.ErrAbortHandler) }

const data = "data: %s\n\n"

func TestAStreamThatIsCutBeforeTheAnswerGoesOnWhereItWas(t *testing.T) {
	var gets atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case body == initialize:
			w.Header().Set("Mcp-Session-Id", "S1")
			answer(w, welcome("2025-11-25"))
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Method == http.MethodGet:
			send := events(w)
			switch gets.Add(1) {
			case 1: // dies again, after one more
				send("id: e3\n" + fmt.Sprintf(data, `{"method":"notifications/progress","params":3}`))
				cut()
			case 2:
				if got := r.Header.Get("Last-Event-Id"); got != "e3" {
					t.Errorf("the second resumption is from %q", got)
				}
				send("id: e4\n" + fmt.Sprintf(data, `{"id":1,"result":{}}`))
			}
		case strings.Contains(body, `"id":1`):
			send := events(w)
			send("retry: 5\nid: e1\ndata:\n\n")
			send("id: e2\n" + fmt.Sprintf(data, `{"method":"notifications/progress","params":2}`) + "id: e9\ndata: {\"never\":")
			cut()
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`)
	c.want(`{"method":"notifications/progress","params":2}`)
	c.want(`{"method":"notifications/progress","params":3}`)
	c.want(`{"id":1,"result":{}}`)
	first := s.waitFor(t, "a resumption", func(r seen) bool { return r.header.Get("Last-Event-Id") != "" })
	if got := first.header.Get("Last-Event-Id"); got != "e2" || first.header.Get("Mcp-Session-Id") != "S1" {
		t.Errorf("the first resumption is from %q, in session %q", got, first.header.Get("Mcp-Session-Id"))
	}
	if n := strings.Count(strings.Join(s.bodies(), "\n"), `"method":"m"`); n != 1 {
		t.Errorf("the request was sent %d times", n)
	}
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("more came: %q", rest)
	}
}

func TestAStreamThatIsCutAndCannotGoOnIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		first  string // what the stream says before it is cut
		params string
		get    func(w http.ResponseWriter)
	}{
		"no place was marked":        {first: ": hello\n\n"},
		"the server does not resume": {first: "id: 1\ndata:\n\n", get: func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) }},
		"it brings nothing new":      {first: "id: 1\ndata:\n\n", get: func(w http.ResponseWriter) { events(w) }},
		"it stays broken":            {first: "id: 1\ndata:\n\n", get: func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }},
		"the revision has no resumption": {
			first: "id: 1\ndata:\n\n", params: `,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`,
			get: func(http.ResponseWriter) { t.Error("it was resumed") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
				switch {
				case body == initialize:
					answer(w, welcome("2025-11-25"))
				case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "":
					w.WriteHeader(http.StatusMethodNotAllowed)
				case r.Method == http.MethodGet:
					c.get(w)
				case strings.Contains(body, `"id":1`):
					events(w)(c.first)
					cut()
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			})
			client := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Pause: time.Millisecond}})
			client.handshake("2025-11-25")
			client.say(`{"id":1,"method":"m"` + c.params + `}`)
			if got := client.hear(); !strings.Contains(got, `"id":1,"error":{"code":-32000`) || !strings.Contains(got, `"kind":"cut"`) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// B55
func TestTheServersStreamIsResumedAndItsPlaceForgottenWithTheSession(t *testing.T) {
	for status, old := range map[string]bool{"404": false, "400": true} {
		t.Run(status, func(t *testing.T) {
			var gets atomic.Int32
			var f *forgetful
			f = serveForgetful(t, func(w http.ResponseWriter, r *http.Request) {
				n := gets.Add(1)
				send := events(w)
				send(fmt.Sprintf("id: e%d\ndata: {\"method\":\"n%d\",\"params\":%q}\n\n", n, n, r.Header.Get("Mcp-Session-Id")+" from "+r.Header.Get("Last-Event-Id")))
				switch n {
				case 1:
					cut()
				case 2:
					return // a clean end
				case 3:
					f.known.Store(false) // the session goes, and with it the stream
					return
				}
				<-r.Context().Done()
			})
			f.old.Store(old)
			c := connect(t, f.URL, mcpproxy.Config{})
			c.handshake("2025-11-25")
			c.want(`{"method":"n1","params":"S1 from "}`)
			c.want(`{"method":"n2","params":"S1 from e1"}`)
			c.want(`{"method":"n3","params":"S1 from e2"}`)
			c.want(`{"method":"n4","params":"S2 from "}`)
		})
	}
}

func TestTheServersStreamSurvivesErrorsAndIsOpenedOnce(t *testing.T) {
	var gets, open atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case body == initialize:
			answer(w, welcome("2025-11-25"))
		case r.Method == http.MethodGet:
			switch gets.Add(1) {
			case 1:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 2:
				cut()
			default:
				if open.Add(1) > 1 {
					t.Error("there are two streams")
				}
				events(w)(fmt.Sprintf(data, `{"method":"n"}`))
				<-r.Context().Done()
			}
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	c.want(`{"method":"n"}`)
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("more came: %q", rest)
	}
}

func TestWithoutAStreamOfTheServersItIsNotAskedAgain(t *testing.T) {
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusNotFound, http.StatusBadRequest, http.StatusOK} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
			switch {
			case body == initialize:
				w.Header().Set("Mcp-Session-Id", "S1")
				answer(w, welcome("2025-11-25"))
			case r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(status)
			case body == initialized:
				w.WriteHeader(http.StatusAccepted)
			default:
				answer(w, `{"id":1,"result":{}}`)
			}
		})
		c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Pause: time.Millisecond}})
		c.handshake("2025-11-25")
		s.waitFor(t, "a GET", func(r seen) bool { return r.method == http.MethodGet })
		for range 200 {
			c.say(`{"id":1,"method":"m"}`)
			c.want(`{"id":1,"result":{}}`)
		}
		c.end()
		n := 0
		for _, r := range s.got() {
			if r.method == http.MethodGet {
				n++
			}
			if strings.Contains(r.body, "initialize\"") && n > 0 {
				t.Errorf("%d: another session was begun", status)
			}
		}
		if n != 1 {
			t.Errorf("%d: it was asked for %d times", status, n)
		}
	}
}

func TestAStreamThatDoesNotEndAfterItsAnswerIsClosed(t *testing.T) {
	gone := make(chan struct{})
	s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, r *http.Request, _ string) {
		send := events(w)
		send(fmt.Sprintf(data, `{"id":1,"result":{}}`))
		send(fmt.Sprintf(data, `{"method":"late"}`))
		<-r.Context().Done()
		close(gone)
	})
	c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Linger: 10 * time.Millisecond}})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`)
	c.want(`{"id":1,"result":{}}`)
	c.want(`{"method":"late"}`)
	<-gone
}
