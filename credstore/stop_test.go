package credstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
)

// pass lets real time go by, which is what a stopped process does not see.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	<-ctx.Done()
}

// Stopped in mid-exchange for longer than every bound, the answer in the
// socket: whoever is continued reads it and commits it.
func TestStormOfProcessesThatAreStoppedInMidExchangeLosesNoSession(t *testing.T) {
	const staleAfter = 10 * time.Second // the bound is half of it: enough to be stopped in
	n := chosen(50, 50, 5)
	if raced {
		n = min(n, 15)
	}
	s := server(t, spendoncetest.TokenServerConfig{})
	if err := s.Hold(spendoncetest.Before); err != nil {
		t.Fatal(err)
	}
	var grounds []*ground
	var jobs []job
	for range n {
		g := newGround(t, s)
		j := g.token()
		j.StaleAfter = staleAfter
		grounds, jobs = append(grounds, g), append(jobs, j)
	}
	workers, open := startAll(t, jobs...)
	open()
	if err := s.WaitForHeld(context30(t), spendoncetest.Before, n); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		w.stop(t)
	}
	if err := s.Release(spendoncetest.Before); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitFor(context30(t), func(c spendoncetest.Counters) bool { return c.InFlight == 0 }); err != nil {
		t.Fatal(err)
	}
	pass(t, staleAfter/2)
	for _, w := range workers {
		w.carryOn(t)
	}
	survived := 0
	for i, w := range workers {
		r := w.report(t)
		if r.Took < staleAfter/2 {
			t.Errorf("process %d: the bound had not passed: the test shows nothing", i)
		}
		if r.Err == "" && r.Token == fingerprintOf(storeOf(t, grounds[i].dir)[box], "accessJwt") {
			survived++
		} else {
			t.Errorf("process %d: %+v", i, r)
		}
		grounds[i].settled(t)
	}
	t.Logf("%d of %d sessions survived", survived, n)
	if c := s.Counters(); c.TokenPosts != n || c.Exchanges != n {
		t.Errorf("%d requests, %d exchanges", c.TokenPosts, c.Exchanges)
	}
}

// A holder is stopped beside others. Nobody takes its place: a stopped
// process can still send. They end in bounded time and say who stands in the
// way; when it is continued, the session is alive.
func TestAStoppedHolderIsNeverOverrun(t *testing.T) {
	const staleAfter = 2 * time.Second
	for _, where := range []string{"mark", "send", "exchange", "store"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := server(t, spendoncetest.TokenServerConfig{})
			g := newGround(t, s)
			session := g.signIn(t, other)
			j := g.token()
			j.StaleAfter = staleAfter
			holder := j
			if where == "exchange" {
				if err := s.Script(spendoncetest.Answer{Hold: spendoncetest.After}); err != nil {
					t.Fatal(err)
				}
			} else {
				holder.StopAt = where
			}
			workers, open := startAll(t, holder)
			open()
			if where == "exchange" {
				if err := s.WaitForHeld(context30(t), spendoncetest.After, 1); err != nil {
					t.Fatal(err)
				}
				workers[0].stop(t)
			} else {
				workers[0].awaitStop(t)
			}
			jobs := times(3, j)
			beside := j
			beside.Target = other
			if where != "store" { // there it keeps the store lock, too
				jobs = append(jobs, beside)
			}
			static := j
			static.Do, static.Target, static.Access = "static", "third", "static-token-beside"
			jobs = append(jobs, static)
			for i, r := range run(t, jobs...) {
				switch blocked := jobs[i].Target == box || where == "store"; {
				case !blocked && r.Err != "":
					t.Errorf("%s %s: %+v", jobs[i].Do, jobs[i].Target, r)
				case blocked && (r.Kind != "locked" || !strings.Contains(r.Err, fmt.Sprintf("kill -CONT %d", workers[0].cmd.Process.Pid))):
					t.Errorf("%s %s: %+v", jobs[i].Do, jobs[i].Target, r)
				case r.Took > 2*staleAfter+15*time.Second:
					t.Errorf("%s %s took %s", jobs[i].Do, jobs[i].Target, r.Took)
				}
			}
			if where == "exchange" {
				if err := s.Release(spendoncetest.After); err != nil {
					t.Fatal(err)
				}
				if err := s.WaitFor(context30(t), func(c spendoncetest.Counters) bool { return c.InFlight == 0 }); err != nil {
					t.Fatal(err)
				}
			}
			workers[0].carryOn(t)
			r := workers[0].report(t)
			if r.Err != "" && (where != "send" || r.Kind != "temporary") {
				// Only the one that is stopped before its send finds its time over.
				t.Errorf("the holder: %+v", r)
			}
			if err := os.Remove(sessionPath(g.dir, box)); err != nil { // with its back-off
				t.Error(err)
			}
			if r := run(t, j)[0]; r.Err != "" {
				t.Errorf("afterwards: %+v", r)
			}
			g.settled(t)
			if s.Spendable(session.RefreshToken.Reveal()) == (where != "store") {
				t.Error("the other target was not refreshed once")
			}
			g.noLeak(t, workers...)
		})
	}
}

// A holder that is continued while others still watch serves them all.
func TestAHolderThatIsContinuedInTimeServesThoseWhoWait(t *testing.T) {
	s := server(t, spendoncetest.TokenServerConfig{})
	g := newGround(t, s)
	holder := g.token()
	holder.StopAt = "store"
	workers, open := startAll(t, holder)
	open()
	workers[0].awaitStop(t)
	waiting, letGo := startAll(t, times(4, g.token())...)
	letGo()
	pass(t, 300*time.Millisecond) // some wait by then; it matters to no result
	workers[0].carryOn(t)
	want := ""
	for i, w := range append(workers, waiting...) {
		r := w.report(t)
		if want == "" {
			want = r.Token
		}
		if r.Err != "" || r.Token != want {
			t.Errorf("process %d: %+v", i, r)
		}
	}
	if n := s.Counters().TokenPosts; n != 1 {
		t.Errorf("%d requests", n)
	}
	g.settled(t)
}

// The machine sleeps with one process in mid-exchange and the others waiting,
// and everybody wakes at once, all bounds long past.
func TestEverybodyStoppedAndContinuedTogetherMakesOneExchange(t *testing.T) {
	const staleAfter = 4 * time.Second
	s := server(t, spendoncetest.TokenServerConfig{})
	if err := s.Hold(spendoncetest.After); err != nil {
		t.Fatal(err)
	}
	g := newGround(t, s)
	j := g.token()
	j.StaleAfter = staleAfter
	workers, open := startAll(t, times(chosen(12, 12, 4), j)...)
	open()
	if err := s.WaitForHeld(context30(t), spendoncetest.After, 1); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		w.stop(t)
	}
	if err := s.Release(spendoncetest.After); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitFor(context30(t), func(c spendoncetest.Counters) bool { return c.InFlight == 0 }); err != nil {
		t.Fatal(err)
	}
	pass(t, staleAfter+staleAfter/2)
	for _, w := range workers {
		w.carryOn(t)
	}
	for i, w := range workers {
		if r := w.report(t); r.Err != "" {
			t.Errorf("process %d: %s", i, r.Err)
		}
	}
	g.settled(t)
	if c := s.Counters(); c.TokenPosts != 1 || c.Exchanges != 1 || c.DoubleSpends != 0 || c.FamiliesRevoked != 0 {
		t.Errorf("%d requests, %d exchanges, %d double spends, %d families revoked", c.TokenPosts, c.Exchanges, c.DoubleSpends, c.FamiliesRevoked)
	}
}
