package lockmodel_test

import (
	"testing"

	. "github.com/spendonce/spendonce/internal/lockmodel"
)

// Configurations that a rule can be taken out of without a new violation.
var (
	oursRefresh = Config{Procs: []Role{Refresh, Refresh, RefreshStore}, Crashes: 1, DecideAnew: true}
	oursLogin   = Config{Procs: []Role{Refresh, RefreshStore, LoginB}, Crashes: 1, DecideAnew: true}
	oursLogout  = Config{Procs: []Role{Refresh, RefreshStore, Logout}, Crashes: 1, DecideAnew: true}
	oursFair    = Config{Procs: []Role{Refresh, RefreshStore}, Crashes: 1, Stops: 1, ClockSteps: 1, Clock: Paced, Live: true}
	beside      = Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}}
	besideReuse = Config{Procs: []Role{RefreshStore, SourceRefresh}, Crashes: 1, ReuseGrace: true}
	noLocks     = Config{Procs: []Role{RefreshStore, LoginB}, NoKernelLocks: true}
	noLocksFair = Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true, Crashes: 1, Clock: Paced, Live: true}
)

// redundant has the rules whose removal breaks no promise in these
// configurations, and what they are for.
var redundant = []struct {
	rule    Rule
	why     string
	configs []Config
}{
	{MarkedIsDead, "speed: recovery in milliseconds instead of StaleAfter",
		[]Config{oursRefresh, oursLogin, oursFair, beside}},
	{RereadUnderLock, "the re-check before the send is a re-read under the guard as well; without both a spent token is sent",
		[]Config{oursRefresh, oursLogin, oursLogout, beside}},
	{SameBeforeRename, "narrows the conceded window between compare and rename to two adjacent calls",
		[]Config{oursRefresh, oursLogin, oursLogout, beside, besideReuse, noLocks, noLocksFair}},
	{ProveFirst, "spends nothing that cannot be saved; counted below",
		[]Config{oursRefresh, oursLogin, oursLogout, oursFair}},
	{NonceBeforeUnlink, "the guard says the same among ours; needed without kernel locks",
		[]Config{oursRefresh, oursLogin, oursLogout}},
	{GrantByCreate, "the guard admits one breaker among ours; needed beside a source program",
		[]Config{oursRefresh, oursLogin, oursLogout}},
	{WatchBeforeBreak, "ours alone never leave an unmarked file that is in use; needed when the clock steps",
		[]Config{oursRefresh, oursLogin, oursFair}},
	{EmptyWaitsForAge, "the same",
		[]Config{oursRefresh, oursLogin, oursFair}},
	{UnmarkedWaitsForAge, "the same",
		[]Config{oursRefresh, oursLogin, oursFair}},
	{RecheckLock, "the guard says the same among ours; needed without kernel locks",
		[]Config{oursRefresh, oursLogin, oursLogout}},
	{OwnBeforeRename, "the guard says the same among ours; needed without kernel locks",
		[]Config{oursRefresh, oursLogin, oursLogout}},
}

func TestRulesThatServeSomethingElse(t *testing.T) {
	searched := map[string]*Result{}
	for _, x := range redundant {
		configs := x.configs
		if short() {
			configs = configs[:1]
		}
		for _, c := range configs {
			with := searched[describe(c)]
			if with == nil {
				with = Search(c)
				searched[describe(c)] = with
			}
			c.Without = []Rule{x.rule}
			r := Search(c)
			if r.Found != with.Found || !r.Complete {
				t.Errorf("without %q: %s: %v, with it %v", x.rule, describe(c), r.Found, with.Found)
			}
		}
		t.Logf("%s: %s (%d searches)", x.rule, x.why, len(configs))
	}
}

// Where time-outs do not misfire, proving the commit first leaves an exchange
// unsaved only if somebody stops between the proof and the commit.
func TestProofBeforeSendSavesTokens(t *testing.T) {
	c := Config{Procs: []Role{Refresh, LoginB}, Clock: Paced, Stops: 1}
	with := Search(c).Outcomes["unsaved"]
	c.Without = []Rule{ProveFirst}
	without := Search(c).Outcomes["unsaved"]
	t.Logf("final states with an unsaved exchange: %d with the proof, %d without", with, without)
	if without <= with {
		t.Errorf("the proof saves nothing")
	}
}

// Every rule is in one of the tables, and every kind is found by some search:
// otherwise a check could be dead without anybody noticing.
func TestTablesAreComplete(t *testing.T) {
	rules, kinds := map[Rule]bool{}, Kinds(0)
	for _, m := range mutations {
		for _, r := range m.config.Without {
			rules[r] = true
		}
		kinds |= KindsOf(m.finds...)
	}
	for _, x := range redundant {
		rules[x.rule] = true
	}
	for _, x := range theorem {
		kinds |= x.allows
	}
	for _, x := range concessions {
		kinds |= x.concedes
	}
	for _, r := range Rules() {
		if !rules[r] {
			t.Errorf("no test takes out %q", r)
		}
	}
	for _, k := range AllKinds() {
		if !kinds.Has(k) {
			t.Errorf("no test finds %q", k)
		}
	}
}
