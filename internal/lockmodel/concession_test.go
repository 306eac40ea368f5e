package lockmodel_test

import (
	"testing"

	. "github.com/spendonce/spendonce/internal/lockmodel"
)

// recovery is what the window between look and unlink costs when several
// recover one crash.
var recovery = KindsOf(TwoHolders, Robbed, RobbedAtRelease)

// concessions has what the rules give up beside a source program, without
// kernel locks, and between machines whose kernel locks are their own. Each
// search must find exactly these kinds: no other, and none fewer.
var concessions = []struct {
	config   Config
	concedes Kinds
	big      bool
}{
	// Nobody stops, dies or turns the clock: nothing is given up.
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced, Live: true, DecideAnew: true}},
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Live: true, DecideAnew: true}},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true, Clock: Paced, Live: true, DecideAnew: true}},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, Logout}, NoKernelLocks: true, Clock: Paced, Live: true}},
	{config: Config{Procs: []Role{Refresh, Refresh}, OtherMachine: 2, Clock: Paced, Live: true, Crashes: 1}},

	// One process stops for longer than StaleAfter and is broken.
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced, Live: true, Stops: 1},
		concedes: KindsOf(DoubleSend, TwoHolders, Misreported)},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Live: true, Stops: 1},
		concedes: KindsOf(DoubleSend, TwoHolders)},

	// One crash, recovered by several.
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Live: true, Crashes: 1},
		concedes: recovery | KindsOf(DoubleSend, LostLogin, StaleWrite, Misreported, ShutOut)},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1},
		concedes: recovery},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1},
		concedes: recovery | KindsOf(LostLogin, StaleWrite, Orphaned)},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, Logout}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1},
		concedes: recovery | KindsOf(Resurrected, StaleWrite)},

	// The same without the window: what is left comes from elsewhere. The
	// target lock of one who waits out a dead one's store lock grows old too,
	// but its owner looks before it sends.
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1, AtomicBreak: true},
		concedes: KindsOf(TwoHolders, Robbed)},
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Live: true, Crashes: 1, AtomicBreak: true},
		concedes: KindsOf(Misreported, ShutOut)},

	// The wall clock steps forward during an exchange.
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced, Live: true, ClockSteps: 1},
		concedes: recovery | KindsOf(DoubleSend, Misreported)},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Live: true, ClockSteps: 1},
		concedes: recovery | KindsOf(DoubleSend)},
	{config: Config{Procs: []Role{LoginB, LoginA}, NoKernelLocks: true, Clock: Paced, Live: true, ClockSteps: 1}, concedes: 0},

	// Anything at any time.
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh}, ReuseGrace: true, Crashes: 1},
		concedes: recovery | KindsOf(DoubleSend, LostRotation)},
	{config: Config{Procs: []Role{Refresh, SourceRefresh}},
		concedes: recovery | KindsOf(DoubleSend, Misreported)},
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}},
		concedes: recovery | KindsOf(DoubleSend, LostLogin, StaleWrite, WrongServer, Misreported, ShutOut, Orphaned)},
	{config: Config{Procs: []Role{RefreshStore, SourceLogin}}, concedes: recovery | KindsOf(LostLogin, StaleWrite, Orphaned)},
	{config: Config{Procs: []Role{RefreshStore, SourceLogout}}, concedes: recovery | KindsOf(Resurrected, StaleWrite)},
	{config: Config{Procs: []Role{RefreshStore, SourceLoginB}}, concedes: recovery | KindsOf(LostLogin, StaleWrite, WrongServer, Orphaned)},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore}, NoKernelLocks: true, ReuseGrace: true},
		concedes: recovery | KindsOf(DoubleSend, ResendSpent, LostRotation)},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true},
		concedes: recovery | KindsOf(DoubleSend, ResendSpent, LostLogin, StaleWrite, WrongServer, Misreported, ShutOut, Orphaned), big: true},
	{config: Config{Procs: []Role{RefreshStore, LoginB}, NoKernelLocks: true},
		concedes: recovery | KindsOf(LostLogin, StaleWrite, Orphaned)},
	{config: Config{Procs: []Role{Refresh, Refresh}, OtherMachine: 2},
		concedes: recovery | KindsOf(DoubleSend, ResendSpent, Misreported)},

	// A source program signs in elsewhere: the shared file has no place for
	// the server's name, so our pin is wrong without anybody's fault.
	{config: Config{Procs: []Role{RefreshStore, SourceLoginB}, Clock: Paced, Live: true, DecideAnew: true}, concedes: KindsOf(WrongServer)},
}

func TestConcededLossesAndNoOthers(t *testing.T) {
	for _, x := range concessions {
		if x.big && short() {
			continue
		}
		r := Search(x.config)
		t.Logf("%8d states: %s: %v", r.States, describe(x.config), r.Found)
		exactly(t, x.config, r, x.concedes)
	}
}
