package mcpproxy_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spendonce/spendonce/mcpproxy"
)

func TestLongMessagesPassBothWays(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} {
		for _, size := range []int{1 << 20, 20 << 20} {
			t.Run(fmt.Sprint(size>>20, " MiB by ", kind), func(t *testing.T) {
				text := strings.Repeat("0123456789abcdef", size/16)
				want := `{"id":1,"result":"` + text + `"}`
				s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, body string) {
					if body != `{"id":1,"method":"m","params":["`+text+`"]}` {
						t.Errorf("the server got %d bytes", len(body))
					}
					if kind == "application/json" {
						answer(w, want)
						return
					}
					events(w)(fmt.Sprintf(data, want))
				})
				c := connect(t, s.URL, mcpproxy.Config{})
				c.handshake("2025-11-25")
				c.say(`{"id":1,"method":"m","params":["` + text + `"]}`)
				if got := c.hear(); got != want {
					t.Errorf("%d bytes came, %.60s", len(got), got)
				}
			})
		}
	}
}

func TestMemoryMayBeGivenBackAfterALongMessageOfEitherSideAndAfterNoOther(t *testing.T) {
	const long = 1<<20 + 1
	for name, size := range map[string]struct{ asked, answered int }{"a request": {long, 1}, "an answer": {1, long}, "neither": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) {
				answer(w, `{"id":1,"result":"`+strings.Repeat("x", size.answered)+`"}`)
			})
			trimmed := make(chan struct{}, 10)
			c := connect(t, s.URL, mcpproxy.Config{
				Trim: func() { trimmed <- struct{}{} }, Limits: mcpproxy.Limits{Trim: time.Millisecond},
			})
			c.handshake("2025-11-25")
			c.say(`{"id":1,"method":"m","params":["` + strings.Repeat("x", size.asked) + `"]}`)
			c.hear()
			if name != "neither" {
				<-trimmed
			}
			c.end()
			if n := len(trimmed); name == "neither" && n > 0 {
				t.Errorf("%d times", n)
			}
		})
	}
}

const limit = 100_000

func TestAMessageOverTheLimitIsAnErrorAndTheStreamGoesOn(t *testing.T) {
	long := strings.Repeat("x\\\"{[,", limit/5)
	for name, c := range map[string]struct{ say, want string }{
		"id first":        {`{"id":5,"method":"m","params":{"id":9,"t":"` + long + `"}}`, `"id":5,`},
		"id last":         {`{"params":{"id":9,"t":"` + long + `"},"method":"m","id":"five" }`, `"id":"five",`},
		"id in the midst": {`{"params":[{"id":9}],"id" : 5.0,"t":"` + long + `","method":"m"}`, `"id":5.0,`},
		"no JSON":         {long, `"id":null,`},
		"no usable id":    {`{"id":{"a":1},"method":"m","t":"` + long + `"}`, `"id":null,`},
		"a response":      {`{"id":1,"result":"` + long + `"}`, ""},
		"a notification":  {`{"method":"n","params":"` + long + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, `{"id":6,"result":{}}`) })
			client := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Message: limit}})
			client.handshake("2025-11-25")
			client.say(c.say)
			if c.want != "" {
				if got := client.hear(); !strings.Contains(got, c.want+`"error":{"code":-32003,`) {
					t.Errorf("got %.200s", got)
				}
			}
			client.say(`{"id":6,"method":"m"}`)
			client.want(`{"id":6,"result":{}}`)
			for _, r := range s.got() {
				if len(r.body) > 1000 {
					t.Error("the long one was sent")
				}
			}
		})
	}
}

func TestAnAnswerOverTheLimitIsAnErrorAndTheStreamGoesOn(t *testing.T) {
	long := strings.Repeat("y", limit)
	t.Run("as JSON", func(t *testing.T) {
		s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, `{"id":5,"result":"`+long+`"}`) })
		c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Message: limit}})
		c.handshake("2025-11-25")
		c.say(`{"id":5,"method":"m"}`)
		if got := c.hear(); !strings.Contains(got, `"id":5,"error":{"code":-32003,`) {
			t.Errorf("got %.200s", got)
		}
	})
	t.Run("as an event", func(t *testing.T) {
		s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, body string) {
			if strings.Contains(body, `"id":77`) {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			send := events(w)
			send("data: {\"method\":\"n\",\ndata:\"params\":\"" + long + "\"}\n\n") // lost
			send(fmt.Sprintf(data, `{"params":"`+long+`","method":"sampling/createMessage","id":77}`))
			send(fmt.Sprintf(data, `{"id":5,"result":"`+long+`"}`))
			send(fmt.Sprintf(data, `{"method":"after"}`))
		})
		c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Message: limit}})
		c.handshake("2025-11-25")
		c.say(`{"id":5,"method":"m"}`)
		if got := c.hear(); !strings.Contains(got, `"id":5,"error":{"code":-32003,`) {
			t.Errorf("got %.200s", got)
		}
		c.want(`{"method":"after"}`)
		r := s.waitFor(t, "an answer to its request", func(r seen) bool { return strings.Contains(r.body, `"id":77`) })
		if !strings.Contains(r.body, `"error":{"code":-32003`) {
			t.Errorf("the server was told %s", r.body)
		}
	})
}

func TestAnEventWithoutEndIsGivenUp(t *testing.T) {
	for name, begin := range map[string]string{"data": "data: ", "a comment": ":", "another field": "event: ", "lines": ""} {
		t.Run(name, func(t *testing.T) {
			s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, r *http.Request, _ string) {
				send := events(w)
				send(begin)
				piece := strings.Repeat("z", limit)
				if name == "lines" {
					piece = "data: " + piece + "\n"
				}
				for r.Context().Err() == nil {
					send(piece)
				}
			})
			c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Message: limit}})
			c.handshake("2025-11-25")
			c.say(`{"id":5,"method":"m"}`)
			if got := c.hear(); !strings.Contains(got, `"id":5,"error":{"code":-32000,`) || !strings.Contains(got, "does not end") {
				t.Errorf("got %.200s", got)
			}
		})
	}
}

