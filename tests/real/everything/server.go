package everything

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Kind is a transport of the server's.
type Kind string

// The two transports that go by HTTP.
const (
	StreamableHTTP Kind = "streamableHttp"
	SSE            Kind = "sse" // HTTP with SSE, that of 2024-11-05
)

// path is where the server is spoken to.
func (k Kind) path() string {
	if k == SSE {
		return "/sse"
	}
	return "/mcp"
}

//go:embed harness.cjs
var harness []byte

// startTime is a generous bound for a start on a busy machine.
const startTime = time.Minute

// Server is a running process. Close it.
type Server struct {
	kind   Kind
	origin string
	cmd    *exec.Cmd
	stdin  io.Closer
	output output
	ended  chan struct{}
	stop   sync.Once
}

// Start starts a server on a free port of 127.0.0.1, and returns when it
// listens. Its environment is PATH, whatever ours is, as one of its tools tells
// it to everybody, and that another may fetch as much as 32 MiB.
func Start(ctx context.Context, kind Kind) (*Server, error) {
	dir, err := Modules(ctx)
	if err != nil {
		return nil, err
	}
	preload, err := place(ctx, "harness.cjs", harness)
	if err != nil {
		return nil, err
	}
	ready, says, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	s := &Server{kind: kind, ended: make(chan struct{})}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), "node", "--require", preload,
		filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), string(kind))
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GZIP_MAX_FETCH_SIZE=33554432"}
	s.cmd.ExtraFiles = []*os.File{says}
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if s.stdin, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	_ = says.Close()
	if err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	late := time.AfterFunc(startTime, s.Close)
	defer late.Stop()
	port, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil {
		s.Close()
		return nil, errors.Join(fmt.Errorf("the server does not start: %s", s.Output()), ctx.Err())
	}
	s.origin = "http://127.0.0.1:" + strings.TrimSpace(port)
	return s, nil
}

// URL is the address that a client is given.
func (s *Server) URL() string { return s.origin + s.kind.path() }

// Kind is the transport that it was started with.
func (s *Server) Kind() Kind { return s.kind }

// PID is that of its process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Output is what it has printed so far.
func (s *Server) Output() string { return s.output.String() }

// Close kills it, and returns when it is gone. Closing twice is harmless.
func (s *Server) Close() {
	s.stop.Do(func() {
		_ = s.cmd.Process.Kill()
		_ = s.stdin.Close()
	})
	<-s.ended
}

// output may be written to and read at the same time.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
