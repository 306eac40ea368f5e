package baseline_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/bench/baseline"
)

// What is measured against must do its work: a baseline that spends a token
// twice, or that has nobody to wait for, proves nothing.
func TestTheLockMakesTheDifference(t *testing.T) {
	for name, c := range map[string]struct {
		unlocked      bool
		posts, twice  int // at least
		exactlyThatIs bool
	}{
		"flock":    {false, 1, 0, true},
		"unlocked": {true, 2, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			path := filepath.Join(t.TempDir(), "session.json")
			session := server.NewSession("alice")
			err = baseline.Session{
				AccessToken: session.AccessToken.Reveal(), RefreshToken: session.RefreshToken.Reveal(), ExpiresAt: time.Now().Add(-time.Minute),
			}.Write(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Hold(spendoncetest.Before); err != nil {
				t.Fatal(err)
			}
			var running sync.WaitGroup
			for range 4 { // each opens the lock anew, as a process would
				running.Go(func() {
					client := baseline.Client{Path: path, Endpoint: server.TokenEndpoint(), ClientID: server.ClientID(), Unlocked: c.unlocked}
					token, err := client.Token(t.Context())
					if !c.unlocked && (err != nil || !server.Live(token)) {
						t.Errorf("no live token: %v", err)
					}
				})
			}
			if err := server.WaitForHeld(t.Context(), spendoncetest.Before, c.posts); err != nil {
				t.Fatal(err)
			}
			if err := server.Release(spendoncetest.Before); err != nil {
				t.Fatal(err)
			}
			running.Wait()
			n := server.Counters()
			if n.TokenPosts < c.posts || n.DoubleSpends < c.twice || c.exactlyThatIs && (n.TokenPosts != c.posts || n.DoubleSpends != c.twice) {
				t.Errorf("%d posts, %d double spends", n.TokenPosts, n.DoubleSpends)
			}
		})
	}
}
