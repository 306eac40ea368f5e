//go:build linux

package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// raw answers with bytes that need not be HTTP.
func raw(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// A server knows the token, and may put it into whatever it says. What it says
// in JSON-RPC is its client's; in our own words there is no token, and whatever
// comes is one error, after which all goes on. The end of the test looks for
// every token in all that was said.
func TestWhateverAServerAnswersIsAnErrorWithoutATokenAndTheProxyGoesOn(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		reply func(w http.ResponseWriter, token string)
		want  string
	}{
		"a page": {func(w http.ResponseWriter, token string) { _, _ = io.WriteString(w, "<html>"+token) }, "content_type"},
		"a redirect elsewhere": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Location", "https://other.example/"+token+"?t="+token)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, `"kind":"redirect"`},
		"a redirect to http": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Location", "http://other.example/"+token)
			w.WriteHeader(http.StatusPermanentRedirect)
		}, `"kind":"redirect"`},
		"a redirect to a host with the token": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Location", "https://"+token+".example/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, `"kind":"redirect"`},
		"a redirect to a user with the token": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Location", "https://"+token+"@other.example/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, `"kind":"redirect"`},
		"a redirect that changes the method": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Location", "/"+token)
			w.WriteHeader(http.StatusFound)
		}, `"kind":"redirect"`},
		"a redirect to itself": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "/mcp?again")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, `"kind":"redirect"`},
		"a redirect to no URL": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Location", "https://%zz"+token)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, `"kind":"status","status":307`},
		"a type with the token": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Content-Type", "text/html; x="+token)
			w.WriteHeader(http.StatusOK)
		}, "content_type"},
		"later, with the token": {func(w http.ResponseWriter, token string) {
			w.Header().Set("Retry-After", token)
			w.WriteHeader(http.StatusServiceUnavailable)
		}, `"status":503`},
		"later": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
		}, `after 120 seconds`},
		"a refusal without a challenge": {func(w http.ResponseWriter, token string) { http.Error(w, token, http.StatusForbidden) }, `"status":403`},
		"a scope that is the token": {func(w http.ResponseWriter, token string) {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+token+` mcp:`+token+` mcp:read"`)
			w.WriteHeader(http.StatusForbidden)
		}, `"scopes":["mcp:read"]`},
		"headers of megabytes": {func(w http.ResponseWriter, token string) {
			for i := range 40 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat(token, 2000))
			}
		}, `"kind":"unanswered"`},
		"no status": {func(w http.ResponseWriter, token string) { raw(w, "HTTP/1.1 "+token+" OK\r\n\r\n") }, `"kind":"unanswered"`},
		"no HTTP":   {func(w http.ResponseWriter, token string) { raw(w, token+"\r\n\r\n") }, `"kind":"unanswered"`},
		"no header": {func(w http.ResponseWriter, token string) { raw(w, "HTTP/1.1 200 OK\r\n"+token+"\r\n\r\n") }, `"kind":"unanswered"`},
		"nothing":   {func(w http.ResponseWriter, _ string) { raw(w, "") }, `"kind":"unanswered"`},
		"no chunk": {func(w http.ResponseWriter, token string) {
			raw(w, ok+"Transfer-Encoding: chunked\r\n\r\n"+token+"\r\n")
		}, `"kind":"cut"`},
		"less than it says": {func(w http.ResponseWriter, token string) { raw(w, ok+"Content-Length: 10000\r\n\r\n{"+token) }, `"kind":"cut"`},
		"two lengths": {func(w http.ResponseWriter, token string) {
			raw(w, ok+"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"+token)
		}, `"kind":"unanswered"`},
		"another protocol": {func(w http.ResponseWriter, token string) {
			raw(w, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+token+"\r\nConnection: Upgrade\r\n\r\n")
		}, `"error":{"code":-32000`},
		"hints without end": {func(w http.ResponseWriter, token string) {
			raw(w, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <"+token+">\r\n\r\n", 50_000))
		}, `"kind":"unanswered"`},
		"gzip that is none": {func(w http.ResponseWriter, token string) {
			raw(w, ok+"Content-Encoding: gzip\r\nContent-Length: "+fmt.Sprint(len(token))+"\r\n\r\n"+token)
		}, `"kind":"cut"`},
		"another coding": {func(w http.ResponseWriter, token string) {
			raw(w, ok+"Content-Encoding: "+token+"\r\nContent-Length: 2\r\n\r\n{}")
		}, `"kind":"encoding"`},
		"no JSON":    {func(w http.ResponseWriter, token string) { raw(w, ok+"\r\n"+token) }, `"kind":"not_json"`},
		"no message": {func(w http.ResponseWriter, token string) { raw(w, ok+"\r\n"+`{"token":"`+token+`"}`) }, `"kind":"not_json"`},
		"events that are none": {func(w http.ResponseWriter, token string) {
			raw(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: "+token+"\ndata: "+token+"\n\ndata: "+token+"\n\nretry: "+token+"\n:"+token+"\n"+token+"\n\n")
		}, `"kind":"cut"`},
	} {
		t.Run(name, func(t *testing.T) {
			var token string
			h := withMCP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte(`"id":1,`)) {
					c.reply(w, token)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				echo(w, r)
			}), lasting)
			token = h.session.AccessToken.Reveal()
			p := h.pipes("--verbose", "--log-file", filepath.Join(h.dir, "proxy.log"))
			p.shakeHands()
			if got := p.ask(1); !strings.Contains(got, `"id":1,"error":{`) || !strings.Contains(got, c.want) {
				t.Errorf("got %.500s", got)
			}
			if got := p.ask(2); got != `{"id":2,"result":0}` {
				t.Errorf("then came %.500s", got)
			}
			p.leave()
		})
	}
}

