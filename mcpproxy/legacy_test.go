package mcpproxy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/mcpproxy"
)

// oldServer is one of revision 2024-11-05: a stream at /sse, and a place for
// messages that is named there.
type oldServer struct {
	*server
	mu      sync.Mutex
	send    func(string)
	cut     chan struct{}
	streams int
}

func serveOld(t *testing.T, endpoint string, call func(o *oldServer, body string)) *oldServer {
	o := &oldServer{cut: make(chan struct{})}
	o.server = serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/sse":
			send := events(w)
			o.mu.Lock()
			o.streams++
			n, cut := o.streams, o.cut
			o.send = send
			send(strings.ReplaceAll("event: endpoint\ndata: "+endpoint+"\n\n", "N", fmt.Sprint(n)))
			o.mu.Unlock()
			select {
			case <-cut:
			case <-r.Context().Done():
			}
			o.mu.Lock() // nothing may be written when this handler has returned
			if o.streams == n {
				o.send = func(string) {}
			}
			o.mu.Unlock()
		case r.Method == http.MethodPost && r.URL.Path == "/messages":
			w.WriteHeader(http.StatusAccepted)
			switch {
			case body == initialize:
				o.say(fmt.Sprintf(data, welcome("2024-11-05")))
			case !strings.Contains(body, "notifications/"):
				call(o, body)
			}
		default:
			http.Error(w, "Cannot POST /sse", http.StatusNotFound)
		}
	})
	return o
}

func (o *oldServer) say(piece string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.send(piece)
}

// break cuts the stream.
func (o *oldServer) breakOff() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.cut)
	o.cut = make(chan struct{})
}

func TestAServerWithTheOldTransportIsSpokenToAsItWants(t *testing.T) {
	for _, wire := range []mcpproxy.Wire{mcpproxy.AnyWire, mcpproxy.HTTPWithSSE} {
		o := serveOld(t, "messages?sessionId=secret-N", func(o *oldServer, body string) {
			switch {
			case strings.Contains(body, `"m"`):
				o.say(fmt.Sprintf(data, `{"id":"s","method":"sampling/createMessage"}`))
			case strings.Contains(body, `"id":"s"`):
				o.say("event: message\n" + fmt.Sprintf(data, `{"id":1.0,"result":{}}`))
			}
		})
		c := connect(t, o.URL+"/sse", mcpproxy.Config{Wire: wire})
		c.handshake("2024-11-05")
		c.say(`{"id":1,"method":"m"}`)
		c.want(`{"id":"s","method":"sampling/createMessage"}`)
		c.say(`{"id":"s","result":{}}`)
		c.want(`{"id":1.0,"result":{}}`)
		if rest := c.end(); len(rest) != 0 {
			t.Errorf("more came: %q", rest)
		}
		want := []string{initialize, initialize, initialized, `{"id":1,"method":"m"}`, `{"id":"s","result":{}}`}
		if wire == mcpproxy.HTTPWithSSE {
			want = want[1:]
		}
		if got := o.bodies(); !slices.Equal(got, want) {
			t.Errorf("the server got %q", got)
		}
		if strings.Contains(c.log.String(), "secret-") {
			t.Error("the name of the session is in the log")
		}
	}
}

func TestAnOldStreamThatBreaksIsAnErrorForWhoWaitsAndIsOpenedAgain(t *testing.T) {
	o := serveOld(t, "/messages?n=N", func(o *oldServer, body string) {
		if strings.Contains(body, `"id":1,`) {
			o.breakOff()
			return
		}
		o.say(fmt.Sprintf(data, `{"id":2,"result":{}}`))
	})
	c := connect(t, o.URL+"/sse", mcpproxy.Config{})
	c.handshake("2024-11-05")
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"id":1,"error":{"code":-32000`) || !strings.Contains(got, `"kind":"cut"`) {
		t.Errorf("got %s", got)
	}
	c.say(`{"id":2,"method":"m"}`)
	c.want(`{"id":2,"result":{}}`)
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("more came: %q", rest)
	}
	want := []string{initialize, initialize, initialized, `{"id":1,"method":"m"}`, initialize, initialized, `{"id":2,"method":"m"}`}
	if got := o.bodies(); !slices.Equal(got, want) {
		t.Errorf("the server got %q", got)
	}
}

func TestAnEndpointElsewhereGetsNothing(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request, string) {})
	for _, endpoint := range []string{elsewhere.URL + "/messages", "//evil.example/messages", "http://user@127.0.0.1/", "https://[::1", "file:///etc/passwd", "http://example.com/messages"} {
		for _, wire := range []mcpproxy.Wire{mcpproxy.AnyWire, mcpproxy.HTTPWithSSE} {
			o := serveOld(t, endpoint, nil)
			c := connect(t, o.URL+"/sse", mcpproxy.Config{Wire: wire})
			c.say(initialize)
			want := `"kind":"elsewhere"`
			if strings.Contains(endpoint, "[") {
				want = "is no URL"
			}
			if got := c.hear(); !strings.Contains(got, `"id":0,"error":{"code":-32000`) || !strings.Contains(got, want) {
				t.Errorf("%s gives %s", endpoint, got)
			}
			c.end()
		}
	}
	if n := len(elsewhere.got()); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

func TestWhatIsNoOldServerEither(t *testing.T) {
	for name, handle := range map[string]func(w http.ResponseWriter, r *http.Request){
		"no stream":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"a page":          func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"another stream":  func(w http.ResponseWriter, _ *http.Request) { events(w)("data: {}\n\n") },
		"an empty stream": func(w http.ResponseWriter, _ *http.Request) { events(w) },
		"a stream that says nothing": func(w http.ResponseWriter, r *http.Request) {
			events(w)
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request, _ string) {
				if r.Method == http.MethodPost {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				handle(w, r)
			})
			c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Open: 50 * time.Millisecond}})
			c.say(initialize)
			if got := c.hear(); !strings.Contains(got, `"id":0,"error":{"code":-32000`) || !strings.Contains(got, `"status":404`) {
				t.Errorf("got %s", got)
			}
			c.say(initialize) // a client may try again
			c.hear()
			if rest := c.end(); len(rest) != 0 {
				t.Errorf("more came: %q", rest)
			}
		})
	}
}

// A newer server that refuses a handshake says so; it is not asked for the
// old transport.
func TestANewerServersRefusalIsNotTakenForAnOldServer(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"]}}}`))
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.say(initialize)
	c.want(`{"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"]}}}`)
	c.end()
	if got := s.got(); len(got) != 1 {
		t.Errorf("the server got %d requests", len(got))
	}
}
