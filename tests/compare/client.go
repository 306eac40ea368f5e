package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// client is the official Go client at the other end of a proxy.
type client struct {
	*mcp.ClientSession
	cmd   *exec.Cmd
	stdin io.Closer
}

// open starts a proxy and shakes hands. Who gets a client ends it.
func open(ctx context.Context, s *site) (*client, error) {
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Env = s.env
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, says, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = says
	err = cmd.Start()
	_ = says.Close()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	c := &client{cmd: cmd, stdin: in}
	c.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "compare", Version: "1"}, nil).Connect(ctx,
		&mcp.IOTransport{Reader: out, Writer: in, MaxLineLength: -1}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// end closes the client's side and returns how long the proxy took to end; one
// that does not is killed.
func (c *client) end() time.Duration {
	began := time.Now()
	_ = c.stdin.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	_ = c.cmd.Wait()
	return time.Since(began)
}

func (c *client) echo(ctx context.Context) error {
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "x"}})
	if err != nil {
		return err
	}
	if text, ok := r.Content[0].(*mcp.TextContent); !ok || text.Text != "Echo: x" {
		return fmt.Errorf("the answer is %v", r.Content[0])
	}
	return nil
}

// fetch has the server fetch something and returns the length of what comes.
func (c *client) fetch(ctx context.Context, url string) (int, error) {
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "gzip-file-as-resource", Arguments: map[string]any{"name": "x.gz", "data": url, "outputType": "resource"}})
	if err != nil {
		return 0, err
	}
	if text, ok := r.Content[0].(*mcp.TextContent); ok {
		return 0, fmt.Errorf("the server says %s", text.Text)
	}
	if blob, ok := r.Content[0].(*mcp.EmbeddedResource); ok {
		return len(blob.Resource.Blob), nil
	}
	return 0, nil
}
