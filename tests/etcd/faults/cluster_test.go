//go:build linux

package faults_test

import (
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

// Etcd gets into trouble while a machine exchanges the refresh token.
func TestEtcdInTroubleLosesNoTokenThatCameBack(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Programs: hostsOf})
	var restore func(*testing.T)
	for name, trouble := range map[string]func(*testing.T){
		"the leader is killed": func(t *testing.T) {
			old := c.Leader(t)
			old.Kill()
			restore = func(t *testing.T) { old.Restart(t) }
		},
		"the leader is cut off": func(t *testing.T) {
			old := c.Leader(t)
			old.Host.Cut()
			restore = func(*testing.T) { old.Host.Join() }
		},
		"the leader is stopped": func(t *testing.T) {
			old := c.Leader(t)
			old.Pause()
			restore = func(*testing.T) { old.Resume() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, c, c.Programs, stale)
			f.hold(spendoncetest.After)
			p := f.start(0)
			f.held(spendoncetest.After, p)
			q := f.start(1)
			trouble(t)
			f.answered()
			token := p.gives("the one that refreshed")
			// Who waits meanwhile gets the result, or is told in time.
			if r := q.end(); r.code != exitOK && r.code != exitTemporary || r.token != token && r.token != "" || r.took > stale+leeway/3 {
				t.Errorf("who waited ended with %d after %s: %s", r.code, r.took, r.said)
			}
			restore(t)
			f.recovers()
			f.counted(1, 0)
		})
	}
}

func TestWithoutAMajorityWhatCameBackWaits(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Programs: hostsOf})
	for name, without := range map[string]time.Duration{"for less than the bound": soaked(20*time.Second, stale)} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, c, c.Programs, max(stale, without))
			f.hold(spendoncetest.After)
			p := f.start(0)
			f.held(spendoncetest.After, p)
			c.Members[0].Kill()
			c.Members[1].Kill()
			f.answered()
			f.start(1).refuses("another one", exitTemporary, "etcd", f.stale+leeway)
			time.Sleep(without)
			select {
			case <-p.done:
				t.Error("it has ended")
			default:
			}
			c.Members[0].Launch(t)
			c.Members[1].Launch(t)
			p.gives("the one that refreshed")
			c.Members[0].Await(t)
			c.Members[1].Await(t)
			f.recovers()
			f.counted(1, 0)
		})
	}
	t.Run("for longer than the bound", func(t *testing.T) {
		f := newFleet(t, c, c.Programs, stale)
		f.hold(spendoncetest.After)
		p := f.start(0)
		f.held(spendoncetest.After, p)
		c.Members[0].Kill()
		c.Members[1].Kill()
		f.answered()
		r := p.end()
		t.Logf("%d after %s: %s", r.code, r.took, r.said)
		if r.code != exitStore || !f.server.Live(r.token) || r.took > 4*stale+leeway {
			t.Errorf("it ended with %d after %s, its token lives: %v: %s", r.code, r.took, f.server.Live(r.token), r.said)
		}
		c.Members[0].Launch(t)
		c.Members[1].Launch(t)
		c.Members[0].Await(t)
		c.Members[1].Await(t)
		f.start(1).refuses("the next", exitLoginRequired, "outcome is unknown", 3*stale+leeway)
		f.counted(1, 1)
		f.signIn()
		f.recovers()
	})
}
