package credstore_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
)

// stale is the constant of the tests that kill: long enough that recovery by
// the kernel and recovery by age cannot be taken for one another.
const stale = 6 * time.Second

// recovered checks that the process after a kill was served at once, but
// where the dead one left a lock file that it had made and not yet written:
// only its age tells then.
func recovered(t *testing.T, at step, r report) {
	t.Helper()
	if r.Err != "" {
		t.Errorf("killed at %s %s: the next process: %+v", at.Op, at.Path, r)
	}
	limit := stale / 2
	if byAge(at) {
		limit = 2*stale + 10*time.Second
	}
	if r.Took > limit {
		t.Errorf("killed at %s %s: the next process took %s", at.Op, at.Path, r.Took)
	}
}

func byAge(at step) bool { return at.Op == "write" && strings.HasSuffix(at.Path, ".lock") }

// staleAt is the constant of the worker that dies there, and of the next.
func staleAt(at step) time.Duration {
	if byAge(at) {
		return stale / 3 // it is waited for
	}
	return stale
}

// killPoints are the steps to be killed at: all of them, or every n-th.
func killPoints(steps []step) []int {
	every := chosen(1, 1, 9)
	if raced && every == 1 && chosen(1, 0, 0) == 0 {
		every = 3 // the plain run takes them all
	}
	var points []int
	for i := range steps {
		if i%every == 0 {
			points = append(points, i)
		}
	}
	return points
}

