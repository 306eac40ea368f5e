package lockmodel_test

import (
	"testing"

	. "github.com/spendonce/spendonce/internal/lockmodel"
)

// theorem has configurations of ours alone, with kernel locks. Time-outs fire
// at any moment, which also covers every stop: a process that is never
// scheduled again is a run that has not gone on yet.
var theorem = []struct {
	config Config
	allows Kinds // exceptions that the theorem names, or that change nothing
	big    bool
}{
	{config: Config{Procs: []Role{Refresh, Refresh}, Crashes: 2, DiskFaults: 1, LostAnswers: true, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, Refresh}, Crashes: 2, DiskFaults: 2, LostAnswers: true, ReuseGrace: true},
		allows: KindsOf(ResendUnmarked)},
	{config: Config{Procs: []Role{Refresh, RefreshStore}, Crashes: 2, DiskFaults: 1, LostAnswers: true, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, Refresh, Refresh}, Crashes: 1, LostAnswers: true, DecideAnew: true}, big: true},
	{config: Config{Procs: []Role{Refresh, Refresh, LoginB}, Crashes: 2, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, Refresh, LoginB}, Crashes: 1, LostAnswers: true, DecideAnew: true}, big: true},
	{config: Config{Procs: []Role{Refresh, Refresh, LoginB}, Crashes: 1, DiskFaults: 1, LostAnswers: true},
		allows: KindsOf(ResendUnmarked, ResendUnmarkedRefusal), big: true},
	{config: Config{Procs: []Role{Refresh, LoginB, LoginA}, Crashes: 2, DecideAnew: true}, big: true},
	{config: Config{Procs: []Role{RefreshStore, LoginB, LoginA}, Crashes: 1, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, Refresh, Logout}, Crashes: 1, DiskFaults: 1, DecideAnew: true},
		allows: KindsOf(ResendUnmarked)},
	{config: Config{Procs: []Role{Refresh, LoginB, Logout}, Crashes: 2, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, LoginB, Static}, Crashes: 2, DecideAnew: true},
		allows: KindsOf(Orphaned)},
	{config: Config{Procs: []Role{Refresh, Refresh, LoginB}, Crashes: 1, Unpinned: true, UserFile: 1, DecideAnew: true},
		allows: KindsOf(Orphaned)},
	{config: Config{Procs: []Role{Refresh, RefreshStore}, Crashes: 2, LostAnswers: true, Unpinned: true, UserFile: 1, Edits: 1, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, LoginB, Logout}, Crashes: 1, UserFile: 2, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, Refresh, RefreshStore, LoginB}}, big: true},
	{config: Config{Procs: []Role{Refresh, Refresh, LoginB, Logout}, Crashes: 1}, big: true},
	{config: Config{Procs: []Role{Refresh, Refresh, Refresh, LoginB}, DecideAnew: true}, big: true},
	{config: Config{Procs: []Role{Refresh, LoginB, LoginA, Static}, Crashes: 1},
		allows: KindsOf(Orphaned), big: true},
}

func TestTheoremHolds(t *testing.T) {
	total := 0
	for _, x := range theorem {
		if x.big && short() {
			continue
		}
		r := Search(x.config)
		total += r.States
		t.Logf("%8d states, %8d steps: %s: %v", r.States, r.Edges, describe(x.config), r.Found)
		exactly(t, x.config, r, x.allows)
	}
	t.Logf("%8d states in all", total)
}

// live has time-outs that fire only on what is dead, stopped or ended: then
// nobody waits for ever, and no run goes in circles.
var live = []struct {
	config Config
	allows Kinds
	big    bool
}{
	{config: Config{Procs: []Role{Refresh, RefreshStore}, Crashes: 1, Stops: 1, ClockSteps: 1, LostAnswers: true, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, Refresh, LoginB}, Crashes: 1, Stops: 1, DecideAnew: true}},
	{config: Config{Procs: []Role{Refresh, RefreshStore, Logout}, Crashes: 1, Stops: 1, ClockSteps: 1}},
	{config: Config{Procs: []Role{Refresh, Refresh, Refresh}, Crashes: 1, Stops: 1, LostAnswers: true}, big: true},
	{config: Config{Procs: []Role{Refresh, RefreshStore, LoginB, LoginA}, Crashes: 1}, big: true},
	{config: Config{Procs: []Role{Refresh, RefreshStore, LoginB}, Stops: 2}},
}

func TestEveryFairRunEnds(t *testing.T) {
	for _, x := range live {
		if x.big && short() {
			continue
		}
		c := x.config
		c.Clock, c.Live = Paced, true
		r := Search(c)
		t.Logf("%8d states, %8d steps: %s: %v", r.States, r.Edges, describe(c), r.Found)
		exactly(t, c, r, x.allows)
	}
}

// short leaves the big searches out: under the race detector they take ten
// times as long, and one goroutine has no races.
func short() bool { return testing.Short() || raceEnabled }

// exactly wants a complete search to have found these kinds and no other.
func exactly(t *testing.T, c Config, r *Result, want Kinds) {
	t.Helper()
	if !r.Complete {
		t.Errorf("%s: incomplete", describe(c))
	}
	for _, k := range AllKinds() {
		switch {
		case r.Found.Has(k) && !want.Has(k):
			t.Errorf("%s: %v\n%s", describe(c), k, r.Explain(k))
		case !r.Found.Has(k) && want.Has(k):
			t.Errorf("%s: %v is allowed here, but was not found", describe(c), k)
		}
	}
}
