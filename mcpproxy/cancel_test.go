package mcpproxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/mcpproxy"
)

func TestACancellationEndsItsRequestAndIsPassedOn(t *testing.T) {
	for _, id := range []string{`1`, `1.0`, `"a\u0062"`} {
		gone := make(chan struct{})
		s := serveSession(t, "2025-11-25", func(w http.ResponseWriter, r *http.Request, body string) {
			if strings.Contains(body, `"quick"`) {
				answer(w, `{"id":2,"result":{}}`)
				return
			}
			events(w)(fmt.Sprintf(data, `{"method":"begun"}`))
			<-r.Context().Done()
			close(gone)
		})
		c := connect(t, s.URL, mcpproxy.Config{})
		c.handshake("2025-11-25")
		c.say(`{"id":` + id + `,"method":"slow"}`)
		c.want(`{"method":"begun"}`)
		cancelled := `{"method":"notifications/cancelled","params":{"requestId":` + strings.Replace(strings.Replace(id, "1.0", "1", 1), `\u0062`, "b", 1) + `}}`
		c.say(cancelled)
		<-gone
		s.waitFor(t, "the cancellation", func(r seen) bool { return r.body == cancelled })
		c.say(`{"id":2,"method":"quick"}`)
		c.want(`{"id":2,"result":{}}`) // and nothing for the other
		if rest := c.end(); len(rest) != 0 {
			t.Errorf("more came: %q", rest)
		}
	}
}

func TestACancellationOvertakesWhatHangs(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case body == initialize:
			answer(w, welcome("2025-11-25"))
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case strings.Contains(body, "hangs"):
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-11-25")
	c.say(`{"method":"notifications/hangs"}`, `{"id":1,"method":"hangs"}`, `{"method":"notifications/cancelled","params":{"requestId":1}}`)
	s.waitFor(t, "the cancellation", func(r seen) bool { return strings.Contains(r.body, "cancelled") })
}

func TestWhereTheEndOfARequestCancelsItNothingIsSent(t *testing.T) {
	gone := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
		<-r.Context().Done()
		close(gone)
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.say(`{"id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	s.waitFor(t, "the request", func(seen) bool { return true })
	c.say(`{"method":"notifications/cancelled","params":{"requestId":1}}`)
	<-gone
	if rest := c.end(); len(rest) != 0 {
		t.Errorf("more came: %q", rest)
	}
	if n := len(s.got()); n != 1 {
		t.Errorf("the server got %d requests", n)
	}
}
