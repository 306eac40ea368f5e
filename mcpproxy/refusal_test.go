package mcpproxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/mcpproxy"
)

// drip says a status, and then begins a body that does not end.
func drip(w http.ResponseWriter, r *http.Request, status int) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<html>"))
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func TestARefusalThatDoesNotEndIsOneAllTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		when   func(r *http.Request, body string, n int) bool
		status int
		want   string
	}{
		"of a request":            {func(_ *http.Request, body string, _ int) bool { return strings.Contains(body, `"id":1`) }, 500, `"id":1,"error":{"code":-32000,"message":"the server answered 500`},
		"of a session":            {func(_ *http.Request, body string, n int) bool { return strings.Contains(body, `"id":1`) && n == 1 }, 404, done},
		"of the server's stream":  {func(r *http.Request, _ string, _ int) bool { return r.Method == http.MethodGet }, 405, done},
		"of the handshake":        {func(_ *http.Request, body string, _ int) bool { return body == initialize }, 400, `"id":0,"error":{"code":-32000,"message":"the server answered 400`},
		"of an answer's progress": {func(r *http.Request, _ string, _ int) bool { return r.Header.Get("Last-Event-Id") != "" }, 400, `"kind":"cut"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
				if strings.Contains(body, `"id":1`) {
					calls++
				}
				switch {
				case c.when(r, body, calls):
					drip(w, r, c.status)
				case body == initialize:
					w.Header().Set("Mcp-Session-Id", "S1")
					answer(w, welcome("2025-11-25"))
				case r.Method == http.MethodGet:
					w.WriteHeader(http.StatusMethodNotAllowed)
				case strings.Contains(body, `"id":1`) && strings.Contains(name, "progress"):
					events(w)("id: 0\ndata:\n\n")
				case strings.Contains(body, `"id":1`):
					answer(w, done)
				}
			})
			client := connect(t, s.URL, mcpproxy.Config{})
			client.say(initialize)
			if name != "of the handshake" {
				client.want(welcome("2025-11-25"))
				client.say(initialized, `{"id":1,"method":"m"}`)
			}
			if got := client.hear(); !strings.Contains(got, c.want) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// What a server writes into a header is not for a log.
func TestALocationOrATimeThatIsNoneIsNotRepeated(t *testing.T) {
	for status, header := range map[int]string{http.StatusTemporaryRedirect: "Location", http.StatusServiceUnavailable: "Retry-After"} {
		s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set(header, "https://secret%zz")
			w.WriteHeader(status)
		})
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-11-25")
		c.say(`{"id":1,"method":"m"}`)
		if got := c.hear(); !strings.Contains(got, `"kind":"status","status":`) || strings.Contains(got+c.log.String(), "secret") {
			t.Errorf("%s: got %s, and the log is %s", header, got, c.log)
		}
	}
}

func TestALongMethodIsCutInTheLog(t *testing.T) {
	s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, done) })
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	c.say(`{"id":1,"method":"` + strings.Repeat("x", 100_000) + `"}`)
	c.want(done)
	c.end()
	if n := len(c.log.String()); n > 10_000 {
		t.Errorf("%d bytes were logged", n)
	}
}
