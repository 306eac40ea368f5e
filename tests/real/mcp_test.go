package real_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/real/everything"
)

const mcpPatience = 2 * time.Minute

// mcpUser is somebody who is signed in to the reference MCP server.
type mcpUser struct {
	*machine
	server  *everything.Server
	front   *everything.Front
	session spendoncetest.Session

	seen     sync.Mutex
	requests []everything.Request
}

func newMCPUser(t *testing.T, kind everything.Kind, age everything.Age) *mcpUser {
	t.Helper()
	u := &mcpUser{machine: newMachine(t), server: startEverything(t, kind)}
	var err error
	if u.front, err = everything.Protect(u.server, everything.Config{Seen: u.see}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.front.Close() })
	if _, u.session, err = u.front.Home(u.home, "demo", age); err != nil {
		t.Fatal(err)
	}
	u.knows(u)
	return u
}

func (u *mcpUser) see(r everything.Request) {
	u.seen.Lock()
	defer u.seen.Unlock()
	u.requests = append(u.requests, r)
}

// headers are the values of a header, of all requests so far.
func (u *mcpUser) headers(name string) map[string]int {
	u.seen.Lock()
	defer u.seen.Unlock()
	values := map[string]int{}
	for _, r := range u.requests {
		values[r.Header.Get(name)]++
	}
	return values
}

// Secrets are those of the session as it was made.
func (u *mcpUser) Secrets() map[string]string {
	return map[string]string{u.session.AccessToken.Reveal(): "access_token", u.session.RefreshToken.Reveal(): "refresh_token"}
}

func startEverything(t *testing.T, kind everything.Kind) *everything.Server {
	t.Helper()
	s, err := everything.Start(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestTheOfficialMCPClientsSeeNoDifferenceThroughTheProxy(t *testing.T) {
	clients := map[string]func(context.Context, everything.Way) (everything.Transcript, error){
		"the TypeScript client": everything.PlayTypeScript,
		"the Go client":         everything.PlayGo,
	}
	for _, kind := range []everything.Kind{everything.StreamableHTTP, everything.SSE} {
		for name, play := range clients {
			t.Run(name+" by "+string(kind), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), mcpPatience)
				defer cancel()
				direct, proxied := newMCPUser(t, kind, everything.Fresh), newMCPUser(t, kind, everything.Fresh)
				type played struct {
					everything.Transcript
					err error
				}
				other := make(chan played)
				go func() {
					seen, err := play(ctx, everything.Way{Kind: kind, URL: direct.front.URL(), Token: direct.session.AccessToken.Reveal()})
					other <- played{seen, err}
				}()
				through, err := play(ctx, everything.Way{Command: []string{proxied.binary, "mcp", "proxy", "demo"}, Env: proxied.environment()})
				alone := <-other
				if err != nil || alone.err != nil {
					t.Fatalf("through the proxy: %v; directly: %v", err, alone.err)
				}
				for _, o := range append(alone.Failed(), through.Failed()...) {
					t.Errorf("%s: %s", o.Scenario, o.Error)
				}
				for _, d := range everything.Differences(alone.Transcript, through) {
					t.Errorf("%s: %s", d.Scenario, d.Text)
				}
				if through.Log != "" {
					t.Errorf("the proxy said %s", through.Log)
				}
				if refused := direct.front.Refused() + proxied.front.Refused(); refused != 0 {
					t.Errorf("%d requests were refused", refused)
				}
				if got := proxied.headers("Authorization"); len(got) != 1 || got["Bearer "+proxied.session.AccessToken.Reveal()] == 0 {
					t.Errorf("of %d requests not all had the token", len(proxied.requests))
				}
				if got := proxied.headers("Origin"); len(got) != 1 || got[""] == 0 {
					t.Errorf("requests had the origins %v", got)
				}
				if got := proxied.headers("Mcp-Protocol-Version"); kind == everything.StreamableHTTP && (got[""] != 1 || len(got) != 2) {
					t.Errorf("all but the first request have one protocol version, not %v", got)
				}
				if len(alone.Messages) < 150 {
					t.Errorf("there were %d messages", len(alone.Messages))
				}
			})
		}
	}
}
