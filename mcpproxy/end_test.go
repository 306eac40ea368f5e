package mcpproxy_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spendonce/spendonce/mcpproxy"
)

func TestTheEndOfTheInputEndsEverything(t *testing.T) {
	s := serveSession(t, "2025-11-25", nil)
	for name, in := range map[string]string{"nothing": "", "white space": " \n\r\n", "a handshake": initialize + "\n" + initialized + "\n", "half a message": `{"jsonrpc":"2.0","id"`} {
		p, err := mcpproxy.New(mcpproxy.Config{URL: s.URL, Transport: &http.Transport{DisableKeepAlives: true}})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := p.Run(t.Context(), strings.NewReader(in), &out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		switch got := out.String(); {
		case name == "half a message" && !strings.Contains(got, `"id":null,"error":{"code":-32700,`),
			name == "a handshake" && got != welcome("2025-11-25")+"\n",
			name != "half a message" && name != "a handshake" && got != "":
			t.Errorf("%s gives %q", name, got)
		}
	}
}

func TestALastLineNeedNotEnd(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, `{"id":1,"result":{}}`) })
	p, err := mcpproxy.New(mcpproxy.Config{URL: s.URL, Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := p.Run(t.Context(), strings.NewReader(`{"id":1,"method":"m"}`), &out); err != nil || out.String() != `{"id":1,"result":{}}`+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// What hangs holds nobody up for longer than the grace.
func TestTheEndIsSoonWhateverHangs(t *testing.T) {
	settled := atomic.Bool{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case body == initialize:
			w.Header().Set("Mcp-Session-Id", "S1")
			answer(w, welcome("2025-11-25"))
		case r.Method == http.MethodDelete && !settled.Load():
			t.Error("the session was ended before an exchange was")
		default:
			<-r.Context().Done()
		}
	})
	for _, how := range []string{"the input ends", "it is told to"} {
		settled.Store(false)
		c := connect(t, s.URL, mcpproxy.Config{
			Limits: mcpproxy.Limits{Grace: time.Millisecond, Leave: 10 * time.Millisecond, Notify: time.Hour},
			Settle: func() { settled.Store(true) },
		})
		c.say(initialize)
		c.want(welcome("2025-11-25"))
		c.say(initialized, `{"id":1,"method":"m"}`, `{"method":"notifications/x"}`)
		if how == "it is told to" {
			c.stop()
			if err := <-c.ended; err != nil {
				t.Error(err)
			}
		} else if rest := c.end(); len(rest) != 0 {
			t.Errorf("more came: %q", rest)
		}
		if !settled.Load() {
			t.Error("nobody waited for an exchange")
		}
	}
}

// An answer that is under way when the client has said all comes still.
func TestAnAnswerComesWithinTheGrace(t *testing.T) {
	hold := make(chan struct{})
	s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) {
		<-hold
		answer(w, `{"id":1,"result":{}}`)
	})
	c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Grace: time.Minute}})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`)
	s.waitFor(t, "the request", func(r seen) bool { return strings.Contains(r.body, `"m"`) })
	_ = c.in.Close()
	close(hold)
	if rest := c.end(); len(rest) != 1 || rest[0] != `{"id":1,"result":{}}` {
		t.Errorf("got %q", rest)
	}
	s.waitFor(t, "the end of the session", func(r seen) bool { return r.method == http.MethodDelete })
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAClientThatDoesNotReadAnyMoreEndsTheProxy(t *testing.T) {
	s := serveSession(t, "2025-11-25", nil)
	p, err := mcpproxy.New(mcpproxy.Config{URL: s.URL, Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	in, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, initialize+"\n") }()
	defer in.Close()
	if err := p.Run(t.Context(), in, brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the error is %v", err)
	}
	s.waitFor(t, "the end of the session", func(r seen) bool { return r.method == http.MethodDelete })
}

// stuckPipe blocks who writes, until the test ends.
type stuckPipe struct{ ctx context.Context }

func (s stuckPipe) Write([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func TestAClientThatIsStuckDoesNotHoldUpTheEnd(t *testing.T) {
	ctx, release := context.WithCancel(context.Background())
	defer release()
	s := serveSession(t, "2025-11-25", nil)
	p, err := mcpproxy.New(mcpproxy.Config{URL: s.URL, Transport: &http.Transport{DisableKeepAlives: true}, Limits: mcpproxy.Limits{Grace: time.Millisecond, Leave: 100 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context(), strings.NewReader(initialize+"\n"+initialized+"\n"), stuckPipe{ctx}); err != nil {
		t.Error(err)
	}
}

// What the client has left in the pipe cannot be read, so its end is not seen.
func TestAClientThatGoesWhileNothingCanBeTakenIsNoticed(t *testing.T) {
	for name, last := range map[string]string{
		"by the size of what waits":   `{"id":2,"method":"m","params":"` + strings.Repeat("x", limit-100) + `"}`,
		"by the number of what waits": `{"method":"notifications/x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
				switch {
				case body == initialize:
					w.Header().Set("Mcp-Session-Id", "S1")
					answer(w, welcome("2025-11-25"))
				case r.Method == http.MethodDelete, body == initialized:
				default:
					<-r.Context().Done()
				}
			})
			var gone atomic.Bool
			looked := make(chan struct{}, 1)
			c := connect(t, s.URL, mcpproxy.Config{
				Limits: mcpproxy.Limits{Message: limit, Grace: time.Millisecond, Notify: time.Hour},
				Gone: func() bool {
					select {
					case looked <- struct{}{}:
					default:
					}
					return gone.Load()
				},
			})
			c.handshake("2025-11-25")
			go func() {
				for {
					if _, err := io.WriteString(c.in, last+"\n"); err != nil {
						return
					}
				}
			}()
			<-looked // it is stuck
			select {
			case err := <-c.ended:
				t.Fatalf("it ended while its client was there: %v", err)
			default:
			}
			gone.Store(true)
			select {
			case err := <-c.ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Fatal("the proxy does not end")
			}
			s.waitFor(t, "the end of the session", func(r seen) bool { return r.method == http.MethodDelete })
		})
	}
}
