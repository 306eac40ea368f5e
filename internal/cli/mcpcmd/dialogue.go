package mcpcmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/requestcmd"
	"github.com/spendonce/spendonce/mcpproxy"
)

// revision is the one that is offered to servers; they may choose an older one.
const revision = "2025-11-25"

// dialogue is a client of one server, for a person at a terminal: it asks one
// thing after another, by the same proxy that other clients start.
type dialogue struct {
	app    *credcmd.App
	in     *io.PipeWriter
	out    *bufio.Reader
	output *io.PipeReader
	last   int
	by     *remembering
	ended  chan struct{}
}

// message is what is read of one.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *answerError    `json:"error"`
}

// answerError is an error of the server, or of the proxy in its place.
type answerError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Source string `json:"source"`
		Kind   string `json:"kind"`
	} `json:"data"`
}

// Error words it for a terminal.
func (e *answerError) Error() string { return credcmd.Printable(e.Message) }

// of is the error by what has caused it, if the proxy has given it in the
// server's place: the same as any other command's.
func (e *answerError) of(cause error) error {
	switch {
	case e.Data.Source != "spendonce":
		return e
	case e.Code != mcpproxy.CodeUnanswered && cause != nil:
		return because{e, cause}
	case e.Code == mcpproxy.CodeUnanswered:
		return because{e, credstore.ErrTemporary}
	}
	return e
}

// because is an error that says no more than the first, and is of the second's
// kind.
type because struct {
	error
	cause error
}

func (b because) Unwrap() error { return b.cause }

// remembering keeps the last error of a transport.
type remembering struct {
	http.RoundTripper
	mu   sync.Mutex
	last error
}

// RoundTrip implements [http.RoundTripper].
func (r *remembering) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err != nil {
		r.mu.Lock()
		r.last = err
		r.mu.Unlock()
	}
	return resp, err
}

func (r *remembering) cause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// converse begins a dialogue with the target's server: its handshake is over
// when this returns.
func converse(ctx context.Context, app *credcmd.App, target string) (*dialogue, error) {
	app.Arm()
	conn, err := requestcmd.Connect(app, target, requestcmd.ConnectConfig{Warn: func(err error) { app.Streams.Warn(err.Error()) }})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Locate(); err != nil {
		conn.Close()
		return nil, err
	}
	by := &remembering{RoundTripper: conn}
	p, err := mcpproxy.New(mcpproxy.Config{
		Target: target, Locate: conn.Locate, Transport: by, Settle: conn.Close,
		Limits: mcpproxy.Limits{Grace: time.Millisecond}, // nothing is under way when we go
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	input, in := io.Pipe()
	output, out := io.Pipe()
	d := &dialogue{app: app, in: in, output: output, out: bufio.NewReader(output), by: by, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		defer conn.Close()
		err := p.Run(ctx, input, out)
		_ = out.CloseWithError(errors.Join(err, io.EOF))
	}()
	_, err = d.ask("initialize", map[string]any{
		"protocolVersion": revision, "capabilities": struct{}{}, "clientInfo": map[string]string{"name": "spendonce", "version": app.Version()},
	})
	if err == nil {
		err = d.say(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	}
	if err != nil {
		d.end()
		return nil, err
	}
	return d, nil
}

// end ends the session, and returns when the server has been told.
func (d *dialogue) end() {
	_ = d.in.Close()
	go func() { _, _ = io.Copy(io.Discard, d.out) }() // what still comes is for nobody
	<-d.ended
	_ = d.output.Close()
}

func (d *dialogue) say(m any) error {
	b, err := json.Marshal(m)
	if err == nil {
		_, err = d.in.Write(append(b, '\n'))
	}
	return err
}

// ask sends a request and returns its result. What the server asks meanwhile is
// answered: a ping, and that nothing else is understood here.
func (d *dialogue) ask(method string, params any) (json.RawMessage, error) {
	d.last++
	id := fmt.Sprint(d.last)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// Where it fails, nothing comes any more.
		_ = d.say(map[string]any{"jsonrpc": "2.0", "id": d.last, "method": method, "params": params})
	}()
	for {
		line, err := d.out.ReadBytes('\n')
		if err != nil {
			<-sent
			return nil, fmt.Errorf("asking the server for %s: the connection has ended: %w", method, err)
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue // a batch, or nothing that is for us
		}
		switch {
		case m.Method != "" && m.ID != nil:
			reply := map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": "a person at a terminal cannot do that"}}
			if m.Method == "ping" {
				reply = map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": struct{}{}}
			}
			go func() { _ = d.say(reply) }()
		case m.Method == "notifications/message" || m.Method == "notifications/progress":
			d.tell(m.Params)
		case m.Method == "" && string(m.ID) == id:
			<-sent
			if m.Error != nil {
				return nil, fmt.Errorf("%s: %w", method, m.Error.of(d.by.cause()))
			}
			return m.Result, nil
		}
	}
}

// tell shows what the server says beside its answer, to who wants to know.
func (d *dialogue) tell(params json.RawMessage) {
	var said struct {
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if !d.app.Streams.Verbose || json.Unmarshal(params, &said) != nil {
		return
	}
	text := said.Message
	if text == "" && json.Unmarshal(said.Data, &text) != nil {
		text = string(said.Data)
	}
	if text = strings.TrimSpace(credcmd.Printable(text)); text != "" {
		fmt.Fprintln(d.app.Streams.Err, text)
	}
}
