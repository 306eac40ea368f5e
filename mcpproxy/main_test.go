package mcpproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/mcpproxy"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The official server forgets a reader of its own when a client ends
		// the request of a subscription.
		goleak.IgnoreTopFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
}

// patience is how long a test waits for what must come.
const patience = 90 * time.Second

// server is a scripted one: it keeps what it was sent.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	seen []seen
	come chan struct{} // closed and replaced at each request
}

// seen is one request.
type seen struct {
	method, body string
	header       http.Header
}

func serve(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, body string)) *server {
	t.Helper()
	s := &server{come: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, seen{r.Method, string(b), r.Header})
		close(s.come)
		s.come = make(chan struct{})
		s.mu.Unlock()
		handle(w, r, string(b))
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// got are the requests so far.
func (s *server) got() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.seen...)
}

// waitFor returns the first request of which ok holds.
func (s *server) waitFor(t *testing.T, what string, ok func(seen) bool) seen {
	t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		all, come := s.seen, s.come
		s.mu.Unlock()
		for _, one := range all {
			if ok(one) {
				return one
			}
		}
		select {
		case <-come:
		case <-late:
			t.Fatalf("the server never got %s; it got %d requests", what, len(all))
		}
	}
}

// client is at the other end of a proxy.
type client struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string
	ended chan error
	stop  context.CancelFunc
	log   *logs
}

// logs is what a proxy wrote.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// connect starts a proxy in front of a server. The cfg's limits that are 0
// are short ones, so that a test takes no longer than what it shows.
func connect(t *testing.T, url string, cfg mcpproxy.Config) *client {
	t.Helper()
	c := &client{t: t, lines: make(chan string, 4096), ended: make(chan error, 1), log: &logs{}}
	cfg.Target, cfg.URL = "box", url
	if cfg.Transport == nil {
		base := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
		t.Cleanup(base.CloseIdleConnections)
		cfg.Transport = base
	}
	if cfg.Limits.Pause == 0 {
		cfg.Limits.Pause = 10 * time.Millisecond
	}
	cfg.Log = slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p, err := mcpproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	in, w := io.Pipe()
	r, out := io.Pipe()
	c.in = w
	go func() {
		err := p.Run(ctx, in, out)
		_ = in.CloseWithError(io.ErrClosedPipe) // a client finds nobody
		_ = out.Close()
		c.ended <- err
	}()
	go func() {
		defer close(c.lines)
		lines := bufio.NewReaderSize(r, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			c.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	t.Cleanup(func() {
		c.stop()
		_ = w.Close()
		for range c.lines { // until it ends
		}
		if t.Failed() {
			t.Logf("the log:\n%s", c.log)
		}
	})
	return c
}

// say sends messages, a line each.
func (c *client) say(messages ...string) {
	c.t.Helper()
	for _, m := range messages {
		if _, err := io.WriteString(c.in, m+"\n"); err != nil {
			c.t.Fatal(err)
		}
	}
}

// hear returns the next message.
func (c *client) hear() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the proxy has ended")
		}
		return line
	case <-time.After(patience):
		c.t.Fatal("no message came")
	}
	return ""
}

// want fails unless the next message is this one.
func (c *client) want(message string) {
	c.t.Helper()
	if got := c.hear(); got != message {
		c.t.Fatalf("got %s\nwant %s", got, message)
	}
}

// end closes the client's side, and returns what else came.
func (c *client) end() []string {
	c.t.Helper()
	_ = c.in.Close()
	select {
	case err := <-c.ended:
		if err != nil {
			c.t.Fatal(err)
		}
	case <-time.After(patience):
		c.t.Fatal("the proxy does not end")
	}
	var rest []string
	for line := range c.lines {
		rest = append(rest, line)
	}
	return rest
}

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// welcome is the answer to initialize.
func welcome(version string) string {
	return `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"` + version + `","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`
}

// handshake says hello, in a session of the server.
func (c *client) handshake(version string) {
	c.t.Helper()
	c.say(initialize)
	c.want(welcome(version))
	c.say(initialized)
}

// serveSession is a server that keeps a session "S1" of a protocol version,
// has no stream of its own, and lets call answer all but the handshake.
func serveSession(t *testing.T, version string, call func(w http.ResponseWriter, r *http.Request, body string)) *server {
	return serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Method == http.MethodDelete:
		case strings.Contains(body, `"method":"initialize"`):
			w.Header().Set("Mcp-Session-Id", "S1")
			answer(w, welcome(version))
		case strings.Contains(body, `"method":"notifications/`):
			w.WriteHeader(http.StatusAccepted)
		default:
			call(w, r, body)
		}
	})
}

func answer(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, message)
}

// events begins a stream; the result sends a piece of it.
func events(w http.ResponseWriter) func(piece string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	return func(piece string) {
		_, _ = io.WriteString(w, piece)
		_ = http.NewResponseController(w).Flush()
	}
}
