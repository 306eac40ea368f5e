//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spendonce/spendonce/spendoncetest"
)

// mcpHome is a user with a session for an MCP server, which takes an access
// token as long as the authorization server does.
type mcpHome struct {
	*home
	url      string
	requests atomic.Int32
	deleted  atomic.Int32 // sessions that were ended
	rejects  atomic.Bool  // every token
	lacks    atomic.Bool  // every token lacks a scope
}

func withMCP(t *testing.T, server http.Handler, expires string) *mcpHome {
	t.Helper()
	m := &mcpHome{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests.Add(1)
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case m.rejects.Load() || !m.server.Live(token):
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusUnauthorized)
			return
		case m.lacks.Load():
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="mcp:write mcp:admin"`)
			w.WriteHeader(http.StatusForbidden)
			return
		case r.Method == http.MethodDelete:
			m.deleted.Add(1)
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	m.url = front.URL + "/mcp"
	m.home = newHome(t, spendoncetest.TokenServerConfig{})
	m.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\n", m.url, m.server.TokenEndpoint(), m.server.ClientID()))
	m.signIn(expires)
	return m
}

// signIn stores a session, as another process would.
func (m *mcpHome) signIn(expires string) {
	m.t.Helper()
	m.session = m.server.NewSession("alice")
	b, err := json.Marshal(map[string]any{"work": map[string]string{
		"kind": "oidc", "refreshToken": m.session.RefreshToken.Reveal(), "accessJwt": m.session.AccessToken.Reveal(), "expiresAt": expires,
	}})
	must(m.t, err)
	m.write("state/remote-credentials.json", string(b))
	_ = os.Remove(filepath.Join(m.dir, "state/sessions/work.json"))
}

const (
	expired = "2020-01-01T00:00:00.000Z"
	lasting = "2999-01-01T00:00:00.000Z"
)

// echo is an MCP server of few words: it repeats what it is asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodDelete:
	case bytes.Contains(body, []byte(`"method":"initialize"`)):
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "S1")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	case bytes.Contains(body, []byte(`"method":"notifications/`)):
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bytes.Replace(body, []byte(`"method":"m"`), []byte(`"result":0`), 1))
	}
}

// pipes are a proxy whose messages the test writes and reads itself.
type pipes struct {
	*process
	in     io.WriteCloser
	output io.ReadCloser
	lines  *bufio.Reader
}

func (m *mcpHome) pipes(args ...string) *pipes {
	m.t.Helper()
	p := &pipes{process: m.command(append([]string{"mcp", "proxy", "work"}, args...)...)}
	p.Stdout = nil
	var err error
	p.output, err = p.StdoutPipe()
	must(m.t, err)
	p.lines = bufio.NewReader(p.output)
	p.in, err = p.StdinPipe()
	must(m.t, err)
	must(m.t, p.Start())
	m.t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

func (p *pipes) say(message string) {
	p.h.t.Helper()
	_, err := io.WriteString(p.in, message+"\n")
	must(p.h.t, err)
}

func (p *pipes) hear() string {
	p.h.t.Helper()
	late := time.AfterFunc(30*time.Second, func() { _ = p.Process.Kill() })
	line, err := p.lines.ReadString('\n')
	if late.Stop(); err != nil {
		p.h.t.Fatalf("%v; %s", err, p.err.String())
	}
	p.heard(line)
	return strings.TrimSuffix(line, "\n")
}

// heard keeps what will be searched for tokens.
func (p *pipes) heard(text string) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.h.outputs.WriteString(text)
}

// ask sends a request and returns the answer.
func (p *pipes) ask(id int) string {
	p.h.t.Helper()
	p.say(fmt.Sprintf(`{"id":%d,"method":"m"}`, id))
	return p.hear()
}

