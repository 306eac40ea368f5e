//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// toolbox is an MCP server with tools on two pages. It asks its client for a
// ping and for a sample before it answers a call.
func toolbox(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Cursor    string
				Name      string
				Arguments json.RawMessage
			}
			Result, Error json.RawMessage
		}
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost && json.Unmarshal(body, &m) != nil {
			t.Errorf("the server got %q", body)
		}
		w.Header().Set("Content-Type", "application/json")
		answer := func(result string) { _, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
		switch {
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Method == http.MethodDelete:
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "S1")
			answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case m.Method == "" || strings.HasPrefix(m.Method, "notifications/"):
			if string(m.ID) == `"s"` && (m.Error == nil || m.Result != nil) || string(m.ID) == `"p"` && m.Result == nil {
				t.Errorf("the client answered %s", body)
			}
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "tools/list" && m.Params.Cursor == "":
			answer(`{"tools":[{"name":"echo","description":"Say it again.\nAt length.","inputSchema":{"type":"object","required":["text"]},"x":1}],"nextCursor":"2"}`)
		case m.Method == "tools/list":
			answer(`{"tools":[{"name":"od\u001b[31md","title":"An odd one"}]}`)
		case m.Method == "tools/call" && m.Params.Name == "echo":
			w.Header().Set("Content-Type", "text/event-stream")
			for _, event := range []string{
				`{"jsonrpc":"2.0","id":"p","method":"ping"}`,
				`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`,
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"half way"}}`,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q},{"type":"image","data":"AA=="}]}}`, m.ID, m.Params.Arguments),
			} {
				_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
			}
		case m.Method == "tools/call" && m.Params.Name == "fail":
			answer(`{"content":[{"type":"text","text":"no such thing"}],"isError":true}`)
		default:
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no tool of that name"}}`, m.ID)
		}
	})
}

func TestToolsOfAServerAreListedWithTheSharedSession(t *testing.T) {
	h := withMCP(t, toolbox(t), expired)
	code, out, said := h.run("mcp", "tools", "work")
	if code != 0 || said != "" {
		t.Fatalf("it ended with %d: %s", code, said)
	}
	lines := strings.Split(out, "\n")
	if len(lines) != 3 || strings.Join(strings.Fields(lines[1]), " ") != "echo text Say it again." || !strings.HasSuffix(lines[2], "An odd one") || strings.Contains(out, "\x1b") {
		t.Errorf("it lists %q", out)
	}
	var all struct {
		Version int
		Target  string
		Tools   []struct {
			Name string
			X    int
		}
	}
	code, out, _ = h.run("mcp", "tools", "work", "--json")
	must(t, json.Unmarshal([]byte(out), &all))
	if code != 0 || all.Version != 1 || all.Target != "work" || len(all.Tools) != 2 || all.Tools[0].X != 1 {
		t.Errorf("it ended with %d: %s", code, out)
	}
	if c := h.server.Counters(); c.Exchanges != 1 {
		t.Errorf("%d exchanges", c.Exchanges)
	}
	if n := h.deleted.Load(); n != 2 {
		t.Errorf("%d of 2 sessions were ended at the server", n)
	}
}

func TestAToolIsCalledAndWhatItGivesIsPrinted(t *testing.T) {
	h := withMCP(t, toolbox(t), lasting)
	code, out, said := h.run("mcp", "call", "work", "echo", `{"text": "hello", "n": 1.0}`, "--verbose")
	if code != 0 || out != `{"text": "hello", "n": 1.0}`+"\n"+`{"type":"image","data":"AA=="}` && out != `{"text":"hello","n":1.0}`+"\n"+`{"type":"image","data":"AA=="}` {
		t.Errorf("it ended with %d and printed %q", code, out)
	}
	if !strings.Contains(said, "half way") {
		t.Errorf("with --verbose it said %q", said)
	}
	code, out, said = h.run("mcp", "call", "work", "fail")
	if code != 1 || out != "no such thing" || !strings.Contains(said, "the tool says that it failed") {
		t.Errorf("it ended with %d, %q, %q", code, out, said)
	}
	code, out, _ = h.run("mcp", "call", "work", "fail", "--json")
	if code != 1 || out != `{"content":[{"type":"text","text":"no such thing"}],"isError":true}` {
		t.Errorf("it ended with %d, %q", code, out)
	}
	code, out, said = h.run("mcp", "call", "work", "nothing", "{}")
	if code != 1 || out != "" || !strings.Contains(said, "tools/call: no tool of that name") {
		t.Errorf("it ended with %d, %q, %q", code, out, said)
	}
}

func TestWhatATerminalsUserMustDoIsAnExitCode(t *testing.T) {
	h := withMCP(t, toolbox(t), lasting)
	for _, c := range []struct {
		name    string
		prepare func()
		args    []string
		code    int
		says    string
	}{
		{"no arguments", func() {}, []string{"call", "work"}, 2, "which tool"},
		{"an array", func() {}, []string{"call", "work", "echo", "[1]"}, 2, "no JSON object"},
		{"broken JSON", func() {}, []string{"call", "work", "echo", `{"a":`}, 2, "no JSON object"},
		{"another target", func() {}, []string{"tools", "other"}, 2, "spendonce login other"},
		{"another target to call", func() {}, []string{"call", "other", "echo"}, 2, "spendonce login other"},
		{"no session", func() { h.write("state/remote-credentials.json", "{}") }, []string{"tools", "work"}, 3, "spendonce login work"},
		{"a damaged store", func() { h.write("state/remote-credentials.json", "{") }, []string{"tools", "work"}, 6, "remote-credentials.json"},
		{"a session that has ended", func() {
			h.signIn(expired)
			must(t, h.server.RevokeFamily(h.session.RefreshToken.Reveal()))
		}, []string{"tools", "work"}, 4, "spendonce login work"},
		{"no authorization server", func() {
			h.signIn(expired)
			h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ntoken_endpoint = \"http://127.0.0.1:9/\"\nclient_id = %q\n", h.url, h.server.ClientID()))
		}, []string{"tools", "work"}, 5, "work"},
		{"all well again", func() {
			h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\n", h.url, h.server.TokenEndpoint(), h.server.ClientID()))
			h.signIn(lasting)
		}, []string{"call", "work", "nothing"}, 1, "no tool of that name"},
		{"a missing scope", func() { h.lacks.Store(true) }, []string{"tools", "work"}, 4, "--scope mcp:write --scope mcp:admin"},
		{"rejected for all", func() { h.lacks.Store(false); h.rejects.Store(true) }, []string{"tools", "work"}, 8, "work"},
	} {
		c.prepare()
		if code, out, said := h.run(append([]string{"mcp"}, c.args...)...); code != c.code || out != "" || !strings.Contains(said, c.says) {
			t.Errorf("%s: it ended with %d, %q, %q", c.name, code, out, said)
		}
	}
}
