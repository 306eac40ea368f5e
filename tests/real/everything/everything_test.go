package everything_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spendonce/spendonce/tests/real/everything"
)

const patience = time.Minute

func start(t *testing.T, kind everything.Kind) *everything.Server {
	t.Helper()
	s, err := everything.Start(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func protect(t *testing.T, s *everything.Server, cfg everything.Config) *everything.Front {
	t.Helper()
	f, err := everything.Protect(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// bearer adds a token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// echo is a session of the official client, and one call in it.
func echo(t *testing.T, kind everything.Kind, url, token string) error {
	t.Helper()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: bearer{token, base}}
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}
	if kind == everything.SSE {
		transport = &mcp.SSEClientTransport{Endpoint: url, HTTPClient: client}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "ü"}})
	if err != nil {
		return err
	}
	if text, ok := r.Content[0].(*mcp.TextContent); !ok || text.Text != "Echo: ü" {
		t.Errorf("the answer is %v", r.Content[0])
	}
	return nil
}

func TestTheServerAnswersBehindAFrontThatChecksTokens(t *testing.T) {
	for _, kind := range []everything.Kind{everything.StreamableHTTP, everything.SSE} {
		t.Run(string(kind), func(t *testing.T) {
			server := start(t, kind)
			if err := echo(t, kind, server.URL(), ""); err != nil {
				t.Errorf("directly: %v; %s", err, server.Output())
			}
			var mu sync.Mutex
			var tokens []string
			front := protect(t, server, everything.Config{Seen: func(r everything.Request) {
				mu.Lock()
				defer mu.Unlock()
				tokens = append(tokens, r.Header.Get("Authorization"))
			}})
			token := front.Tokens.NewSession("alice").AccessToken.Reveal()
			if err := echo(t, kind, front.URL(), token); err != nil {
				t.Errorf("with a token: %v; %s", err, server.Output())
			}
			if front.Refused() != 0 {
				t.Errorf("%d requests with the token were refused", front.Refused())
			}
			mu.Lock()
			for _, seen := range tokens {
				if seen != "Bearer "+token {
					t.Errorf("a request had %q", seen)
				}
			}
			if len(tokens) < 3 {
				t.Errorf("the front saw %d requests", len(tokens))
			}
			mu.Unlock()
			front.Tokens.ExpireAccessTokens()
			if err := echo(t, kind, front.URL(), token); err == nil {
				t.Error("an expired token is let through")
			}
			if front.Refused() == 0 {
				t.Error("nothing was refused")
			}
			if strings.Contains(server.Output(), token) {
				t.Error("the server got the token")
			}
		})
	}
}

func TestARefusalNamesTheAuthorizationServer(t *testing.T) {
	front := protect(t, start(t, everything.StreamableHTTP), everything.Config{})
	get := func(url string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	refusal := get(front.URL())
	_, rest, _ := strings.Cut(refusal.Header.Get("WWW-Authenticate"), `resource_metadata="`)
	metadata, _, found := strings.Cut(rest, `"`)
	if refusal.StatusCode != http.StatusUnauthorized || !found {
		t.Fatalf("status %d, %q", refusal.StatusCode, refusal.Header.Get("WWW-Authenticate"))
	}
	body, err := io.ReadAll(get(metadata).Body)
	if err != nil || !strings.Contains(string(body), front.Tokens.Issuer()) || !strings.Contains(string(body), front.URL()) {
		t.Errorf("%s has %s, %v", metadata, body, err)
	}
}

func TestASessionEndsWithItsServerAndTheFrontLeadsToTheNext(t *testing.T) {
	first := start(t, everything.StreamableHTTP)
	front := protect(t, first, everything.Config{})
	token := front.Tokens.NewSession("alice").AccessToken.Reveal()
	first.Close()
	if err := echo(t, everything.StreamableHTTP, front.URL(), token); err == nil {
		t.Error("a server that was closed answers")
	}
	front.Lead(start(t, everything.StreamableHTTP))
	if err := echo(t, everything.StreamableHTTP, front.URL(), token); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestOfSeveralThatFindNothingInstalledOneInstalls(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir) // where the cache is for macOS
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	npm := "#!/bin/sh\nset -e\ntest -f package-lock.json\necho \"$@\" >>" + filepath.Join(dir, "installs") + "\nmkdir node_modules\n"
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(npm), 0o700); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if at, err := everything.Modules(t.Context()); err != nil {
				t.Error(err)
			} else if _, err := os.Stat(filepath.Join(at, "node_modules")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if calls, err := os.ReadFile(filepath.Join(dir, "installs")); err != nil || strings.Count(string(calls), "\n") != 1 {
		t.Errorf("npm was called so: %q, %v", calls, err)
	}
}