func (p *pipes) shakeHands() {
	p.h.t.Helper()
	p.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	if got := p.hear(); !strings.Contains(got, "2025-11-25") {
		p.h.t.Fatalf("got %s", got)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// over returns the exit code, and what else was said.
func (p *pipes) over() (int, string) {
	p.h.t.Helper()
	rest, err := io.ReadAll(p.lines)
	must(p.h.t, err)
	p.heard(string(rest))
	code, _ := p.end()
	return code, string(rest)
}

type greeting struct {
	Name string `json:"name"`
}

// greeter is an MCP server of the official kind, with one tool.
func greeter() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, func(_ context.Context, _ *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello " + in.Name}}}, nil, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

// mcpClient is a program with the official client and a proxy of its own.
type mcpClient struct {
	*mcp.ClientSession
	p *process
}

// dial prepares one.
func (h *home) dial(args ...string) *mcpClient {
	p := h.command(append([]string{"mcp", "proxy", "work"}, args...)...)
	p.Stdout = nil // the client reads it
	return &mcpClient{p: p}
}

// open starts the proxy and shakes hands.
func (c *mcpClient) open(ctx context.Context) (err error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	c.ClientSession, err = client.Connect(ctx, &mcp.CommandTransport{Command: c.p.Cmd}, nil)
	return err
}

// greet returns the error of a call that did not go as it should.
func (c *mcpClient) greet(ctx context.Context, name string) error {
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: greeting{name}})
	if err != nil {
		return err
	}
	if text, ok := r.Content[0].(*mcp.TextContent); !ok || text.Text != "hello "+name {
		return fmt.Errorf("the answer is %v", r.Content[0])
	}
	return nil
}

// close ends the client's side, and with it the proxy.
func (c *mcpClient) close(t *testing.T) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	h := c.p.h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outputs.WriteString(c.p.err.String())
}

// B10, by proxies: nobody sees an error.
func TestTenProxiesWithAnExpiredTokenMakeOneExchangeAndOneMoreWhenItIsRevoked(t *testing.T) {
	h := withMCP(t, greeter(), expired)
	const n = 10
	clients := make([]*mcpClient, n)
	all := func(do func(i int) error) {
		t.Helper()
		errs := make(chan error, n)
		for i := range n {
			go func() { errs <- do(i) }()
		}
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
	for i := range n {
		clients[i] = h.dial()
	}
	all(func(i int) error {
		if err := clients[i].open(t.Context()); err != nil {
			return err
		}
		return clients[i].greet(t.Context(), fmt.Sprint("n", i))
	})
	if c := h.server.Counters(); c.Exchanges != 1 || c.TokenPosts != 1 {
		t.Errorf("ten proxies with an expired token made %d exchanges", c.Exchanges)
	}
	_, token, _ := h.run("token", "work")
	must(t, h.server.RevokeAccessToken(token))
	all(func(i int) error { return clients[i].greet(t.Context(), fmt.Sprint("m", i)) })
	if c := h.server.Counters(); c.Exchanges != 2 || c.DoubleSpends != 0 {
		t.Errorf("after the token was revoked there were %d exchanges, %d double spends", c.Exchanges, c.DoubleSpends)
	}
	for _, c := range clients {
		c.close(t)
		if said := c.p.err.String(); said != "" {
			t.Errorf("a proxy said %q", said)
		}
	}
}

// B09
func TestAProxyBeforeAServerThatRejectsEveryTokenIsBrakedAndLives(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	p := h.pipes()
	p.shakeHands()
	h.rejects.Store(true)
	for i := range 8 {
		got := p.ask(i + 1)
		if !strings.Contains(got, fmt.Sprintf(`"id":%d,"error":{"code":-32001,`, i+1)) || !strings.Contains(got, `"kind":"rejected"`) {
			t.Errorf("got %s", got)
		}
	}
	if c := h.server.Counters(); c.Exchanges > 5 {
		t.Errorf("%d exchanges", c.Exchanges)
	}
	h.rejects.Store(false)
	if got := p.ask(9); got != `{"id":9,"result":0}` {
		t.Errorf("then: %s", got)
	}
	_ = p.in.Close()
	if code, rest := p.over(); code != 0 || rest != "" {
		t.Errorf("exit code %d, %q", code, rest)
	}
}

// B49
func TestAMissingScopeIsNamedWithTheLoginThatAddsIt(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	p := h.pipes()
	p.shakeHands()
	h.lacks.Store(true)
	got := p.ask(1)
	for _, want := range []string{`"id":1,"error":{"code":-32001,`, `spendonce login work --scope mcp:write --scope mcp:admin`, `"kind":"insufficient_scope"`, `"scopes":["mcp:write","mcp:admin"]`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if c := h.server.Counters(); c.TokenPosts != 0 {
		t.Errorf("%d token requests", c.TokenPosts)
	}
}

func TestALoginAndALogoutElsewhereAreNoticed(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), expired)
	must(t, h.server.RevokeFamily(h.session.RefreshToken.Reveal()))
	p := h.pipes()
	wantLogin := func(id int) {
		t.Helper()
		if got := p.ask(id); !strings.Contains(got, fmt.Sprintf(`"id":%d,"error":{"code":-32001,`, id)) || !strings.Contains(got, "'spendonce login work'") || !strings.Contains(got, `"kind":"login_required"`) {
			t.Errorf("got %s", got)
		}
	}
	wantLogin(1)
	wantLogin(2)
	if c := h.server.Counters(); c.TokenPosts != 1 {
		t.Errorf("%d token requests", c.TokenPosts)
	}
	h.signIn(lasting)
	if got := p.ask(3); got != `{"id":3,"result":0}` {
		t.Errorf("after a login: %s", got)
	}
	if code, _, err := h.run("logout", "work"); code != 0 {
		t.Fatal(err)
	}
	wantLogin(4)
	h.signIn(lasting)
	if got := p.ask(5); got != `{"id":5,"result":0}` {
		t.Errorf("after another login: %s", got)
	}
	_ = p.in.Close()
	if code, rest := p.over(); code != 0 || rest != "" {
		t.Errorf("exit code %d, %q", code, rest)
	}
}

