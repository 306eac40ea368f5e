//go:build linux

package peercred_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/proctest"
	"github.com/spendonce/spendonce/peercred"
)

// zombie ends m, a child of the test, and waits until it is a zombie.
func (m *member) zombie() {
	m.t.Helper()
	m.exit()
	for {
		err := unix.Waitid(unix.P_PID, m.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			m.t.Fatal(err)
		}
	}
}

// K04: at each of the moments at which it may exit.
func TestAPeerThatExitedIsRefused(t *testing.T) {
	for name, end := range map[string]func(m *member){
		"a zombie": (*member).zombie,
		"reaped":   func(m *member) { m.exit(); proctest.Reap(m.t, m.pid) },
	} {
		t.Run(name+" before the accept", func(t *testing.T) {
			l, pr, f := listen(t), newProver(t), newFamily(t)
			m := f.child(nil)
			m.tell("dial %s", l.Addr())
			m.tell("send %q", "x")
			end(m)
			c := accept(t, l)
			wantError(t, c.Verify(), peercred.ErrExited)
			_, err := pr.Identify(c)
			wantError(t, err, peercred.ErrExited)
		})
		t.Run(name+" before the reading", func(t *testing.T) {
			l, pr, f := listen(t), newProver(t), newFamily(t)
			m := f.child(nil)
			c := m.callsWell(l)
			m.tell("send %q", "x")
			end(m)
			readAll(t, c, "x")
			wantError(t, c.Verify(), peercred.ErrExited)
			if p, err := pr.Identify(c); !errors.Is(err, peercred.ErrExited) || p != (peercred.Process{}) {
				t.Errorf("%v, %v", p, err)
			}
			if a, err := c.Anchor(peercred.Process{PID: m.pid}); err == nil {
				a.Close()
				t.Error("it became an anchor")
			}
		})
		t.Run(name+" before the descent", func(t *testing.T) {
			l, pr, f := listen(t), newProver(t), newFamily(t)
			m := f.child(nil)
			c := m.callsWell(l)
			a := anchored(t, pr, c)
			end(m)
			_, err := pr.Descends(c, a)
			wantError(t, err, peercred.ErrExited)
		})
		for pass := 1; pass <= 2; pass++ {
			t.Run(name+" in the descent", func(t *testing.T) {
				l, pr, f := listen(t), newProver(t), newFamily(t)
				anchor := f.child(nil)
				a := anchored(t, pr, anchor.callsWell(l))
				m := anchor.spawn()
				c := m.callsWell(l)
				pr.SetPause(func(at, hop int) {
					if at != pass || hop != 0 {
						return
					}
					m.exit()
					if name == "reaped" {
						anchor.tell("reap %d", m.pid)
					} else {
						anchor.tell("await %d", m.pid)
					}
				})
				_, err := pr.Descends(c, a)
				wantError(t, err, peercred.ErrExited)
				if at := hop(t, err); at != m.pid {
					t.Errorf("%v blames process %d", err, at)
				}
			})
		}
	}
}

func TestAnAnchorThatExitedInTheWalkIsNoAnchor(t *testing.T) {
	for pass := 1; pass <= 2; pass++ {
		l, pr, f := listen(t), newProver(t), newFamily(t)
		anchor := f.child(nil)
		a := anchored(t, pr, anchor.callsWell(l))
		c := anchor.spawn().callsWell(l)
		pr.SetPause(func(at, hop int) {
			if at == pass && hop == 0 {
				anchor.zombie()
			}
		})
		_, err := pr.Descends(c, a)
		wantError(t, err, peercred.ErrAnchorExited)
		if at := hop(t, err); at != anchor.pid {
			t.Errorf("%v blames process %d", err, at)
		}
	}
}

func TestAParentThatDiesInTheWalkChangesTheAncestry(t *testing.T) {
	for pass := 1; pass <= 2; pass++ {
		l, pr, f := listen(t), newProver(t), newFamily(t)
		anchor := f.child(nil)
		a := anchored(t, pr, anchor.callsWell(l))
		middle := anchor.spawn()
		m := middle.spawn()
		c := m.callsWell(l)
		pr.SetPause(func(at, hop int) {
			if at == pass && hop == 0 {
				middle.exit()
				anchor.tell("reap %d", middle.pid)
			}
		})
		_, err := pr.Descends(c, a)
		wantError(t, err, peercred.ErrAncestryChanged)
		pr.SetPause(nil)
		_, err = pr.Descends(c, a)
		wantError(t, err, peercred.ErrNotDescendant)
	}
}

func TestAnOldKernelsPeerIsServed(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	l.AsOldKernel(t, nil)
	anchor := f.child(nil)
	a := anchored(t, pr, anchor.callsWell(l))
	m := anchor.spawn()
	c := m.callsWell(l)
	if _, err := pr.Descends(c, a); err != nil {
		t.Error(err)
	}
	m.exit()
	anchor.tell("await %d", m.pid)
	wantError(t, c.Verify(), peercred.ErrExited)
}

func TestAnOldKernelsPeerThatExitedIsRefused(t *testing.T) {
	for name, end := range map[string]func(m *member){
		"a zombie": (*member).zombie,
		"reaped":   func(m *member) { m.exit(); proctest.Reap(m.t, m.pid) },
	} {
		l, f := listen(t), newFamily(t)
		l.AsOldKernel(t, nil)
		m := f.child(nil)
		m.tell("dial %s", l.Addr())
		end(m)
		c := accept(t, l)
		if err := c.Refusal(); !errors.Is(err, peercred.ErrNoPidfd) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
