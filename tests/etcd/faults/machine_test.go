//go:build linux

package faults_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

const (
	// stale is the lock's one constant in most tests here. Etcd counts leases
	// in seconds, and finds a leader within one.
	stale = 6 * time.Second
	// lag is a line so slow that a test can act between two requests.
	lag = 120 * time.Millisecond
	// leeway is what a bound is exceeded by on a busy machine.
	leeway = 15 * time.Second
)

// Machine 0 refreshes and gets into trouble; machine 1 comes after it.
var troubles = map[string]func(*testing.T, *fleet){
	"killed with the lock": func(t *testing.T, f *fleet) {
		f.hosts[0].Delay(lag)
		locked := f.next("lock", true)
		p := f.start(0)
		locked()
		p.signal(syscall.SIGKILL)
		f.start(1).gives("the successor")
		f.counted(1, 0)
	},
	"killed with the mark": func(t *testing.T, f *fleet) {
		f.hosts[0].Delay(lag)
		marked := f.next("mark", true)
		p := f.start(0)
		marked()
		p.signal(syscall.SIGKILL)
		f.start(1).gives("the successor")
		f.counted(1, 0)
	},
	"killed when it has sent": func(t *testing.T, f *fleet) {
		f.hold(spendoncetest.Before)
		p := f.start(0)
		f.held(spendoncetest.Before, p)
		p.signal(syscall.SIGKILL)
		f.reached("the server has noticed", func(c spendoncetest.Counters) bool { return c.Abandoned == 1 })
		f.release(spendoncetest.Before)
		f.start(1).gives("the successor")
		f.counted(1, 0)
	},
	// The token is spent and its successor died with who got it: no fence can
	// help. The mark says that it was sent, so nobody is told of a refusal.
	"killed with the answer": func(t *testing.T, f *fleet) {
		f.hold(spendoncetest.After)
		p := f.start(0)
		f.held(spendoncetest.After, p)
		f.hosts[0].Delay(4 * lag) // it reads the value before it commits
		f.answered()
		p.signal(syscall.SIGKILL)
		f.hosts[0].Delay(0)
		f.start(1).refuses("the successor", exitLoginRequired, "outcome is unknown", 4*stale+leeway)
		f.counted(1, 1)
		f.signIn()
		f.start(0).gives("after a new login")
		f.counted(2, 1)
	},
	"cut off, its request unheard of": func(t *testing.T, f *fleet) {
		must(t, f.server.Script(spendoncetest.Answer{Hang: true}))
		marked := f.next("mark", true)
		p := f.start(0)
		marked()
		f.reached("it has sent", func(c spendoncetest.Counters) bool { return c.TokenPosts == 1 })
		f.hosts[0].Cut()
		token := f.start(1).gives("the successor")
		f.counted(1, 0)
		p.refuses("the one that is cut off", exitTemporary, "could not be refreshed", 2*stale+leeway)
		f.start(0).refuses("another one there", exitTemporary, "cannot be reached", stale)
		f.hosts[0].Join()
		if got := f.start(0).gives("joined again, it"); got != token {
			t.Error("it has another token")
		}
		f.counted(1, 0)
	},
	// The lease ends while the token is being exchanged: the successor must
	// send it, the server refuses what is spent, and both say so.
	"cut off, its token spent": func(t *testing.T, f *fleet) {
		f.hold(spendoncetest.After)
		p := f.start(0)
		f.held(spendoncetest.After, p)
		f.hosts[0].Cut()
		f.release(spendoncetest.After)
		f.start(1).refuses("the successor", exitLoginRequired, "outcome is unknown", 4*stale+leeway)
		f.counted(1, 1)
		p.refuses("the one that is cut off", exitTemporary, "could not be refreshed", 3*stale+leeway)
		f.hosts[0].Join()
		f.start(0).refuses("joined again, it", exitLoginRequired, "outcome is unknown", stale+leeway)
		f.counted(1, 1)
		f.signIn()
	},
	// Cut off with the answer in hand, and back before it gives up: it saves
	// what nobody else can have sent.
	"cut off with the answer, and back": func(t *testing.T, f *fleet) {
		f.hold(spendoncetest.After)
		p := f.start(0)
		f.held(spendoncetest.After, p)
		ended := f.next("lock", false)
		f.hosts[0].Delay(4 * lag)
		f.answered()
		f.hosts[0].Cut()
		ended() // its lease
		f.hosts[0].Join()
		f.hosts[0].Delay(0)
		token := p.gives("the one that was cut off")
		if got := f.start(1).gives("the next"); got != token {
			t.Error("it has another token")
		}
		f.counted(1, 0)
	},
	"stopped, and nobody came": func(t *testing.T, f *fleet) {
		f.hold(spendoncetest.After)
		p := f.start(0)
		f.held(spendoncetest.After, p)
		ended := f.next("lock", false)
		p.signal(syscall.SIGSTOP)
		ended()
		f.answered()
		p.signal(syscall.SIGCONT)
		token := p.gives("the one that was stopped")
		if got := f.start(1).gives("the next"); got != token {
			t.Error("it has another token")
		}
		f.counted(1, 0)
	},
	// The successor has the lock and has not marked yet: the old holder saves
	// its token, and the successor, looking again, finds it.
	"stopped, and its successor has not marked": func(t *testing.T, f *fleet) {
		f.hold(spendoncetest.After)
		p := f.start(0)
		f.held(spendoncetest.After, p)
		ended := f.next("lock", false)
		p.signal(syscall.SIGSTOP)
		f.answered()
		ended()
		f.hosts[1].Delay(lag)
		locked, saved := f.next("lock", true), f.next("value", true)
		q := f.start(1)
		locked()
		p.signal(syscall.SIGCONT)
		saved()
		token := p.gives("the one that was stopped")
		if got := q.gives("its successor"); got != token {
			t.Error("it has another token")
		}
		f.counted(1, 0)
	},
	// The successor has sent: the old holder hands its token out, saves
	// nothing, and says so.
	"stopped, and its successor has sent": func(t *testing.T, f *fleet) {
		f.hold(spendoncetest.After)
		p := f.start(0)
		f.held(spendoncetest.After, p)
		ended := f.next("lock", false)
		p.signal(syscall.SIGSTOP)
		f.answered()
		ended()
		f.hold(spendoncetest.Before)
		q := f.start(1)
		f.held(spendoncetest.Before, q)
		p.signal(syscall.SIGCONT)
		r := p.end()
		t.Logf("%d: %s", r.code, r.said)
		if r.code != exitStore || !f.server.Live(r.token) {
			t.Errorf("it ended with %d, its token lives: %v; it said %q", r.code, f.server.Live(r.token), r.said)
		}
		f.release(spendoncetest.Before)
		q.refuses("its successor", exitLoginRequired, "outcome is unknown", 2*stale+leeway)
		f.counted(1, 1)
		f.signIn()
	},
	// Stopped between its last look and the send, it is over the time in
	// which its lease surely lasted: it must not send any more.
	"stopped before it has sent": func(t *testing.T, f *fleet) {
		marked := f.next("mark", true)
		f.issuer.Cut()
		p := f.start(0)
		marked()
		// The looks after the mark take milliseconds, the call to the server
		// that is away until the bound.
		time.Sleep(stale / 5)
		ended := f.next("lock", false)
		p.signal(syscall.SIGSTOP)
		ended()
		f.issuer.Join()
		token := f.start(1).gives("the successor")
		p.signal(syscall.SIGCONT)
		if got := p.gives("the one that was stopped"); got != token {
			t.Error("it has another token")
		}
		f.counted(1, 0)
		if c := f.server.Counters(); c.TokenPosts != 1 {
			t.Errorf("%d requests", c.TokenPosts)
		}
	},
}

func TestAMachineInTroubleNeitherSpendsTwiceNorHoldsUpTheOthers(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Programs: 3 * len(troubles)})
	next := 0
	var all sync.WaitGroup
	room := make(chan struct{}, 4) // they mostly wait, whatever the number of processors
	for name, trouble := range troubles {
		hosts := c.Programs[next : next+3]
		next += 3
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			t.Run(name, func(t *testing.T) {
				f := newFleet(t, c, hosts, stale)
				trouble(t, f)
				f.recovers()
			})
		})
	}
	all.Wait()
}