func TestStormOfKillsAtEveryStepOfARefresh(t *testing.T) {
	s := server(t, spendoncetest.TokenServerConfig{ReuseGrace: 30 * time.Second})
	clean := newGround(t, s)
	j := clean.token()
	j.StaleAfter = stale
	steps := run(t, j)[0].Steps
	if len(steps) < 40 {
		t.Fatalf("only %d steps: %v", len(steps), steps)
	}
	for _, i := range killPoints(steps) {
		g := newGround(t, s)
		j := g.token()
		j.StaleAfter, j.KillAt = staleAt(steps[i]), i+1
		workers, open := startAll(t, j)
		open()
		if !workers[0].killed(t) {
			t.Errorf("it was not killed at step %d", i)
		}
		j.KillAt = 0
		recovered(t, steps[i], run(t, j)[0])
		g.settled(t)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d steps, %d kills, %d tokens sent again", len(steps), len(killPoints(steps)), s.Counters().GraceReplays)
}

// Killed while the server has the request, before and after the rotation.
func TestAProcessThatIsKilledInMidExchangeIsSucceededAtOnce(t *testing.T) {
	for _, point := range []spendoncetest.Point{spendoncetest.Before, spendoncetest.After} {
		t.Run(string(point), func(t *testing.T) {
			s := server(t, spendoncetest.TokenServerConfig{ReuseGrace: 30 * time.Second})
			g := newGround(t, s)
			if err := s.Hold(point); err != nil {
				t.Fatal(err)
			}
			j := g.token()
			j.StaleAfter = stale
			workers, open := startAll(t, j)
			open()
			if err := s.WaitForHeld(context30(t), point, 1); err != nil {
				t.Fatal(err)
			}
			// Others wait behind the one that is about to die.
			waiting, letGo := startAll(t, times(3, j)...)
			letGo()
			if err := unix.Kill(workers[0].cmd.Process.Pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if !workers[0].killed(t) {
				t.Error("it was not killed")
			}
			err := s.WaitFor(context30(t), func(c spendoncetest.Counters) bool { return c.Abandoned+c.AnswersLost >= 1 })
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Release(point); err != nil {
				t.Fatal(err)
			}
			for _, w := range waiting {
				recovered(t, step{}, w.report(t))
			}
			g.settled(t)
			if n := s.Counters().Exchanges; n != 1 {
				t.Errorf("%d exchanges", n)
			}
			g.noLeak(t, waiting...)
		})
	}
}

// Without a grace the successor learns that the outcome is unknown, and says
// so.
func TestWithoutAGraceTheSuccessorOfADeadSenderSaysThatTheOutcomeIsUnknown(t *testing.T) {
	s := server(t, spendoncetest.TokenServerConfig{})
	g := newGround(t, s)
	if err := s.Hold(spendoncetest.After); err != nil {
		t.Fatal(err)
	}
	workers, open := startAll(t, g.token())
	open()
	if err := s.WaitForHeld(context30(t), spendoncetest.After, 1); err != nil {
		t.Fatal(err)
	}
	_ = workers[0].cmd.Process.Kill()
	workers[0].killed(t)
	if err := s.Release(spendoncetest.After); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := run(t, g.token())[0]; r.Kind != "outcome unknown" {
			t.Errorf("%+v", r)
		}
	}
	if n := s.Counters().TokenPosts; n != 2 {
		t.Errorf("%d requests", n)
	}
	if storeOf(t, g.dir)[box] == nil {
		t.Error("the record was deleted")
	}
}

// A login that dies at any step, between its files too: every refresh token
// is sent to the server that issued it and to no other.
func TestStormOfKillsAtEveryStepOfALogin(t *testing.T) {
	from, to := server(t, spendoncetest.TokenServerConfig{}), server(t, spendoncetest.TokenServerConfig{})
	ground := func() (*ground, job) {
		g := &ground{dir: stateDir(t), server: from}
		session := from.NewSession("alice")
		set, _ := settingsOf(from)()
		err := onlyError(open(t, credstore.Config{Dir: g.dir}).Login(t.Context(), box, credstore.SignedIn{URL: "https://rs.example", Pin: set.Pin, Tokens: credstore.Tokens{
			AccessToken: session.AccessToken, RefreshToken: session.RefreshToken, ExpiresAt: in(-time.Second),
		}}))
		if err != nil {
			t.Fatal(err)
		}
		session = to.NewSession("alice")
		j := job{Do: "login", Dir: g.dir, StaleAfter: stale}.at(to)
		j.Target, j.URL, j.Refresh, j.Access = box, "https://rs.example", session.RefreshToken.Reveal(), session.AccessToken.Reveal()
		return g, j
	}
	_, j := ground()
	steps := run(t, j)[0].Steps
	if len(steps) < 25 {
		t.Fatalf("only %d steps: %v", len(steps), steps)
	}
	sides := map[bool]int{}
	for _, i := range killPoints(steps) {
		g, j := ground()
		j.StaleAfter, j.KillAt = staleAt(steps[i]), i+1
		workers, open := startAll(t, j)
		open()
		if !workers[0].killed(t) {
			t.Errorf("it was not killed at step %d", i)
		}
		isNew := storeOf(t, g.dir)[box]["refreshToken"] == j.Refresh
		sides[isNew]++
		// The pin alone says where the token goes.
		recovered(t, steps[i], run(t, job{Do: "token", Dir: g.dir, Target: box, StaleAfter: j.StaleAfter})[0])
		at := from
		if isNew {
			at = to
		}
		if access, _ := storeOf(t, g.dir)[box]["accessJwt"].(string); !at.Live(access) {
			t.Errorf("killed at %v: what is stored is not of the server whose token was stored", steps[i])
		}
		for what, s := range map[string]*spendoncetest.TokenServer{"old": from, "new": to} {
			if c := s.Counters(); c.RefusedRefreshes != 0 || c.DoubleSpends != 0 {
				t.Errorf("killed at %v: the %s server was shown a token of the other", steps[i], what)
			}
		}
		for _, e := range from.Log() {
			if e.Token == secret.New(j.Refresh).Fingerprint() {
				t.Errorf("killed at %v: the new token went to the old server", steps[i])
			}
		}
		if t.Failed() {
			return
		}
	}
	if sides[true] == 0 || sides[false] == 0 {
		t.Errorf("the kills fell on one side of the store's replacement: %v", sides)
	}
	t.Logf("%d steps, kills: %d before the store was replaced, %d after", len(steps), sides[false], sides[true])
}