func TestASessionOfAnotherServersOriginIsNotUsedAtTheOldOne(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	p := h.pipes()
	p.shakeHands()
	if got := p.ask(1); got != `{"id":1,"result":0}` {
		t.Fatalf("got %s", got)
	}
	// The stream of the server's own is asked for beside what the client says.
	h.eventually("the handshake, the stream and the call are at the server", func() bool { return h.requests.Load() == 4 })
	h.signIn(lasting)
	h.write("state/sessions/work.json", fmt.Sprintf(`{"version":1,"url":%q}`, h.server.ResourceURL()))
	before := h.requests.Load()
	if got := p.ask(2); !strings.Contains(got, `"error"`) || !strings.Contains(got, "start it again") {
		t.Errorf("got %s", got)
	}
	if n := h.requests.Load(); n != before {
		t.Errorf("the old server was asked %d times", n-before)
	}
	_ = p.in.Close()
	if code, rest := p.over(); code != 0 || rest != "" {
		t.Errorf("exit code %d, %q", code, rest)
	}
}

func TestATargetOfWhichNothingIsKnownIsAnErrorUntilItIs(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	h.write("config/spendonce/config.toml", "")
	h.write("state/remote-credentials.json", "{}")
	p := h.pipes()
	if got := p.ask(1); !strings.Contains(got, `"code":-32001`) || !strings.Contains(got, "spendonce login work --url URL") {
		t.Errorf("got %s", got)
	}
	// A login writes where its session belongs.
	h.signIn(lasting)
	h.write("state/sessions/work.json", fmt.Sprintf(`{"version":1,"url":%q}`, h.url))
	if got := p.ask(2); got != `{"id":2,"result":0}` {
		t.Errorf("after a login: %s", got)
	}
}

func TestALongMessageIsSentAgainAfterItsTokenWasRefused(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	p := h.pipes()
	p.shakeHands()
	must(t, h.server.RevokeAccessToken(h.session.AccessToken.Reveal()))
	text := strings.Repeat("0123456789abcdef", 20<<16)
	go func() { _, _ = io.WriteString(p.in, `{"id":1,"method":"m","params":["`+text+`"]}`+"\n") }()
	if got := p.hear(); got != `{"id":1,"result":0,"params":["`+text+`"]}` {
		t.Errorf("%d bytes came: %.100s", len(got), got)
	}
	if c := h.server.Counters(); c.Exchanges != 1 {
		t.Errorf("%d exchanges", c.Exchanges)
	}
}

// B50
func TestAProxyEndsWithItsClientAndEndsTheSession(t *testing.T) {
	for how, end := range map[string]struct {
		do   func(t *testing.T, p *pipes)
		code int
	}{
		"the input ends": {func(_ *testing.T, p *pipes) { _ = p.in.Close() }, 0},
		"a signal":       {func(t *testing.T, p *pipes) { must(t, p.Process.Signal(syscall.SIGTERM)) }, 0},
		"the output is closed": {func(t *testing.T, p *pipes) {
			must(t, p.output.Close())
			p.say(`{"id":2,"method":"m"}`)
		}, 1},
	} {
		t.Run(how, func(t *testing.T) {
			h := withMCP(t, http.HandlerFunc(echo), lasting)
			p := h.pipes()
			p.shakeHands()
			if got := p.ask(1); got != `{"id":1,"result":0}` {
				t.Fatal(got)
			}
			end.do(t, p)
			if code, _ := p.end(); code != end.code || h.deleted.Load() != 1 {
				t.Errorf("exit code %d, %d sessions ended; %s", code, h.deleted.Load(), p.err.String())
			}
		})
	}
}

