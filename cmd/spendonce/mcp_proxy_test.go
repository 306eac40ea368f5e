//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spendonce/spendonce/spendoncetest"
)

// withMCP is a user with a session for an MCP server, whose access token the
// server takes as long as the authorization server does. expires is what is
// stored of it.
func withMCP(t *testing.T, server http.Handler, expires string) *home {
	t.Helper()
	var tokens *spendoncetest.TokenServer
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !tokens.Live(token) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	h := newHome(t, spendoncetest.TokenServerConfig{})
	tokens = h.server
	h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\n", front.URL+"/mcp", h.server.TokenEndpoint(), h.server.ClientID()))
	b, err := json.Marshal(map[string]any{"work": map[string]string{
		"kind": "oidc", "refreshToken": h.session.RefreshToken.Reveal(), "accessJwt": h.session.AccessToken.Reveal(), "expiresAt": expires,
	}})
	must(t, err)
	h.write("state/remote-credentials.json", string(b))
	return h
}

const expired = "2020-01-01T00:00:00.000Z"

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
