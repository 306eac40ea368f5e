package takeover_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/movein"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/internal/takeover"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// A test that kills runs this binary again with its job in this variable.
const jobVariable = "TAKEOVER_TEST_JOB"

type job struct {
	Ground ground
	Out    bool
	KillAt int // before that step on the disk, counted from 1
}

func TestMain(m *testing.M) {
	raw := os.Getenv(jobVariable)
	if raw == "" {
		os.Exit(m.Run())
	}
	var j job
	if err := json.Unmarshal([]byte(raw), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	n := 0
	disk := durable.Disk{Hook: func(_ durable.Step, do func() error) error {
		if n++; n == j.KillAt {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return do()
	}}
	err := j.Ground.in(disk)
	if j.Out {
		err = j.Ground.out(disk)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ground is where one session lies: at mcp-remote, as that writes it.
type ground struct {
	State, Auth     string
	Hash, URL       string
	TokenEndpoint   string
	Issuer          string
	ClientID        string
	InitialRefresh  string // a fingerprint
	server          *spendoncetest.TokenServer
	tokens          []canary.Value
	refreshedTokens int
}

const target = "example"

func newGround(t *testing.T, server *spendoncetest.TokenServer) *ground {
	t.Helper()
	root := inMemory(t)
	g := &ground{
		State: filepath.Join(root, "state"), Auth: filepath.Join(root, "mcp-auth", "mcp-remote-v1"),
		URL: "https://mcp.example.test/sse", TokenEndpoint: server.TokenEndpoint(), Issuer: server.Issuer(), ClientID: server.ClientID(), server: server,
	}
	g.Hash = movein.MCPRemoteHash(g.URL, "")
	g.signIn(t)
	return g
}

// inMemory is a directory whose fsync costs nothing, where the system has one:
// the sweeps make hundreds of grounds.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "takeover") //nolint:usetesting // a directory of memory, which t.TempDir is not
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// signIn writes what mcp-remote has after a login.
func (g *ground) signIn(t *testing.T) {
	t.Helper()
	s := g.server.NewSession("alice")
	g.tokens = append(g.tokens, canary.Value{Name: "access token", Secret: s.AccessToken}, canary.Value{Name: "refresh token", Secret: s.RefreshToken})
	g.InitialRefresh = s.RefreshToken.Fingerprint()
	must(t, os.MkdirAll(g.Auth, 0o755))
	write(t, g.file(movein.MCPRemoteTokens), map[string]any{
		"access_token": s.AccessToken.Reveal(), "refresh_token": s.RefreshToken.Reveal(), "token_type": "Bearer", "expires_in": 3600,
		"scope": "openid offline_access", "expires_at": time.Now().Add(time.Hour).UnixMilli(), "requested_scope": "openid offline_access",
	})
	write(t, g.file(movein.MCPRemoteClient), map[string]any{
		"client_id": g.ClientID, "redirect_uris": []string{"http://localhost:3334/oauth/callback"}, "client_name": "MCP CLI Proxy",
	})
}

func (g *ground) file(end string) string { return filepath.Join(g.Auth, g.Hash+end) }

func (g *ground) place() takeover.Place {
	return takeover.Place{Program: movein.MCPRemote, Dir: g.Auth, Name: g.Hash + movein.MCPRemoteTokens, Client: g.Hash + movein.MCPRemoteClient, URL: g.URL}
}

func (g *ground) open(disk durable.Disk) (*takeover.Mover, error) {
	// Shorter, so that what a kill leaves is waited for in the test's time.
	s, err := credstore.Open(credstore.Config{Dir: g.State, Disk: disk, StaleAfter: 2 * time.Second})
	return &takeover.Mover{Store: s, StateDir: g.State, Disk: disk}, err
}

func (g *ground) prepare(s movein.Session) (credstore.SignedIn, error) {
	return credstore.SignedIn{
		URL:    g.URL,
		Pin:    credstore.Pin{Issuer: g.Issuer, TokenEndpoint: g.TokenEndpoint, ClientID: s.ClientID, Scope: s.Scope},
		Tokens: credstore.Tokens{AccessToken: s.AccessToken, RefreshToken: s.RefreshToken, ExpiresAt: s.ExpiresAt, Lifetime: s.Lifetime},
	}, nil
}

func (g *ground) in(disk durable.Disk) error {
	m, err := g.open(disk)
	if err != nil {
		return err
	}
	return m.In(context.Background(), target, g.place(), g.prepare)
}

func (g *ground) out(disk durable.Disk) error {
	m, err := g.open(disk)
	if err != nil {
		return err
	}
	_, err = m.Out(context.Background(), target)
	return err
}

// refresh is what "spendonce token --refresh" does.
func (g *ground) refresh(t *testing.T) {
	t.Helper()
	m, err := g.open(durable.Disk{})
	must(t, err)
	src, err := m.Store.Source(credstore.SourceConfig{Target: target, Exchange: refresh.Exchange(nil)})
	must(t, err)
	_, err = src.Get(context.Background(), credstore.Request{Refresh: true})
	must(t, err)
	must(t, m.Store.Close(context.Background()))
	g.refreshedTokens++
}

// holders is who could send a refresh token now, and how good it is.
type holders struct {
	other, store, between *secret.Secret
}

func (g *ground) look(t *testing.T) holders {
	t.Helper()
	var h holders
	names, err := os.ReadDir(g.Auth)
	must(t, err)
	for _, e := range names {
		switch name := e.Name(); {
		case name == g.Hash+movein.MCPRemoteTokens:
			h.other = refreshTokenIn(t, filepath.Join(g.Auth, name), "refresh_token")
		case strings.Contains(name, ".spendonce-") && !strings.HasSuffix(name, ".tmp"):
			h.between = refreshTokenIn(t, filepath.Join(g.Auth, name), "refresh_token")
		}
	}
	store := filepath.Join(g.State, "remote-credentials.json")
	b, err := os.ReadFile(store)
	if errors.Is(err, fs.ErrNotExist) {
		return h
	}
	must(t, err)
	var records map[string]map[string]string
	must(t, json.Unmarshal(b, &records))
	if r, ok := records[target]; ok {
		h.store = new(secret.New(r["refreshToken"]))
	}
	return h
}

func refreshTokenIn(t *testing.T, path, member string) *secret.Secret {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	var members map[string]any
	must(t, json.Unmarshal(b, &members))
	text, _ := members[member].(string)
	return new(secret.New(text))
}

// oneHolder is the promise: never two who would send, and always one token
// that is good.
func (g *ground) oneHolder(t *testing.T) holders {
	t.Helper()
	h := g.look(t)
	if h.other != nil && h.store != nil {
		t.Error("both mcp-remote and the store hold the session")
	}
	if h.other != nil && h.between != nil {
		t.Error("the session is at mcp-remote, and another copy waits to be moved")
	}
	good := func(s *secret.Secret) bool { return s != nil && g.server.Spendable(s.Reveal()) }
	if !good(h.other) && !good(h.store) && !good(h.between) {
		t.Error("nobody holds a refresh token that the server takes: the session is lost")
	}
	if h.other != nil && !good(h.other) {
		t.Error("mcp-remote was given a refresh token that is spent")
	}
	return h
}

// moved checks the end of a move in.
func (g *ground) moved(t *testing.T) {
	t.Helper()
	h := g.oneHolder(t)
	if h.store == nil || h.other != nil || h.between != nil {
		t.Errorf("after the move: at mcp-remote %t, in the store %t, in between %t", h.other != nil, h.store != nil, h.between != nil)
	}
}

// back checks the end of a move out.
func (g *ground) back(t *testing.T) {
	t.Helper()
	h := g.oneHolder(t)
	if h.store != nil || h.other == nil || h.between != nil {
		t.Errorf("after giving back: at mcp-remote %t, in the store %t, in between %t", h.other != nil, h.store != nil, h.between != nil)
	}
}

// run does the job in a process of its own and reports whether it was killed.
func run(t *testing.T, j job) (killed bool) {
	t.Helper()
	raw, err := json.Marshal(j)
	must(t, err)
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(raw), "GORACE=atexit_sleep_ms=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false
	case errors.As(err, &exit) && exit.Sys().(interface{ Signaled() bool }).Signaled():
		return true
	}
	t.Fatalf("%v: %s", err, out.String())
	return false
}

func startServer(t *testing.T) *spendoncetest.TokenServer {
	t.Helper()
	s, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func write(t *testing.T, path string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	must(t, err)
	must(t, os.WriteFile(path, b, 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
