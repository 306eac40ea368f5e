package mcpproxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/mcpproxy"
)

// serveWithStream is a server of a session "S1" with a stream of its own, which
// says what is sent to say.
func serveWithStream(t *testing.T, version string, say <-chan string, call func(w http.ResponseWriter, r *http.Request, body string)) *server {
	s := serveSession(t, version, call)
	others := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Last-Event-Id") != "" {
			others.ServeHTTP(w, r)
			return
		}
		send := events(w)
		for {
			select {
			case piece := <-say:
				send(piece)
			case <-r.Context().Done():
				return
			}
		}
	})
	return s
}

const done = `{"id":1,"result":{}}`

func TestASecondAnswerIsNotPassedOn(t *testing.T) {
	for name, reply := range map[string]string{
		"as it was":            done,
		"with another meaning": `{"id":1,"error":{"code":-1,"message":"x"}}`,
		"in another spelling":  `{"id":1.0,"result":{}}`,
		"in a batch":           `[` + done + `,{"method":"n"}]`,
	} {
		for _, version := range []string{"2025-03-26", "2025-11-25"} {
			say := make(chan string)
			s := serveWithStream(t, version, say, func(w http.ResponseWriter, _ *http.Request, body string) {
				if strings.Contains(body, `"id":1,`) {
					send := events(w)
					send(fmt.Sprintf(data, done))
					send(fmt.Sprintf(data, reply))
					return
				}
				answer(w, `{"id":2,"result":{}}`)
			})
			c := connect(t, s.URL, mcpproxy.Config{})
			c.handshake(version)
			c.say(`{"id":1,"method":"m"}`)
			c.want(done)
			if name == "in a batch" {
				c.want(`{"method":"n"}`)
			}
			say <- fmt.Sprintf(data, reply) // and on the server's own stream
			say <- fmt.Sprintf(data, `{"method":"end"}`)
			if name == "in a batch" {
				c.want(`{"method":"n"}`)
			}
			c.want(`{"method":"end"}`)
			c.say(`{"id":2,"method":"m"}`)
			c.want(`{"id":2,"result":{}}`)
			if rest := c.end(); len(rest) != 0 {
				t.Errorf("%s: more came: %q", name, rest)
			}
		}
	}
}

func TestAnAnswerThatComesAfterItsErrorIsNotPassedOn(t *testing.T) {
	say := make(chan string)
	s := serveWithStream(t, "2025-11-25", say, func(http.ResponseWriter, *http.Request, string) { cut() })
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"id":1,"error"`) {
		t.Fatalf("got %s", got)
	}
	say <- fmt.Sprintf(data, done)
	say <- fmt.Sprintf(data, `{"method":"end"}`)
	c.want(`{"method":"end"}`)
}

// Some servers answer on whatever stream they have.
func TestAnAnswerOnAnotherStreamIsTheOne(t *testing.T) {
	say := make(chan string)
	hold := make(chan struct{})
	s := serveWithStream(t, "2025-11-25", say, func(w http.ResponseWriter, _ *http.Request, _ string) {
		say <- fmt.Sprintf(data, done)
		<-hold
		events(w)
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`)
	c.want(done)
	close(hold)
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("more came: %q", rest)
	}
}

func TestACancellationOfOneRequestOfABatchLeavesTheOthers(t *testing.T) {
	const batch = `[{"id":1,"method":"a"},{"id":2,"method":"b"}]`
	hold := make(chan struct{})
	s := serveSession(t, "2025-03-26", func(w http.ResponseWriter, r *http.Request, _ string) {
		select {
		case <-hold:
			answer(w, `[{"id":2,"result":{}},{"id":1,"result":{}}]`)
		case <-r.Context().Done():
		}
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-03-26")
	c.say(batch)
	s.waitFor(t, "the batch", func(r seen) bool { return r.body == batch })
	c.say(`{"method":"notifications/cancelled","params":{"requestId":1}}`)
	s.waitFor(t, "the cancellation", func(r seen) bool { return strings.Contains(r.body, "cancelled") })
	close(hold)
	c.want(`{"id":2,"result":{}}`)
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("more came: %q", rest)
	}
}

func TestTheRequestsOfABatchWithAnotherPartThatIsNoneAreRefusedEach(t *testing.T) {
	s := serveSession(t, "2025-03-26", func(http.ResponseWriter, *http.Request, string) { t.Error("something was sent") })
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-03-26")
	c.say(`[{"id":1,"method":"a"},7,{"id":"x","method":"b"}]`)
	for _, id := range []string{"1", `"x"`, "null"} {
		if got := c.hear(); !strings.Contains(got, `"id":`+id+`,"error":{"code":-32600,`) {
			t.Errorf("got %s for %s", got, id)
		}
	}
}

func TestAHandshakeThatIsAnsweredInABatchIsOneAlsoTheSecondTime(t *testing.T) {
	f := serveForgetful(t, nil)
	batched := f.Config.Handler
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorded{ResponseWriter: w}
		batched.ServeHTTP(rec, r)
		body := rec.text.String()
		if strings.Contains(body, "protocolVersion") {
			body = "[" + strings.Replace(body, "2025-11-25", "2025-03-26", 1) + "]"
		}
		_, _ = w.Write([]byte(body))
	})
	c := connect(t, f.URL, mcpproxy.Config{})
	c.handshake("2025-03-26")
	c.say(`{"id":1,"method":"m"}`)
	c.want(done)
	f.known.Store(false)
	c.say(`{"id":2,"method":"m"}`)
	c.want(`{"id":2,"result":{}}`)
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("the client got %q too", rest)
	}
}

// recorded keeps the body of an answer to itself.
type recorded struct {
	http.ResponseWriter
	text strings.Builder
}

func (r *recorded) Write(p []byte) (int, error) { return r.text.Write(p) }

func TestAnAnswerOverTheLimitOnAnOldStreamIsAnError(t *testing.T) {
	o := serveOld(t, "/messages", func(o *oldServer, body string) {
		o.say(fmt.Sprintf(data, `{"id":1,"result":"`+strings.Repeat("x", limit)+`"}`))
	})
	c := connect(t, o.URL+"/sse", mcpproxy.Config{Limits: mcpproxy.Limits{Message: limit}})
	c.handshake("2024-11-05")
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"id":1,"error":{"code":-32003`) {
		t.Errorf("got %.200s", got)
	}
}
