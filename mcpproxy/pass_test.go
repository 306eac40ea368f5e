package mcpproxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/mcpproxy"
)

func TestMessagesPassUnchanged(t *testing.T) {
	for name, pair := range map[string][2]string{
		"plain":                {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`, `{"jsonrpc":"2.0","id":7,"result":{}}`},
		"odd spacing":          {`  { "id" : "a" ,"method":"m" , "jsonrpc":"2.0"}  `, ` {"id" :  "a","result" : null } `},
		"number spelling":      {`{"jsonrpc":"2.0","id":1.0,"method":"m","params":[1e400,-0,1.50]}`, `{"jsonrpc":"2.0","id":1,"result":1E-0}`},
		"unknown members":      {`{"id":1,"method":"x/y","new":{"a":[1]},"jsonrpc":"2.0"}`, `{"id":1,"result":{},"_x":[],"jsonrpc":"2.0"}`},
		"escapes":              {`{"id":"\u0061\ud800","method":"m"}`, `{"id":"a\ud800","error":{"code":-1,"message":"\u000a"}}`},
		"duplicates elsewhere": {`{"id":1,"method":"m","params":{"a":1,"a":2}}`, `{"id":1,"result":{"a":1,"a":2}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, pair[1]) })
			c := connect(t, s.URL, mcpproxy.Config{})
			c.handshake("2025-06-18")
			c.say(pair[0])
			c.want(pair[1])
			if rest := c.end(); len(rest) > 0 {
				t.Errorf("more came: %q", rest)
			}
			s.waitFor(t, "the message", func(r seen) bool { return r.body == pair[0] })
		})
	}
}

func TestALineEndBetweenTokensBecomesASpace(t *testing.T) {
	s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, _ *http.Request, _ string) {
		answer(w, "{\r\n \"id\":1,\n\"result\":{}}\n")
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-06-18")
	c.say(`{"id":1,"method":"m"}` + "\r")
	c.want(`{   "id":1, "result":{}} `)
	s.waitFor(t, "the message without its line end", func(r seen) bool { return r.body == `{"id":1,"method":"m"}` })
}

func TestTheSessionIsNamedAndEnded(t *testing.T) {
	for version, header := range map[string]string{"2025-03-26": "", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			s := serveSession(t, version, func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, `{"id":1,"result":{}}`) })
			c := connect(t, s.URL, mcpproxy.Config{})
			c.handshake(version)
			c.say(`{"id":1,"method":"m"}`)
			c.hear()
			s.waitFor(t, "a GET", func(r seen) bool { return r.method == http.MethodGet })
			c.end()
			var methods []string
			for i, r := range s.got() {
				methods = append(methods, r.method)
				session, want := r.header.Get("Mcp-Session-Id"), "S1"
				v, wantVersion := r.header.Get("Mcp-Protocol-Version"), header
				if i == 0 {
					want, wantVersion = "", ""
				}
				if session != want || v != wantVersion {
					t.Errorf("%s %s has session %q and version %q", r.method, r.body, session, v)
				}
			}
			if n := len(methods); n != 5 || methods[n-1] != http.MethodDelete || strings.Count(strings.Join(methods, " "), "GET") != 1 {
				t.Errorf("the server got %q", methods)
			}
			if strings.Contains(c.log.String(), "S1") {
				t.Error("the session's id is in the log")
			}
		})
	}
}

func TestAStreamPassesEachMessageAsItComes(t *testing.T) {
	next := make(chan struct{})
	s := serveSession(t, "2025-06-18", func(w http.ResponseWriter, _ *http.Request, _ string) {
		send := events(w)
		send("id: 1\ndata:\n\n") // primes the client, and is no message
		send("event: message\nid: 2\ndata: {\"method\":\"notifications/progress\"}\n\n")
		<-next
		send(": a comment\r\ndata: {\"id\":1,\r\ndata: \"result\":{}}\r\n\r\n")
	})
	c := connect(t, s.URL, mcpproxy.Config{})
	c.handshake("2025-06-18")
	c.say(`{"id":1,"method":"m"}`)
	c.want(`{"method":"notifications/progress"}`)
	close(next)
	c.want(`{"id":1, "result":{}}`)
}
