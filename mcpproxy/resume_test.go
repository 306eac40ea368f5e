package mcpproxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/mcpproxy"
)

// resumable is a server whose stream for a call begins with the piece first,
// is cut, and goes on as again says, which is told how often it was asked.
func resumable(t *testing.T, first string, again func(w http.ResponseWriter, r *http.Request, n int)) *server {
	var asked atomic.Int32
	return serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case body == initialize:
			answer(w, welcome("2025-11-25"))
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Method == http.MethodGet:
			again(w, r, int(asked.Add(1)))
		case strings.Contains(body, `"id":1`):
			events(w)(first)
			cut()
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
}

// A server may end a stream as often as it likes and have its client ask again.
func TestAServerThatIsPolledIsAskedForAsLongAsItGoesOn(t *testing.T) {
	const polls = 20
	for name, poll := range map[string]func(w http.ResponseWriter, n int){
		"marking a new place each time": func(w http.ResponseWriter, n int) { events(w)(fmt.Sprintf("id: %d\ndata:\n\n", n)) },
		"holding the stream open":       func(w http.ResponseWriter, _ int) { events(w) },
	} {
		t.Run(name, func(t *testing.T) {
			s := resumable(t, "retry: 1\nid: 0\ndata:\n\n", func(w http.ResponseWriter, _ *http.Request, n int) {
				if n < polls {
					poll(w, n)
					return
				}
				events(w)(fmt.Sprintf(data, done))
			})
			limits := mcpproxy.Limits{Pause: time.Millisecond}
			if name == "holding the stream open" {
				limits.Hold = time.Nanosecond
			}
			c := connect(t, s.URL, mcpproxy.Config{Limits: limits})
			c.handshake("2025-11-25")
			c.say(`{"id":1,"method":"m"}`)
			c.want(done)
		})
	}
}

// "Nothing was done" is what an error that asks for a sign-in says.
func TestAResumptionWithoutATokenIsACutAndSaysWhatToDo(t *testing.T) {
	base := &http.Transport{DisableCompression: true}
	t.Cleanup(base.CloseIdleConnections)
	s := resumable(t, "retry: 1\nid: 0\ndata:\n\n", nil)
	c := connect(t, s.URL, mcpproxy.Config{Transport: doer(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Last-Event-Id") != "" {
			return nil, &bearer.ScopeError{Target: "box", Missing: []string{"mcp"}}
		}
		return base.RoundTrip(r)
	})})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"code":-32000`) || !strings.Contains(got, `"kind":"cut"`) || !strings.Contains(got, "spendonce login box --scope mcp") {
		t.Errorf("got %s", got)
	}
}

func TestAPlaceThatNoHeaderCanHoldIsNone(t *testing.T) {
	t.Run("of an answer", func(t *testing.T) {
		s := resumable(t, "id: a\x01b\ndata:\n\n", func(http.ResponseWriter, *http.Request, int) { t.Error("it was resumed") })
		c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Pause: time.Hour}})
		c.handshake("2025-11-25")
		c.say(`{"id":1,"method":"m"}`)
		if got := c.hear(); !strings.Contains(got, `"kind":"cut"`) {
			t.Errorf("got %s", got)
		}
	})
	t.Run("of the server's own stream", func(t *testing.T) {
		var gets atomic.Int32
		s := serveSession(t, "2025-11-25", nil)
		others := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				others.ServeHTTP(w, r)
				return
			}
			events(w)(fmt.Sprintf("id: a\x01b\ndata: {\"method\":\"n%d\"}\n\n", gets.Add(1)))
			if gets.Load() > 1 {
				<-r.Context().Done()
			}
		})
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-11-25")
		c.want(`{"method":"n1"}`)
		c.want(`{"method":"n2"}`)
	})
}

// The stream of an answer may say what is no answer, or to nobody.
func TestWhatEndsARequestIsNotResumed(t *testing.T) {
	s := resumable(t, "id: 0\ndata: {\"id\":null,\"error\":{\"code\":-32700,\"message\":\"what\"}}\n\n", func(http.ResponseWriter, *http.Request, int) { t.Error("it was resumed") })
	c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Pause: time.Hour}})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`)
	c.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"what"}}`)
}
