package credstore_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
)

// storm lets processes loose on one expired token and checks that they made
// one exchange and all hold its result.
func storm(t *testing.T, processes, rounds int, cfg spendoncetest.TokenServerConfig) {
	t.Helper()
	s := server(t, cfg)
	for round := range rounds {
		g := newGround(t, s)
		before := s.Counters()
		workers, open := startAll(t, times(processes, g.token())...)
		open()
		reports := make([]report, len(workers))
		for i, w := range workers {
			reports[i] = w.report(t)
		}
		after := s.Counters()
		if after.Exchanges-before.Exchanges != 1 || after.TokenPosts-before.TokenPosts != 1 || after.DoubleSpends != 0 {
			t.Errorf("round %d: %d exchanges, %d requests, %d double spends", round,
				after.Exchanges-before.Exchanges, after.TokenPosts-before.TokenPosts, after.DoubleSpends)
		}
		want := fingerprintOf(storeOf(t, g.dir)[box], "accessJwt")
		for i, r := range reports {
			if r.Err != "" || r.Token != want {
				t.Errorf("round %d, process %d: %+v", round, i, r)
			}
		}
		g.settled(t)
		g.noLeak(t, workers...)
		if t.Failed() {
			return
		}
	}
}

func fingerprintOf(r record, member string) string {
	token, _ := r[member].(string)
	return secret.New(token).Fingerprint()
}

func TestStormOfExpiredTokensMakesOneExchange(t *testing.T) {
	for _, tt := range []struct{ processes, full, share, short int }{
		{2, 50, 5, 1}, {8, 200, 20, 2}, {32, 50, 1, 0}, {64, 200, stormShare(2), 0},
	} {
		t.Run(fmt.Sprint(tt.processes), func(t *testing.T) {
			storm(t, tt.processes, chosen(tt.full, tt.share, tt.short), spendoncetest.TokenServerConfig{Latency: 20 * time.Millisecond})
		})
	}
}

// stormShare is n in a plain binary: 64 processes with the race detector take
// seconds to start.
func stormShare(n int) int {
	if raced {
		return 0
	}
	return n
}

func TestStormAtASlowServerMakesOneExchange(t *testing.T) {
	storm(t, 24, chosen(20, 1, 0), spendoncetest.TokenServerConfig{Latency: time.Second})
}

// The resource server revokes a token that everybody holds.
func TestStormOfOneRejectedTokenMakesOneExchange(t *testing.T) {
	s := server(t, spendoncetest.TokenServerConfig{Latency: 20 * time.Millisecond})
	for range chosen(50, 5, 1) {
		g := newGround(t, s)
		r := storeOf(t, g.dir)[box]
		old, _ := r["accessJwt"].(string)
		refresh, _ := r["refreshToken"].(string)
		putStore(t, g.dir, map[string]record{box: oidc(refresh, old, in(time.Hour))})
		if err := s.RevokeAccessToken(old); err != nil {
			t.Fatal(err)
		}
		before := s.Counters()
		j := g.token()
		j.Rejected = old
		for i, r := range run(t, times(10, j)...) {
			if r.Err != "" || r.Token != fingerprintOf(storeOf(t, g.dir)[box], "accessJwt") {
				t.Errorf("process %d: %+v", i, r)
			}
		}
		if n := s.Counters().TokenPosts - before.TokenPosts; n != 1 {
			t.Errorf("%d requests", n)
		}
		g.settled(t)
	}
}