func TestNothingOfWhatPassesIsInALogOrInOneThatWasRotated(t *testing.T) {
	for _, format := range [][]string{nil, {"--log-json"}} {
		h := withMCP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Answer", "canary-answer-header")
			switch {
			case r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "id: canary-event\nevent: canary-kind\ndata: canary-data\n\nid: canary-event\ndata: {\"method\":\"notifications/x\",\"params\":\"canary-told\"}\n\n")
				_ = http.NewResponseController(w).Flush()
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			case bytes.Contains(body, []byte("canary-refused")):
				http.Error(w, "canary-refusal", http.StatusInternalServerError)
				return
			case bytes.Contains(body, []byte(`"method":"initialize"`)):
				w.Header().Set("Mcp-Session-Id", "canary-session")
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"canary-server"}}}`)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			echo(w, r)
		}), expired)
		h.url += "/canary-path?key=canary-query"
		h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\n", h.url, h.server.TokenEndpoint(), h.server.ClientID()))
		file := filepath.Join(h.dir, "proxy.log")
		h.write("proxy.log", strings.Repeat("old\n", 8<<18))
		p := h.pipes(append([]string{"--verbose", "--log-file", file, "--header", "X-Key: canary-header"}, format...)...)
		p.shakeHands()
		if got := p.hear(); !strings.Contains(got, "canary-told") {
			t.Errorf("got %s", got)
		}
		for range 400 { // more than a look at the size of the file
			p.say(`{"id":"canary-id","method":"m","params":{"_meta":{"canary-meta":1},"arguments":"canary-argument"}}`)
			p.hear()
		}
		p.say(`{"id":"canary-id","method":"m","params":"canary-refused"}`)
		p.hear()
		p.say(`{"id":"canary-id"} canary-garbage`)
		p.hear()
		p.say(`{"method":"notifications/x","params":"canary-notification"}`)
		p.leave()
		said := map[string]string{"stderr": p.err.String()}
		for _, name := range []string{file, file + ".1"} {
			b, err := os.ReadFile(name)
			must(t, err)
			said[name] = string(b)
		}
		for where, text := range said {
			if i := strings.Index(text, "canary"); i >= 0 {
				t.Errorf("%s has %q", where, text[max(0, i-200):min(len(text), i+30)])
			}
		}
		for _, what := range []string{`m`, "bytes", "status", "after", "took"} {
			if !strings.Contains(said["stderr"], what) {
				t.Errorf("the log says no %s", what)
			}
		}
	}
}

// What never ends is waited for as long as the client wants, and no longer.
func TestAnAnswerWithoutEndIsEndedByItsCancellation(t *testing.T) {
	for name, begin := range map[string]string{"JSON": "application/json", "events": "text/event-stream"} {
		t.Run(name, func(t *testing.T) {
			begun, gone := make(chan struct{}), make(chan struct{})
			h := withMCP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !bytes.Contains(body, []byte(`"id":1,`)) {
					r.Body = io.NopCloser(bytes.NewReader(body))
					echo(w, r)
					return
				}
				close(begun)
				defer close(gone)
				w.Header().Set("Content-Type", begin)
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, ": \n"); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
				}
			}), lasting)
			p := h.pipes()
			p.shakeHands()
			p.say(`{"id":1,"method":"m"}`)
			if got := p.ask(2); got != `{"id":2,"result":0}` {
				t.Errorf("meanwhile: %s", got)
			}
			await := func(what string, event <-chan struct{}) {
				select {
				case <-event:
				case <-time.After(patience):
					t.Fatal(what)
				}
			}
			await("it was not sent", begun) // the second may have overtaken it
			p.say(`{"method":"notifications/cancelled","params":{"requestId":1}}`)
			await("it goes on", gone)
			p.leave()
		})
	}
}
