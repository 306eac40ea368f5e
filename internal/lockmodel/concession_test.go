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
}{
	// Nobody stops, dies or turns the clock: nothing is given up.
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced, Live: true, DecideAnew: true}},
	{config: Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Live: true, DecideAnew: true}},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true, Clock: Paced, Live: true, DecideAnew: true}},
	{config: Config{Procs: []Role{RefreshStore, RefreshStore, Logout}, NoKernelLocks: true, Clock: Paced, Live: true}},
	{config: Config{Procs: []Role{Refresh, Refresh}, OtherMachine: 2, Clock: Paced, Live: true, Crashes: 1}},

	// One process stops for longer than StaleAfter and is broken.
	{Config{Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced, Live: true, Stops: 1},
		KindsOf(DoubleSend, TwoHolders, Misreported)},
	{Config{Procs: []Role{RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Live: true, Stops: 1},
		KindsOf(DoubleSend, TwoHolders)},

	// One crash, recovered by several.
	{Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Live: true, Crashes: 1},
		recovery | KindsOf(DoubleSend, LostLogin, StaleWrite, Misreported, WrongServer)},
	{Config{Procs: []Role{RefreshStore, RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1},
		recovery},
	{Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1},
		recovery | KindsOf(LostLogin, StaleWrite)},
	{Config{Procs: []Role{RefreshStore, RefreshStore, Logout}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1},
		recovery | KindsOf(Resurrected, StaleWrite)},

	// The same without the window: what is left comes from elsewhere. The
	// target lock of one who waits out a dead one's store lock grows old too,
	// but its owner looks before it sends.
	{Config{Procs: []Role{RefreshStore, RefreshStore, LoginB}, NoKernelLocks: true, Clock: Paced, Live: true, Crashes: 1, AtomicBreak: true},
		KindsOf(TwoHolders, Robbed)},
	{Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Live: true, Crashes: 1, AtomicBreak: true},
		KindsOf(Misreported, WrongServer)},
	{Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}, Clock: Paced, Live: true, Crashes: 1, AtomicBreak: true, BothPrints: true},
		KindsOf(Misreported)},

	// The wall clock steps forward during an exchange.
	{Config{Procs: []Role{RefreshStore, SourceRefresh}, Clock: Paced, Live: true, ClockSteps: 1},
		recovery | KindsOf(DoubleSend, Misreported)},
	{Config{Procs: []Role{RefreshStore, RefreshStore}, NoKernelLocks: true, Clock: Paced, Live: true, ClockSteps: 1},
		recovery | KindsOf(DoubleSend)},
	{Config{Procs: []Role{LoginB, LoginA}, NoKernelLocks: true, Clock: Paced, Live: true, ClockSteps: 1}, 0},

	// Anything at any time.
	{Config{Procs: []Role{RefreshStore, SourceRefresh}, ReuseGrace: true, Crashes: 1},
		recovery | KindsOf(DoubleSend, LostRotation)},
	{Config{Procs: []Role{Refresh, SourceRefresh}},
		recovery | KindsOf(DoubleSend, Misreported)},
	{Config{Procs: []Role{RefreshStore, SourceRefresh, LoginB}},
		recovery | KindsOf(DoubleSend, LostLogin, StaleWrite, WrongServer, Misreported)},
	{Config{Procs: []Role{RefreshStore, SourceLogin}}, recovery | KindsOf(LostLogin, StaleWrite)},
	{Config{Procs: []Role{RefreshStore, SourceLogout}}, recovery | KindsOf(Resurrected, StaleWrite)},
	{Config{Procs: []Role{RefreshStore, SourceLoginB}}, recovery | KindsOf(LostLogin, StaleWrite, WrongServer)},
	{Config{Procs: []Role{RefreshStore, RefreshStore}, NoKernelLocks: true, ReuseGrace: true},
		recovery | KindsOf(DoubleSend, ResendSpent, LostRotation)},
	{Config{Procs: []Role{RefreshStore, LoginB}, NoKernelLocks: true},
		recovery | KindsOf(LostLogin, StaleWrite)},
	{Config{Procs: []Role{Refresh, Refresh}, OtherMachine: 2},
		recovery | KindsOf(DoubleSend, ResendSpent, Misreported)},

	// A source program signs in elsewhere: the shared file has no place for
	// the server's name, so our pin is wrong without anybody's fault.
	{Config{Procs: []Role{RefreshStore, SourceLoginB}, Clock: Paced, Live: true, DecideAnew: true}, KindsOf(WrongServer)},
}

func TestConcededLossesAndNoOthers(t *testing.T) {
	for _, x := range concessions {
		r := Search(x.config)
		t.Logf("%8d states: %s: %v", r.States, describe(x.config), r.Found)
		exactly(t, x.config, r, x.concedes)
	}
}
