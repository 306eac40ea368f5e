//go:build linux

package faults_test

import (
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// The promise: however many processes on however many machines ask at once,
// one sends and all have its result.
func TestNinetySixProcessesOnThreeMachinesMakeOneExchange(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Programs: hostsOf, Password: true, Record: true})
	f := newFleet(t, c, c.Programs, time.Minute)
	for range soaked(10, 1) {
		f.server.ExpireAccessTokens()
		f.signIn()
		before := f.server.Counters()
		f.hold(spendoncetest.Before)
		start := time.Now()
		var all []*process
		for i := range 96 {
			all = append(all, f.start(i%len(f.hosts)))
		}
		f.reached("one has sent", func(c spendoncetest.Counters) bool { return c.HeldBefore == 1 })
		f.release(spendoncetest.Before)
		live := map[string]int{}
		for _, p := range all {
			if r := p.end(); r.code == exitOK && f.server.Live(r.token) {
				live[r.token]++
			} else {
				t.Errorf("a process ended with %d: %s", r.code, r.said)
			}
		}
		after := f.server.Counters()
		t.Logf("%d exchanges, %d requests, %d double spends, %d tokens among %d processes in %s",
			after.Exchanges-before.Exchanges, after.TokenPosts-before.TokenPosts, after.DoubleSpends, len(live), len(all), time.Since(start).Round(time.Millisecond))
		if len(live) != 1 || after.TokenPosts != before.TokenPosts+1 || after.DoubleSpends != 0 {
			t.Errorf("%d tokens, %d requests, %d double spends", len(live), after.TokenPosts-before.TokenPosts, after.DoubleSpends)
		}
	}
	canary.Absent(t, f.tokens(), c.Places())
}
