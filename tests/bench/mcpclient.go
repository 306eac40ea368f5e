package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mcpClient is one session with an MCP server, that calls its tool echo.
type mcpClient interface {
	// send sends a message; with an id its answer is returned.
	send(ctx context.Context, id int64, message []byte) ([]byte, error)
	close() error
}

var mcpIDs atomic.Int64

const mcpVersion = "2025-06-18"

// handshake begins the session.
func handshake(ctx context.Context, c mcpClient) error {
	id := mcpIDs.Add(1)
	answer, err := c.send(ctx, id, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`, id, mcpVersion))
	if err != nil {
		return err
	}
	if !bytes.Contains(answer, []byte(`"serverInfo"`)) {
		return fmt.Errorf("the answer to initialize is %.200s", answer)
	}
	_, err = c.send(ctx, 0, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return err
}

// callEcho makes one small call, and checks its answer.
func callEcho(ctx context.Context, c mcpClient) error {
	id := mcpIDs.Add(1)
	answer, err := c.send(ctx, id, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"message":"to %d"}}}`, id, id))
	if err == nil && !bytes.Contains(answer, fmt.Appendf(nil, `to %d"`, id)) {
		err = fmt.Errorf("the answer to an echo is %.200s", answer)
	}
	return err
}

// directClient speaks Streamable HTTP to the server itself, with the token.
type directClient struct {
	http    *http.Client
	url     string
	token   string
	session string
}

func newDirectClient(url, token string) *directClient {
	return &directClient{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: mcpCrowd}}, url: url, token: token}
}

func (d *directClient) close() error { d.http.CloseIdleConnections(); return nil }

func (d *directClient) send(ctx context.Context, id int64, message []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+d.token)
	if d.session != "" {
		req.Header.Set("Mcp-Session-Id", d.session)
		req.Header.Set("Mcp-Protocol-Version", mcpVersion)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode >= 300:
		return nil, fmt.Errorf("the server answered %s: %.200s", resp.Status, body)
	case d.session == "":
		d.session = resp.Header.Get("Mcp-Session-Id")
	}
	if id == 0 {
		return nil, nil
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return body, nil
	}
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && bytes.Contains(data, fmt.Appendf(nil, `"id":%d`, id)) {
			return data, nil
		}
	}
	return nil, fmt.Errorf("no answer in %.200s", body)
}

// proxiedClient speaks to a proxy over its standard input and output.
type proxiedClient struct {
	cmd *exec.Cmd
	out io.WriteCloser

	writing sync.Mutex
	mu      sync.Mutex
	waiting map[int64]chan []byte
	err     error // nothing more is read
	ended   chan struct{}
}

func startProxied(cmd *exec.Cmd) (*proxiedClient, error) {
	p := &proxiedClient{cmd: cmd, waiting: map[int64]chan []byte{}, ended: make(chan struct{})}
	var err error
	if p.out, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	in, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(in)
	return p, nil
}

func (p *proxiedClient) read(in io.Reader) {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			p.mu.Lock()
			p.err = fmt.Errorf("the proxy has ended: %w", err)
			p.mu.Unlock()
			close(p.ended)
			return
		}
		var m struct {
			ID     *int64 `json:"id"`
			Method string `json:"method"`
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil || m.Method != "" {
			continue
		}
		p.mu.Lock()
		answer := p.waiting[*m.ID]
		delete(p.waiting, *m.ID)
		p.mu.Unlock()
		if answer != nil {
			answer <- line
		}
	}
}

func (p *proxiedClient) send(ctx context.Context, id int64, message []byte) ([]byte, error) {
	answer := make(chan []byte, 1)
	if id != 0 {
		p.mu.Lock()
		p.waiting[id] = answer
		p.mu.Unlock()
	}
	p.writing.Lock()
	_, err := p.out.Write(append(message, '\n'))
	p.writing.Unlock()
	if err != nil || id == 0 {
		return nil, err
	}
	select {
	case line := <-answer:
		return line, nil
	case <-p.ended:
		return nil, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close ends the proxy as a client does.
func (p *proxiedClient) close() error {
	_ = p.out.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.ended
	err := p.cmd.Wait()
	if late.Stop() {
		return nil // mcp-remote ends with whatever code it likes
	}
	return errors.Join(errors.New("a proxy did not end with its input"), err)
}
