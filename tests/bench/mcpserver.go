package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"
)

const mcpEchoCommand = "mcp-echo-server"

// startMCPEcho starts this program as an MCP server that has one tool and
// does nothing else: what is in front of it is what takes the time.
func startMCPEcho(ctx context.Context, b *bench) (s mcpServer, stop func(), err error) {
	mine, err := newOurs(b, b.server.TokenEndpoint())
	if err != nil {
		return s, nil, err
	}
	if err := mine.expire(long()); err != nil {
		return s, nil, err
	}
	if s.token, err = mine.token(); err != nil {
		return s, nil, err
	}
	cmd := exec.CommandContext(ctx, b.self, mcpEchoCommand, s.token)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return s, nil, err
	}
	if err := cmd.Start(); err != nil {
		return s, nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		s.url = strings.TrimSpace(line)
		err = mine.configure(s.url)
	}
	if err != nil {
		stop()
		return s, nil, err
	}
	s.proxy = func() *exec.Cmd { return mine.run("mcp", "proxy", target) }
	return s, stop, nil
}

// mcpEcho serves until ctx ends. It answers by an event stream, as the
// servers of the official SDKs do unless told otherwise.
func mcpEcho(ctx context.Context, token string, ready io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Fprintf(ready, "http://%s/mcp\n", l.Addr())
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			answerMCP(w, r)
		}
	})}
	return server.Serve(l)
}

func answerMCP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Version   string `json:"protocolVersion"`
			Arguments struct {
				Message string `json:"message"`
			} `json:"arguments"`
		} `json:"params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var result any
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "only")
		result = map[string]any{
			"protocolVersion": m.Params.Version, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]string{"name": "echo", "version": "1"},
		}
	case "tools/call":
		result = map[string]any{"content": []any{map[string]string{"type": "text", "text": "Echo: " + m.Params.Arguments.Message}}}
	default:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: message\ndata: %s\n\n", answer)
	_ = http.NewResponseController(w).Flush() // as a server does whose stream may go on
}
