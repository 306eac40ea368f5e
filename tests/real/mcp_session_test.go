package real_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spendonce/spendonce/tests/real/everything"
)

// mcpClient is a program with the official client and a proxy of its own.
type mcpClient struct {
	*mcp.ClientSession
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func (u *mcpUser) connect(ctx context.Context) (*mcpClient, error) {
	c := &mcpClient{cmd: u.command(ctx, "mcp", "proxy", "demo")}
	c.cmd.Stderr = &c.stderr
	options := &mcp.ClientSessionOptions{}
	if u.server.Kind() == everything.SSE {
		options.ProtocolVersion = "2025-11-25" // to probe it for a newer one is refused, and the proxy says so
	}
	var err error
	c.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: c.cmd}, options)
	return c, err
}

func (c *mcpClient) echo(ctx context.Context, text string) error {
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": text}})
	if err != nil {
		return err
	}
	if said, ok := r.Content[0].(*mcp.TextContent); !ok || said.Text != "Echo: "+text {
		return fmt.Errorf("the answer is %v", r.Content[0])
	}
	return nil
}

// end closes the client's side and returns what the proxy said meanwhile.
func (u *mcpUser) end(c *mcpClient) string {
	u.t.Helper()
	if err := c.Close(); err != nil {
		u.t.Errorf("closing: %v", err)
	}
	said := c.stderr.String()
	u.remember(result{args: []string{"mcp", "proxy", "demo"}, stderr: said})
	return said
}

func TestTenMCPProxiesWithAnExpiredTokenMakeOneExchangeAndOneMoreWhenItIsRevoked(t *testing.T) {
	for _, kind := range []everything.Kind{everything.StreamableHTTP, everything.SSE} {
		t.Run(string(kind), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), mcpPatience)
			defer cancel()
			u := newMCPUser(t, kind, everything.Expired)
			clients := make([]*mcpClient, 10)
			all := func(do func(i int) error) {
				t.Helper()
				errs := make(chan error, len(clients))
				for i := range clients {
					go func() { errs <- do(i) }()
				}
				for range clients {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
			}
			all(func(i int) (err error) {
				if clients[i], err = u.connect(ctx); err != nil {
					return err
				}
				return clients[i].echo(ctx, fmt.Sprint("n", i))
			})
			if t.Failed() {
				return
			}
			if c := u.front.Tokens.Counters(); c.Exchanges != 1 || c.TokenPosts != 1 {
				t.Errorf("ten proxies with an expired token made %d exchanges", c.Exchanges)
			}
			token, _ := u.store()["demo"]["accessJwt"].(string)
			if err := u.front.Tokens.RevokeAccessToken(token); err != nil {
				t.Fatal(err)
			}
			all(func(i int) error { return clients[i].echo(ctx, fmt.Sprint("m", i)) })
			if c := u.front.Tokens.Counters(); c.Exchanges != 2 || c.TokenPosts != 2 || c.DoubleSpends != 0 {
				t.Errorf("after the token was revoked there were %d exchanges, %d double spends", c.Exchanges, c.DoubleSpends)
			}
			for _, c := range clients {
				if said := u.end(c); said != "" {
					t.Errorf("a proxy said %q", said)
				}
			}
		})
	}
}

func TestAnMCPSessionThatItsServerForgetsIsBegunAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), mcpPatience)
	defer cancel()
	u := newMCPUser(t, everything.StreamableHTTP, everything.Fresh)
	c, err := u.connect(ctx)
	if err != nil {
		t.Fatalf("%v: %s", err, c.stderr.String())
	}
	if err := c.echo(ctx, "before"); err != nil {
		t.Fatal(err)
	}
	u.front.ForgetSessions()
	if err := c.echo(ctx, "after"); err != nil {
		t.Error(err)
	}
	if said := u.end(c); said != "" {
		t.Errorf("the proxy said %s", said)
	}
	if n := strings.Count(u.server.Output(), "Session initialized with ID"); n != 2 {
		t.Errorf("%d sessions were begun", n)
	}
}

func TestAnMCPServerThatIsStartedAgainInMidUseGetsOneNewSessionAndTheNextCall(t *testing.T) {
	for kind, begun := range map[everything.Kind]string{
		everything.StreamableHTTP: "Session initialized with ID",
		everything.SSE:            "Client Connected",
	} {
		t.Run(string(kind), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), mcpPatience)
			defer cancel()
			u := newMCPUser(t, kind, everything.Fresh)
			c, err := u.connect(ctx)
			if err != nil {
				t.Fatalf("%v: %s", err, c.stderr.String())
			}
			if err := c.echo(ctx, "before"); err != nil {
				t.Fatal(err)
			}
			u.server.Close()
			next := startEverything(t, kind)
			u.front.Lead(next)
			for _, text := range []string{"after", "and again"} {
				if err := c.echo(ctx, text); err != nil {
					t.Errorf("%q: %v", text, err)
				}
			}
			u.end(c)
			if n := strings.Count(next.Output(), begun); n != 1 {
				t.Errorf("%d sessions were begun: %s", n, next.Output())
			}
			if c := u.front.Tokens.Counters(); c.TokenPosts != 0 {
				t.Errorf("there were %d token requests", c.TokenPosts)
			}
		})
	}
}
