//go:build linux

package peercred_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/spendonce/spendonce/internal/proctest"
	"github.com/spendonce/spendonce/peercred"
)

func TestAnAnchorIsWaitedFor(t *testing.T) {
	for name, end := range map[string]func(m *member, a *peercred.Anchor){
		"until it exits": func(m *member, _ *peercred.Anchor) { m.zombie() },
		"until Close":    func(_ *member, a *peercred.Anchor) { a.Close() },
	} {
		l, pr, f := listen(t), newProver(t), newFamily(t)
		m := f.child(nil)
		a := anchored(t, pr, m.callsWell(l))
		if a.Exited() {
			t.Errorf("%s: exited too early", name)
		}
		ended := make(chan error)
		go func() { ended <- a.Wait() }()
		select {
		case err := <-ended:
			t.Errorf("%s: ended too early: %v", name, err)
		default:
		}
		end(m, a)
		if err := <-ended; (err == nil) != (name == "until it exits") || err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		if !a.Exited() {
			t.Errorf("%s: not exited", name)
		}
	}
}

// A broker waits for a thousand anchors.
func TestWaitingTakesNoThread(t *testing.T) {
	const anchors = 200
	l, pr, f := listen(t), newProver(t), newFamily(t)
	c := f.child(nil).callsWell(l)
	var waiting sync.WaitGroup
	var all []*peercred.Anchor
	for range anchors {
		a := anchored(t, pr, c)
		all = append(all, a)
		waiting.Go(func() { _ = a.Wait() })
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) > anchors/2 {
		t.Errorf("%d threads for %d anchors", len(tasks), anchors)
	}
	for _, a := range all {
		a.Close()
	}
	waiting.Wait()
}

func TestOnlyTheIdentifiedPeerBecomesAnAnchor(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	m := f.child(nil)
	c := m.callsWell(l)
	if a, err := c.Anchor(peercred.Process{PID: m.pid}); err == nil {
		t.Errorf("before the identification: %v", a.Process())
	}
	p, err := pr.Identify(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []peercred.Process{{PID: p.PID, StartTime: p.StartTime + 1}, {PID: p.PID + 1, StartTime: p.StartTime}, {}} {
		if a, err := c.Anchor(other); err == nil {
			t.Errorf("%v as %v", p, a.Process())
		}
	}
	a, err := c.Anchor(p)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Process() != p {
		t.Errorf("%v, want %v", a.Process(), p)
	}
	// It stays when the connection goes.
	c.Close()
	if a.Exited() {
		t.Error("the anchor ended with its connection")
	}
}

// thread returns a thread of this process that is not its first one, with its
// own start time: /proc shows it to who asks for the number.
func thread(t *testing.T, pr *peercred.Prover) peercred.Process {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid := number(t, task.Name())
		if tid == os.Getpid() {
			continue
		}
		if chain, _ := pr.Explain(tid, peercred.Process{}); len(chain) > 0 {
			return chain[0].Process
		}
	}
	t.Fatal("there is no other thread")
	return peercred.Process{}
}

// After a restart.
func TestAnAnchorIsOpenedFromItsRecord(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	m := f.child(nil)
	p := anchored(t, pr, m.callsWell(l)).Process()
	a, err := pr.OpenAnchor(p)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if a.Process() != p || a.Exited() {
		t.Errorf("%v, exited %t", a.Process(), a.Exited())
	}
	if _, err := pr.Descends(m.spawn().callsWell(l), a); err != nil {
		t.Error(err)
	}
	for _, other := range []peercred.Process{
		{PID: p.PID, StartTime: p.StartTime - 1},
		{PID: p.PID, StartTime: p.StartTime + 1},
		{PID: 0, StartTime: p.StartTime},
		{PID: -1, StartTime: p.StartTime},
		thread(t, pr),
	} {
		if a, err := pr.OpenAnchor(other); !errors.Is(err, peercred.ErrNoProcess) {
			t.Errorf("%v: %v, %v", other, a, err)
		}
	}
	m.zombie()
	_, err = pr.OpenAnchor(p)
	wantError(t, err, peercred.ErrNoProcess)
	proctest.Reap(t, m.pid)
	_, err = pr.OpenAnchor(p)
	wantError(t, err, peercred.ErrNoProcess)
}

func TestAClosedAnchorHasNoDescendants(t *testing.T) {
	l, pr, f := listen(t), newProver(t), newFamily(t)
	m := f.child(nil)
	a := anchored(t, pr, m.callsWell(l))
	c := m.callsWell(l)
	a.Close()
	_, err := pr.Descends(c, a)
	wantError(t, err, peercred.ErrAnchorExited)
}