func TestAProxyWhoseParentIsKilledEnds(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	r, w, err := os.Pipe()
	must(t, err)
	parent := exec.Command("sleep", "1000")
	parent.Stdout = w // it alone has the end that is written to
	must(t, parent.Start())
	p := h.command("mcp", "proxy", "work")
	p.Stdin = r
	must(t, p.Start())
	_, _ = r.Close(), w.Close()
	must(t, parent.Process.Kill())
	_ = parent.Wait()
	if code, out := p.end(); code != 0 || out != "" || p.err.String() != "" {
		t.Errorf("exit code %d, %q, %q", code, out, p.err.String())
	}
}

func TestAProxyWithNobodyAtItsInputEndsAtOnce(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), expired)
	p := h.command("mcp", "proxy", "work") // its input is /dev/null
	must(t, p.Start())
	if code, out := p.end(); code != 0 || out != "" || p.err.String() != "" {
		t.Errorf("exit code %d, %q, %q", code, out, p.err.String())
	}
	if n := h.requests.Load(); n != 0 || h.server.Counters().TokenPosts != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestTheEndDuringARefreshWaitsForItsCommit(t *testing.T) {
	for name, end := range map[string]func(p *pipes) error{
		"the input ends": func(p *pipes) error { return p.in.Close() },
		"a signal":       func(p *pipes) error { return p.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			h := withMCP(t, http.HandlerFunc(echo), lasting)
			p := h.pipes("--verbose")
			p.shakeHands()
			if got := p.ask(1); got != `{"id":1,"result":0}` {
				t.Fatal(got)
			}
			must(t, h.server.RevokeAccessToken(h.session.AccessToken.Reveal()))
			must(t, h.server.Hold(spendoncetest.After))
			p.say(`{"id":2,"method":"m"}`)
			h.held(spendoncetest.After, 1)
			must(t, end(p))
			if name == "a signal" {
				h.awaitTalk(p.process, "finishing the refresh")
			} else {
				h.awaitTalk(p.process, "has ended its side")
			}
			must(t, h.server.Release(spendoncetest.After))
			code, _ := p.over()
			if c := h.server.Counters(); code != 0 || c.Exchanges != 1 || h.deleted.Load() != 1 {
				t.Errorf("exit code %d, %d exchanges, %d sessions ended; %s", code, c.Exchanges, h.deleted.Load(), p.err.String())
			}
			if bytes.Contains(h.store(), []byte(h.session.RefreshToken.Reveal())) {
				t.Error("the store holds the token that was spent")
			}
			if left, _ := filepath.Glob(filepath.Join(h.dir, "state/locks/*.lock")); len(left) != 0 {
				t.Errorf("locks are left: %q", left)
			}
		})
	}
}

func TestALogTellsWhatHappensAndNoSecret(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), expired)
	file := filepath.Join(h.dir, "proxy.log")
	p := h.pipes("-v", "--log-json", "--log-file", file)
	p.shakeHands()
	if got := p.ask(1); got != `{"id":1,"result":0}` {
		t.Fatal(got)
	}
	p.say(`{"id":2,"method":"m","params":"what is said"}`)
	p.hear()
	_ = p.in.Close()
	if code, _ := p.over(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	kept, err := os.ReadFile(file)
	must(t, err)
	for where, text := range map[string]string{"stderr": p.err.String(), "the file": string(kept)} {
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s has the line %s", where, line)
			}
		}
		if !strings.Contains(text, `"method":"m"`) || !strings.Contains(text, `"bytes":`) {
			t.Errorf("%s does not say what happened: %s", where, text)
		}
		if strings.Contains(text, "S1") || strings.Contains(text, "what is said") {
			t.Errorf("%s says too much", where)
		}
	}
}

func TestALogFileIsRotatedByWhoeverFindsItLong(t *testing.T) {
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	file := filepath.Join(h.dir, "proxy.log")
	h.write("proxy.log", strings.Repeat("old\n", 3<<20))
	var all []*pipes
	for range 4 {
		all = append(all, h.pipes("--log-file", file))
	}
	for _, p := range all {
		_ = p.in.Close()
		if code, _ := p.over(); code != 0 {
			t.Errorf("exit code %d: %s", code, p.err.String())
		}
	}
	now, err := os.ReadFile(file)
	must(t, err)
	before, err := os.ReadFile(file + ".1")
	must(t, err)
	if !strings.HasPrefix(string(before), "old\n") || strings.Contains(string(now), "old\n") || strings.Count(string(before)+string(now), "msg=ended") != len(all) {
		t.Errorf("%d bytes before, now %q", len(before), now)
	}
}
