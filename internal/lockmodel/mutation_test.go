package lockmodel_test

import (
	"fmt"
	"testing"

	. "github.com/spendonce/spendonce/internal/lockmodel"
)

// mutation is a search without some rule that must find these kinds, none of
// which is there with the rule.
type mutation struct {
	config Config
	finds  []Kind
}

// mutations has the rules whose removal breaks a promise.
var mutations = []mutation{
	{Config{Without: []Rule{KeepToGuard}, Procs: []Role{Refresh, Refresh}, ReuseGrace: true, Live: true},
		[]Kind{DoubleSend, LostRotation, Endless}},
	{Config{Without: []Rule{NoBreakBehindGuard}, Procs: []Role{Refresh, Refresh}}, []Kind{Robbed}},
	{Config{Without: []Rule{EmptyWaitsForAge}, Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced}, []Kind{Robbed, DoubleSend}},
	{Config{Without: []Rule{UnmarkedWaitsForAge}, Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced}, []Kind{Robbed, DoubleSend}},
	{Config{Without: []Rule{ForeignBootUnmarked}, Procs: []Role{Refresh, Refresh}, OtherMachine: 2, Clock: Paced}, []Kind{Robbed, DoubleSend}},
	{Config{Without: []Rule{WatchBeforeBreak}, Procs: []Role{LoginB, LoginA}, NoKernelLocks: true, Clock: Paced, ClockSteps: 1},
		[]Kind{Robbed, StaleWrite}},
	{Config{Without: []Rule{GuardAfterUnlink}, Procs: []Role{LoginB, RefreshStore, SourceRefresh}, Clock: Paced, DecideAnew: true},
		[]Kind{TwoHolders, RobbedAtRelease, DoubleSend}},
	{Config{Without: []Rule{NonceBeforeUnlink}, Procs: []Role{RefreshStore, RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Crashes: 1, AtomicBreak: true},
		[]Kind{RobbedAtRelease}},
	{Config{Without: []Rule{NonceBeforeUnlink}, Procs: []Role{RefreshStore, RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Crashes: 1},
		[]Kind{DoubleSend}},
	{Config{Without: []Rule{GrantByCreate}, Procs: []Role{RefreshStore, RefreshStore, SourceRefresh}, Clock: Paced, Crashes: 1, AtomicBreak: true},
		[]Kind{TwoHolders, DoubleSend}},
	{Config{Without: []Rule{TakeBothLocks}, Procs: []Role{Refresh, RefreshStore}}, []Kind{DoubleSend}},
	{Config{Without: []Rule{TargetFirst}, Procs: []Role{Refresh, RefreshStore}, Clock: Paced, Live: true}, []Kind{Deadlock}},
	{Config{Without: []Rule{RereadUnderLock, RecheckRecord}, Procs: []Role{Refresh, Refresh}}, []Kind{DoubleSend, Unguarded}},
	{Config{Without: []Rule{RecheckLock}, Procs: []Role{RefreshStore, RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Crashes: 1},
		[]Kind{DoubleSend}},
	{Config{Without: []Rule{RecheckRecord}, Procs: []Role{Refresh, LoginB}}, []Kind{WrongServer}},
	{Config{Without: []Rule{WriteMark}, Procs: []Role{Refresh, Refresh}, Crashes: 1}, []Kind{Misreported}},
	{Config{Without: []Rule{KeepMark}, Procs: []Role{Refresh, Refresh}, DiskFaults: 1}, []Kind{ResendSpent}},
	{Config{Without: []Rule{KeepFoundMark}, Procs: []Role{Refresh, Refresh}, LostAnswers: true, Crashes: 1}, []Kind{Misreported}},
	{Config{Without: []Rule{HonourSpent}, Procs: []Role{Refresh, Refresh}, DiskFaults: 1}, []Kind{ResendSpent}},
	{Config{Without: []Rule{SpentOnGiveUp}, Procs: []Role{Refresh, Refresh, LoginB}, Crashes: 1}, []Kind{ResendSpent}},
	{Config{Without: []Rule{HonourRefused}, Procs: []Role{Refresh, Refresh}, LostAnswers: true}, []Kind{ResendRefused}},
	{Config{Without: []Rule{CompareAndSwap}, Procs: []Role{Refresh, LoginB}}, []Kind{LostLogin}},
	{Config{Without: []Rule{CompareAndSwap}, Procs: []Role{Refresh, Logout}}, []Kind{Resurrected}},
	{Config{Without: []Rule{LeaveRemoved}, Procs: []Role{Refresh, Logout}}, []Kind{Resurrected}},
	{Config{Without: []Rule{OwnBeforeRename}, Procs: []Role{RefreshStore, LoginB}, NoKernelLocks: true, Clock: Paced, ClockSteps: 1, AtomicBreak: true},
		[]Kind{LostLogin, StaleWrite}},
	{Config{Without: []Rule{CommitTakesStoreLock}, Procs: []Role{Refresh, LoginB}}, []Kind{Unguarded, LostLogin, StaleWrite}},
	{Config{Without: []Rule{PendingAtLogin}, Procs: []Role{Refresh, LoginB}, Crashes: 1}, []Kind{WrongServer}},
	{Config{Without: []Rule{SettleBeforeLogin}, Procs: []Role{Refresh, LoginB, LoginA}, Crashes: 2}, []Kind{WrongServer}},
	{Config{Without: []Rule{SettleBeforeSend}, Procs: []Role{Refresh, LoginB}, Crashes: 1}, []Kind{WrongServer}},
	{Config{Without: []Rule{SettleUnderLock}, Procs: []Role{Refresh, Refresh, LoginB}, DecideAnew: true}, []Kind{WrongServer}},
	{Config{Without: []Rule{PinAfterRecord}, Procs: []Role{Refresh, LoginB}}, []Kind{WrongServer}},
	{Config{Without: []Rule{RecordBeforeSession}, Procs: []Role{Refresh, Logout}, UserFile: 2, Crashes: 1}, []Kind{WrongServer}},
	{Config{Without: []Rule{OutcomeOfSameToken}, Procs: []Role{Refresh, Refresh, LoginB}, LostAnswers: true}, []Kind{WrongOutcome}},
	{Config{Without: []Rule{PendingNamesBoth}, Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Crashes: 1, AtomicBreak: true},
		[]Kind{WrongServer}},
	{Config{Without: []Rule{SettleBeforeCommit}, Procs: []Role{Refresh, Refresh, LoginB}, Crashes: 2}, []Kind{ShutOut}},
	{Config{Without: []Rule{RefusedMark}, Procs: []Role{Refresh, Refresh, LoginB}, LostAnswers: true, Crashes: 1}, []Kind{ResendUnnoted}},
	{Config{Without: []Rule{UnknownMark}, Procs: []Role{Refresh, Refresh, LoginB}, LostAnswers: true, Crashes: 1}, []Kind{Misreported}},
	{Config{Without: []Rule{MarkNamesLogin}, Procs: []Role{Refresh, Refresh, LoginA}, SameToken: true, DiskFaults: 1}, []Kind{ShutOut}},
	{Config{Without: []Rule{RefusedOfOne}, Procs: []Role{RefreshStore, RefreshStore, RefreshStore, SourceLogin}, LostAnswers: true, Clock: Paced}, []Kind{ShutOut}},
	{Config{Without: []Rule{PinBeforeSend}, Procs: []Role{Refresh, Refresh}, Unpinned: true, UserFile: 1, Edits: 1, Crashes: 1, DecideAnew: true},
		[]Kind{WrongServer}},
	{Config{Without: []Rule{RecheckSecond}, Procs: []Role{Refresh, Logout}, LostAnswers: true}, []Kind{BlindSend}},
	{Config{Without: []Rule{RecheckSecond}, Procs: []Role{RefreshStore, RefreshStore}, NoKernelLocks: true, LostAnswers: true, Clock: Paced, ClockSteps: 1},
		[]Kind{BlindSend}},
	{Config{Without: []Rule{RevokeOvertaken}, Procs: []Role{Refresh, LoginB}}, []Kind{Orphaned}},
	{Config{Without: []Rule{RevokeOvertaken}, Procs: []Role{Refresh, Logout}}, []Kind{Orphaned}},
	{Config{Without: []Rule{RevokeOnlyOtherLogin}, Procs: []Role{RefreshStore, SourceRefresh}, ReuseGrace: true}, []Kind{RevokedLiving}},
}

func TestEveryRuleIsNeeded(t *testing.T) {
	for _, m := range mutations {
		c := m.config
		with := c
		with.Without = nil
		if len(c.Procs) > 2 && c.Crashes > 1 && short() {
			continue
		}
		t.Run(fmt.Sprint(c.Without), func(t *testing.T) {
			intact := Search(with)
			if both := intact.Found & KindsOf(m.finds...); both != 0 {
				t.Fatalf("found with the rule in force too: %v", both)
			}
			c.StopAt = KindsOf(m.finds...)
			if c.Live {
				c.StopAt = 0
			}
			r := Search(c)
			t.Logf("%s: %d states with, %d without", describe(c), intact.States, r.States)
			for _, k := range m.finds {
				if !r.Found.Has(k) {
					t.Errorf("%v: not found (only %v)", k, r.Found)
					continue
				}
				t.Logf("%v, %d steps", k, len(r.Trace(k)))
			}
			if k := m.finds[len(m.finds)-1]; r.Found.Has(k) {
				t.Logf("shortest interleaving:\n%s", r.Explain(k))
			}
		})
	}
}
