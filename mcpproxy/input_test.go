package mcpproxy_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spendonce/spendonce/mcpproxy"
)

func TestGarbageIsRefusedInJSONRPCAndNotSent(t *testing.T) {
	for say, want := range map[string]string{
		`garbage`:                          `"id":null,"error":{"code":-32700,`,
		`{"id":1,"method":"m"`:             `"id":null,"error":{"code":-32700,`,
		`{"id":1,"method":"m"} x`:          `"code":-32700,`,
		"{\"id\":1,\"method\":\"\xff\"}":   `"code":-32700,`,
		`42`:                               `"id":null,"error":{"code":-32600,`,
		`{}`:                               `"id":null,"error":{"code":-32600,`,
		`{"id":1}`:                         `"id":1,"error":{"code":-32600,`,
		`{"id":null,"method":"m"}`:         `"id":null,"error":{"code":-32600,`,
		`{"id":[1],"method":"m"}`:          `"id":null,"error":{"code":-32600,`,
		`[]`:                               `"id":null,"error":{"code":-32600,`,
		`[{"id":1,"method":"m"}]`:          `"id":1,"error":{"code":-32600,`,
		`[{"method":"notifications/x"}]`:   `"id":null,"error":{"code":-32600,`,
		`[[{"id":1,"method":"m"}]]`:        `"id":null,"error":{"code":-32600,`,
		strings.Repeat("[", 20000):         `"code":-32700,`,
		strings.Repeat(`{"a":`, 20000):     `"code":-32700,`,
		`{"id":1,"method":"m","method":2}`: "", // for the server to judge
	} {
		s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, `{"id":1,"result":{}}`) })
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-11-25")
		c.say(say, `{"id":1,"method":"m"}`)
		if want != "" {
			if got := c.hear(); !strings.Contains(got, want) {
				t.Errorf("%.60s gives %s", say, got)
			}
		} else {
			c.want(`{"id":1,"result":{}}`)
		}
		c.want(`{"id":1,"result":{}}`)
		c.end()
		for _, r := range s.got() {
			if r.body == say && want != "" {
				t.Errorf("%.60s was sent", say)
			}
		}
	}
}

func TestABatchPassesInTheRevisionThatHasThem(t *testing.T) {
	const batch = `[{"id":1,"method":"a"}, {"method":"notifications/x"},{"id":2,"method":"b"}]`
	for name, reply := range map[string]func(w http.ResponseWriter){
		"as one": func(w http.ResponseWriter) { answer(w, `[{"id":2,"result":{}}, {"id":1,"result":{}}]`) },
		"as events": func(w http.ResponseWriter) {
			events(w)("data: {\"id\":2,\"result\":{}}\n\ndata: {\"id\":1,\"result\":{}}\n\n")
		},
		"with ids in other words": func(w http.ResponseWriter) {
			events(w)("data: {\"id\":2.0,\"result\":{}}\n\ndata: {\"id\":1e0,\"result\":{}}\n\n")
		},
		"in part": func(w http.ResponseWriter) { events(w)("data: {\"id\":2,\"result\":{}}\n\n") },
	} {
		s := serveSession(t, "2025-03-26", nil)
		s.Config.Handler = mux(s.Config.Handler, batch, reply)
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-03-26")
		c.say(batch)
		switch name {
		case "as one":
			c.want(`[{"id":2,"result":{}}, {"id":1,"result":{}}]`)
		case "as events":
			c.want(`{"id":2,"result":{}}`)
			c.want(`{"id":1,"result":{}}`)
		case "with ids in other words":
			c.want(`{"id":2.0,"result":{}}`)
			c.want(`{"id":1e0,"result":{}}`)
		case "in part":
			c.want(`{"id":2,"result":{}}`)
			if got := c.hear(); !strings.Contains(got, `"id":1,"error":{"code":-32000`) {
				t.Errorf("got %s", got)
			}
		}
		if rest := c.end(); len(rest) > 0 {
			t.Errorf("%s: more came: %q", name, rest)
		}
	}
}

func TestAServersBatchIsTakenApartWhereTheRevisionHasNone(t *testing.T) {
	s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, _ *http.Request, _ string) {
		answer(w, `[{"method":"n", "params":1.0}, {"id":1,"result":{}}]`)
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-06-18")
	c.say(`{"id":1,"method":"m"}`)
	c.want(`{"method":"n", "params":1.0}`)
	c.want(`{"id":1,"result":{}}`)
}

// What is no message never reaches the client.
func TestAServersGarbageIsDropped(t *testing.T) {
	s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, _ *http.Request, _ string) {
		events(w)("data: garbage\n\ndata: 42\n\nevent: other\ndata: {\"method\":\"other\"}\n\ndata: {\"id\":9,\"result\":\"of nobody\"}\n\ndata: {\"id\":1,\"result\":{}}\n\n")
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-06-18")
	c.say(`{"id":1,"method":"m"}`)
	c.want(`{"id":1,"result":{}}`)
	c.say(`{"id":77,"result":"to nobody"}`)
	s.waitFor(t, "a response to nobody", func(r seen) bool { return strings.Contains(r.body, "to nobody") })
}

