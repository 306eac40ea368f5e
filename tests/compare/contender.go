package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/real/everything"
)

const patience = time.Minute

// contender is one of those that stand between a client and a server.
type contender string

const (
	direct    contender = "direct"
	spendonce contender = "spendonce"
	mcpRemote contender = "mcp-remote"
)

// site is a server with a front, and somebody who is signed in to it.
type site struct {
	server *everything.Server
	front  *everything.Front
	env    []string
	token  string

	command []string     // of a client that is to have a proxy
	ends    atomic.Int32 // requests that end a session
}

func (s *site) see(r everything.Request) {
	if r.Method == http.MethodDelete {
		s.ends.Add(1)
	}
}

func (s *site) close() {
	_ = s.front.Close()
	s.server.Close()
}

// site starts one of a kind. With own, a proxy has a session of its own, that
// it may refresh; else it is given the one token.
func (b *bench) site(ctx context.Context, c contender, kind everything.Kind, own bool) (s *site, err error) {
	s = &site{}
	if s.server, err = everything.Start(ctx, kind); err != nil {
		return nil, err
	}
	if s.front, err = everything.Protect(s.server, everything.Config{Seen: s.see}); err != nil {
		s.server.Close()
		return nil, err
	}
	if err = b.settle(ctx, c, s, own); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (b *bench) settle(ctx context.Context, c contender, s *site, own bool) error {
	home, err := b.home()
	if err != nil {
		return err
	}
	env, session, err := s.front.Home(home, "demo", everything.Fresh)
	if err != nil {
		return err
	}
	s.env, s.token = env, session.AccessToken.Reveal()
	switch c {
	case spendonce:
		s.command = []string{b.binary, "mcp", "proxy", "demo"}
	case mcpRemote:
		strategy := map[everything.Kind]string{everything.StreamableHTTP: "http-only", everything.SSE: "sse-only"}[s.server.Kind()]
		s.command = []string{"node", filepath.Join(b.modules, "node_modules/mcp-remote/dist/proxy.js"), s.front.URL(),
			"--allow-http", "--host", "127.0.0.1", "--transport", strategy}
		s.env = append(s.env, "MCP_REMOTE_CONFIG_DIR="+filepath.Join(home, "mcp-remote"), "TOKEN="+s.token, "BROWSER=true")
		if own {
			return s.signIn(ctx)
		}
		s.command = append(s.command, "--header", "Authorization: Bearer ${TOKEN}")
	case direct:
	}
	return nil
}

// way is how a client reaches the site.
func (s *site) way() everything.Way {
	return everything.Way{Kind: s.server.Kind(), URL: s.front.URL(), Token: s.token, Command: s.command, Env: s.env}
}

var authorizationURL = regexp.MustCompile(`http://\S+/authorize\?\S+`)

// signIn does what a person does whom mcp-remote sends to a browser: it opens
// the address that is printed, and signs in.
func (s *site) signIn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Env = s.env
	said := &watched{news: make(chan struct{})}
	cmd.Stderr = said
	stdin, err := cmd.StdinPipe() // held open, so that it goes on
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	address, err := said.await(ctx, authorizationURL)
	if err != nil {
		return fmt.Errorf("mcp-remote shows no address to sign in at: %w: %s", err, said.text())
	}
	callback, err := spendoncetest.Person{}.Authorize(ctx, address)
	if err != nil {
		return err
	}
	back, err := http.NewRequestWithContext(ctx, http.MethodGet, callback.String(), nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(back)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if _, err := said.await(ctx, regexp.MustCompile(`Proxy established successfully`)); err != nil {
		return fmt.Errorf("mcp-remote does not connect after the sign-in: %w: %s", err, said.text())
	}
	return nil
}

// watched is an output in which something is waited for.
type watched struct {
	mu   sync.Mutex
	b    bytes.Buffer
	news chan struct{} // closed and replaced
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.news)
	w.news = make(chan struct{})
	return w.b.Write(p)
}

func (w *watched) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (w *watched) await(ctx context.Context, pattern *regexp.Regexp) (string, error) {
	for {
		w.mu.Lock()
		found, news := pattern.FindString(w.b.String()), w.news
		w.mu.Unlock()
		if found != "" {
			return found, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// goSDK is the version of the Go client that is linked in.
func goSDK() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown version"
	}
	for _, m := range info.Deps {
		if strings.HasSuffix(m.Path, "modelcontextprotocol/go-sdk") {
			return m.Version
		}
	}
	return "of an unknown version"
}