func TestACompressedAnswerIsReadAndABombIsNot(t *testing.T) {
	zipped := func(text io.Reader) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.Copy(z, text)
		_ = z.Close()
		return b.Bytes()
	}
	bomb := zipped(io.MultiReader(strings.NewReader(`{"id":5,"result":"`), io.LimitReader(zeros{}, 40<<20)))
	for name, c := range map[string]struct {
		body []byte
		kind string
		want string
	}{
		"JSON":         {zipped(strings.NewReader(`{"id":5,"result":1.0}`)), "application/json", `{"id":5,"result":1.0}`},
		"events":       {zipped(strings.NewReader("data: {\"id\":5,\"result\":1.0}\n\n")), "text/event-stream", `{"id":5,"result":1.0}`},
		"a bomb":       {bomb, "application/json", `"id":5,"error":{"code":-32003`},
		"not zipped":   {[]byte("hello"), "application/json", `"kind":"cut"`},
		"a cut stream": {bomb[:1000], "application/json", `"kind":"cut"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, r *http.Request, _ string) {
				if got := r.Header.Get("Accept-Encoding"); got != "identity" {
					t.Errorf("the server is asked for %q", got)
				}
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(c.body)
			})
			client := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Message: 2 << 20}})
			client.handshake("2025-11-25")
			client.say(`{"id":5,"method":"m"}`)
			if got := client.hear(); !strings.Contains(got, c.want) {
				t.Errorf("got %.300s", got)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestAThousandRequestsAreUnderWayAtOnce(t *testing.T) {
	const n = 1000
	var mu sync.Mutex
	here, all := 0, make(chan struct{})
	s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, body string) {
		mu.Lock()
		if here++; here == n {
			close(all)
		}
		mu.Unlock()
		<-all // nobody is answered before everybody is here
		answer(w, strings.Replace(body, `"method":"m"`, `"result":{}`, 1))
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	go func() {
		for i := range n {
			_, _ = fmt.Fprintf(c.in, `{"id":%d,"method":"m"}`+"\n", i)
		}
	}()
	got := map[string]int{}
	for range n {
		got[c.hear()]++
	}
	for i := range n {
		if got[fmt.Sprintf(`{"id":%d,"result":{}}`, i)] != 1 {
			t.Fatalf("request %d was answered %d times", i, got[fmt.Sprintf(`{"id":%d,"result":{}}`, i)])
		}
	}
}

func TestMoreRequestsThanTheLimitAreRefused(t *testing.T) {
	hold := make(chan struct{})
	s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, body string) {
		<-hold
		answer(w, strings.Replace(body, `"method":"m"`, `"result":{}`, 1))
	})
	c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{InFlight: 2}})
	c.handshake("2025-11-25")
	// The handshake itself is over when what follows it has come.
	s.waitFor(t, "the end of the handshake", func(r seen) bool { return r.body == initialized })
	c.say(`{"id":1,"method":"m"}`, `{"id":2,"method":"m"}`, `{"id":3,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"id":3,"error":{"code":-32005,`) {
		t.Errorf("got %s", got)
	}
	close(hold)
	c.hear()
	c.hear()
}

// counted counts what is written before it may be.
type counted struct {
	n    atomic.Int64
	open chan struct{}
	w    io.Writer
}

func (c *counted) Write(p []byte) (int, error) {
	if c.n.Add(1) > 1 { // the answer to the handshake passes
		<-c.open
	}
	return c.w.Write(p)
}

// A client that does not read holds up the server, and nothing is kept for
// it; when it reads again, all is there.
func TestASlowReaderHoldsUpTheServer(t *testing.T) {
	const n, size = 64, 1 << 20
	var sent atomic.Int64
	ended := make(chan struct{})
	s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) {
		defer close(ended)
		send := events(w)
		for i := range n {
			send(fmt.Sprintf("data: {\"method\":\"n%d\",\"params\":%q}\n\n", i, strings.Repeat("x", size)))
			sent.Add(1)
		}
		send(fmt.Sprintf(data, `{"id":1,"result":{}}`))
	})
	p, err := mcpproxy.New(mcpproxy.Config{URL: s.URL, Transport: &http.Transport{DisableKeepAlives: true}, Limits: mcpproxy.Limits{Grace: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	client := &counted{open: make(chan struct{}), w: &out}
	done := make(chan error)
	go func() {
		done <- p.Run(t.Context(), strings.NewReader(initialize+"\n"+initialized+"\n"+`{"id":1,"method":"m"}`+"\n"), client)
	}()
	// The server stands still when the buffers between are full: then the
	// count does not change any more. It may not reach the end.
	for last, same := int64(-1), 0; same < 20; {
		select {
		case <-ended:
			t.Fatal("the server could say everything to a client that does not read")
		case <-time.After(10 * time.Millisecond):
		}
		if now := sent.Load(); now == last && client.n.Load() == 2 {
			same++
		} else {
			last, same = now, 0
		}
	}
	close(client.open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != n+2 || lines[n+1] != `{"id":1,"result":{}}` {
		t.Errorf("%d messages came", len(lines))
	}
	for i := range n {
		if !strings.HasPrefix(lines[i+1], fmt.Sprintf(`{"method":"n%d",`, i)) {
			t.Fatalf("message %d is %.30s", i, lines[i+1])
		}
	}
}