func TestRedirectsAreFollowedWithinTheOriginWithTheirBody(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request, string) {})
	for to, want := range map[string]string{
		"/there":                       `{"id":1,"result":{}}`,
		elsewhere.URL + "/secret-path": `a redirect to ` + elsewhere.URL + ` that was not followed`,
		"http://example.com/":          `a redirect to a place where no token may go`,
	} {
		s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, r *http.Request, body string) {
			if r.URL.Path != "/there" {
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusTemporaryRedirect)
				return
			}
			answer(w, strings.Replace(body, `"method":"m"`, `"result":{}`, 1))
		})
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-06-18")
		c.say(`{"id":1,"method":"m"}`)
		if got := c.hear(); !strings.Contains(got, want) || strings.Contains(got, "secret-path") {
			t.Errorf("got %s", got)
		}
		c.end()
	}
	if n := len(elsewhere.got()); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
	s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, _ *http.Request, _ string) {
		w.Header().Set("Location", "/there")
		w.WriteHeader(http.StatusSeeOther)
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-06-18")
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"kind":"redirect","status":303`) {
		t.Errorf("got %s", got)
	}
}

func TestRedirectsAreFollowedAFewTimesAndNotForEver(t *testing.T) {
	s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, r *http.Request, _ string) {
		w.Header().Set("Location", r.URL.Path+"x")
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-06-18")
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"kind":"redirect","status":308`) {
		t.Errorf("got %s", got)
	}
	n := 0
	for _, r := range s.got() {
		if strings.Contains(r.body, `"m"`) {
			n++
		}
	}
	if n != 6 {
		t.Errorf("the message was sent %d times", n)
	}
}

// mux answers one message, and leaves the others to h.
func mux(h http.Handler, body string, reply func(w http.ResponseWriter)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) == body {
			reply(w)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		h.ServeHTTP(w, r)
	})
}

func TestWhatEncodingsAndEditorsLeaveInALineIsRefused(t *testing.T) {
	const good = `{"jsonrpc":"2.0","id":1,"method":"m"}`
	for name, line := range map[string]string{
		"a mark of byte order": "\ufeff" + good, "UTF-16": "{\x00\"\x00i\x00d\x00\"\x00:\x001\x00}\x00", "NUL": `{"id":1,"method":"` + "\x00" + `"}`,
		"half a character": `{"id":1,"method":"` + "\xc3" + `"}`, "a surrogate in UTF-8": `{"id":1,"method":"` + "\xed\xa0\x80" + `"}`,
		"two messages": good + good, "a comment": good + " // so", "a line end of its own": `{"id":1,"method":"` + "\r" + `m"}`,
	} {
		s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, done) })
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-11-25")
		c.say(line)
		if got := c.hear(); !strings.Contains(got, `"id":null,"error":{"code":-32700,`) {
			t.Errorf("%s gives %s", name, got)
		}
		c.say(good)
		c.want(done)
		if rest := c.end(); len(rest) != 0 {
			t.Errorf("%s: more came: %q", name, rest)
		}
	}
}

func TestTwoRequestsOfOneIDAreAnsweredEach(t *testing.T) {
	var n atomic.Int32
	both := make(chan struct{})
	s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) {
		if n.Add(1) == 2 {
			close(both)
		}
		<-both
		answer(w, done)
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"m"}`, `{"id":1,"method":"m"}`)
	c.want(done)
	c.want(done)
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("more came: %q", rest)
	}
}

// A session that no request could name is an error, and a version that no
// header can hold is not sent.
func TestAHandshakeMayBringWhatNoHeaderHolds(t *testing.T) {
	for name, id := range map[string]string{"a space": "a b", "too long": strings.Repeat("x", 9000), "no ASCII": "s\u00e9"} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Mcp-Session-Id", id)
			answer(w, welcome("2025-11-25"))
		})
		c := connect(t, s.URL, mcpproxy.Config{})
		c.say(initialize)
		if got := c.hear(); !strings.Contains(got, `"id":0,"error":{"code":-32000`) || !strings.Contains(got, `"kind":"session"`) || strings.Contains(got+c.log.String(), id) {
			t.Errorf("%s: got %s", name, got)
		}
	}
	for _, version := range []string{`9999\r\nX: y`, strings.Repeat("9", 100), "2025\u201311", " "} {
		s := serveSession(t, version, func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, done) })
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake(version)
		c.say(`{"id":1,"method":"m"}`)
		c.want(done)
		for _, r := range s.got() {
			if got := r.header.Get("Mcp-Protocol-Version"); got != "" {
				t.Errorf("%q is sent as %q", version, got)
			}
		}
	}
}
