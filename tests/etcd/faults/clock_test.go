//go:build linux

package faults_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// Machine 0 is an hour behind, machine 1 an hour ahead, machine 2 right. The
// lock goes by the server's time; what differs is only who finds a token old.
func TestClocksThatAreHoursApartSpendNothingTwice(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: hostsOf})
	f := newFleet(t, c, c.Programs, stale)
	f.hosts[0].SetClock(-time.Hour)
	f.hosts[1].SetClock(time.Hour)
	begin := func(machine int, args ...string) *process {
		p := f.command(machine, args...)
		p.Path = filepath.Join(programs, "spendonce-etcd") // a clock is that of the program that is started
		if err := f.hosts[machine].Start(p.Cmd); err != nil {
			if strings.Contains(err.Error(), "setting a clock") {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		return p.started()
	}

	for machine, want := range []string{" behind that of", " ahead of that of", "clock agrees with that of"} {
		if got := begin(machine, "doctor", "--verbose").end(); !strings.Contains(got.token, want) {
			t.Errorf("machine %d: doctor does not say %q: %s%s", machine, want, got.token, got.said)
		}
	}

	f.hold(spendoncetest.Before)
	p := begin(0)
	f.held(spendoncetest.Before, p)
	p.signal(syscall.SIGKILL)
	f.reached("the server has noticed", func(c spendoncetest.Counters) bool { return c.Abandoned == 1 })
	f.release(spendoncetest.Before)
	q := begin(1)
	q.gives("the successor whose clock is two hours ahead")
	if waited := time.Since(q.began); waited < stale/2 {
		t.Errorf("it took the lock of one who may live after %s", waited)
	}
	f.counted(1, 0)

	f.signIn()
	var all []*process
	for i := range 12 {
		all = append(all, begin(i%3))
	}
	for _, p := range all {
		p.gives("one of many")
	}
	if c := f.server.Counters(); c.DoubleSpends != 0 || c.Exchanges > 4 {
		t.Errorf("%d double spends, %d exchanges", c.DoubleSpends, c.Exchanges)
	}
	for i := range f.hosts {
		begin(i).gives("afterwards")
	}
}