// Tokens, logins and logouts in any order: each refresh token is sent once,
// and what stands in the store at the end is alive.
func TestStormOfTokensLoginsAndLogouts(t *testing.T) {
	s := server(t, spendoncetest.TokenServerConfig{Latency: 5 * time.Millisecond})
	for range chosen(200, 8, 1) {
		g := newGround(t, s)
		g.signIn(t, other)
		jobs := times(5, g.token())
		for range 2 {
			session := s.NewSession("bob")
			login := g.token()
			login.Do, login.Refresh, login.Access = "login", session.RefreshToken.Reveal(), session.AccessToken.Reveal()
			jobs = append(jobs, login)
		}
		logout := g.token()
		logout.Do = "logout"
		beside := g.token()
		beside.Do, beside.Target, beside.Access = "static", "third", "static-token-beside"
		neighbour := g.token()
		neighbour.Target = other
		jobs = append(jobs, logout, beside, neighbour, neighbour)
		for i, r := range run(t, jobs...) {
			if r.Err != "" && !(jobs[i].Do == "token" && jobs[i].Target == box || jobs[i].Do == "logout") || r.Err != "" && r.Kind != "no credential" {
				t.Errorf("%s: %+v", jobs[i].Do, r)
			}
		}
		if c := s.Counters(); c.DoubleSpends != 0 || c.RefusedRefreshes != 0 || c.FamiliesRevoked != 0 {
			t.Errorf("%+v", c)
		}
		records := storeOf(t, g.dir)
		if records["third"]["token"] != "static-token-beside" {
			t.Error("the token beside was lost")
		}
		for _, target := range []string{box, other} {
			if r := records[target]; r != nil && !s.Spendable(fmt.Sprint(r["refreshToken"])) {
				t.Errorf("what is stored for %s is dead", target)
			}
		}
		if records[other] == nil {
			t.Error("the neighbour was lost")
		}
		// And the next call works.
		if records[box] != nil {
			if r := run(t, g.token())[0]; r.Err != "" || !s.Live(fmt.Sprint(storeOf(t, g.dir)[box]["accessJwt"])) {
				t.Errorf("afterwards: %+v", r)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// A server that never answers: one request, and everybody has the same
// temporary result within the bound.
func TestStormAtAServerThatHangs(t *testing.T) {
	const staleAfter = 4 * time.Second // the bound is half of it
	s := server(t, spendoncetest.TokenServerConfig{})
	g := newGround(t, s)
	g.signIn(t, other)
	good := server(t, spendoncetest.TokenServerConfig{})
	records := storeOf(t, g.dir)
	session := good.NewSession("alice")
	records[other] = oidc(session.RefreshToken.Reveal(), session.AccessToken.Reveal(), in(-time.Hour))
	putStore(t, g.dir, records)
	if err := s.Script(spendoncetest.Answer{Hang: true, Times: -1}); err != nil {
		t.Fatal(err)
	}
	hung := g.token()
	hung.StaleAfter = staleAfter
	beside := hung
	beside = beside.at(good)
	beside.Target = other
	workers, open := startAll(t, times(8, hung)...)
	open()
	if err := s.WaitForPosts(context30(t), 1); err != nil {
		t.Fatal(err)
	}
	// Another target is not affected.
	for _, r := range run(t, times(2, beside)...) {
		if r.Err != "" || r.Took > staleAfter/2 {
			t.Errorf("beside: %+v", r)
		}
	}
	first := ""
	for i, w := range workers {
		r := w.report(t)
		if r.Kind != "temporary" || r.Took > staleAfter/2+5*time.Second {
			t.Errorf("process %d: %+v", i, r)
		}
		if first == "" {
			first = r.Err
		}
		if r.Err != first {
			t.Errorf("%q and %q", r.Err, first)
		}
	}
	if n := s.Counters().TokenPosts; n != 1 {
		t.Errorf("%d requests", n)
	}
	if c := good.Counters(); c.Exchanges != 1 || c.TokenPosts != 1 {
		t.Errorf("beside: %d exchanges, %d requests", c.Exchanges, c.TokenPosts)
	}
	g.noLeak(t, workers...)
}

// B08: the server rotates and the answer is lost.
func TestALostAnswerIsAskedForOnceMore(t *testing.T) {
	for name, tt := range map[string]struct {
		grace time.Duration
		kind  string
		posts int
	}{
		"within a grace":  {30 * time.Second, "", 2},
		"without a grace": {0, "outcome unknown", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, spendoncetest.TokenServerConfig{ReuseGrace: tt.grace})
			g := newGround(t, s)
			if err := s.Script(spendoncetest.Answer{Drop: spendoncetest.After}); err != nil {
				t.Fatal(err)
			}
			r := run(t, g.token())[0]
			if r.Kind != tt.kind {
				t.Errorf("%+v", r)
			}
			if c := s.Counters(); c.TokenPosts != tt.posts || c.Exchanges != 1 {
				t.Errorf("%d requests, %d exchanges", c.TokenPosts, c.Exchanges)
			}
			if tt.kind == "" {
				g.settled(t)
				return
			}
			if storeOf(t, g.dir)[box] == nil {
				t.Error("the record was deleted")
			}
			if r := run(t, g.token())[0]; r.Kind != tt.kind {
				t.Errorf("afterwards: %+v", r)
			}
			if n := s.Counters().TokenPosts; n != tt.posts {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// B30 and B25, over real connections.
func TestServersThatFailForAWhileCostNoSession(t *testing.T) {
	for name, answers := range map[string][]spendoncetest.Answer{
		"500":                   {{Status: 500}},
		"503":                   {{Status: 503}},
		"HTML":                  {{Status: 200, ContentType: "text/html", Body: "<html>please sign in</html>"}},
		"a reset, twice":        {{Drop: spendoncetest.Before, Reset: true}, {Drop: spendoncetest.Before, Reset: true}},
		"an empty object":       {{Status: 200, Body: "{}"}},
		"half an answer, twice": {{Status: 200, Body: `{"access_token":"x"}`, Truncate: true}, {Status: 200, Body: `{"access_token":"x"}`, Truncate: true}},
		"a redirect":            {{Location: "http://127.0.0.1:1/"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, spendoncetest.TokenServerConfig{})
			g := newGround(t, s)
			before := storeOf(t, g.dir)[box]["refreshToken"]
			if err := s.Script(answers...); err != nil {
				t.Fatal(err)
			}
			store := open(t, credstore.Config{Dir: g.dir})
			src := sourceWith(t, store, credstore.SourceConfig{
				Target: box, Settings: settingsOf(s), Exchange: httpExchange(),
			})
			mustRefuse(t, src, credstore.Request{}, credstore.ErrTemporary)
			if storeOf(t, g.dir)[box]["refreshToken"] != before {
				t.Error("the record is not kept")
			}
			if n := s.Counters().TokenPosts; n != len(answers) {
				t.Errorf("%d requests", n)
			}
			// The back-off ends with the file that holds it.
			if err := os.Remove(sessionPath(g.dir, box)); err != nil {
				t.Fatal(err)
			}
			if _, err := get(src, credstore.Request{}); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			g.settled(t)
		})
	}
}
