//go:build crash && linux

package peercred_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/proctest"
	"github.com/spendonce/spendonce/peercred"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can choose a pid, a uid or a mount")
	}
}

// endOf kills a child of the test and reaps it: its pid is free.
func endOf(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	proctest.Reap(t, pid)
}

// tick waits until a new process would not start in the clock tick of old.
func tick(t testing.TB, pr *peercred.Prover, old peercred.Process) {
	t.Helper()
	for {
		pid, err := proctest.Idle(0)
		if err != nil {
			t.Fatal(err)
		}
		chain, _ := pr.Explain(pid, peercred.Process{})
		endOf(t, pid)
		if len(chain) > 0 && chain[0].StartTime > old.StartTime {
			return
		}
	}
}

// impostor gives the pid to a new member of the family, a child of the test.
func (f *family) impostor(pid int) *member {
	f.t.Helper()
	got, err := cloneMember(pid, f.path)
	if err != nil || got != pid {
		f.t.Fatal(got, err)
	}
	f.t.Cleanup(func() { endOf(f.t, pid) })
	return f.meet(pid)
}

// K01: at every moment after the accept.
func TestAPeerWhosePidWasRecycledHasExited(t *testing.T) {
	needRoot(t)
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor := f.child(nil)
	a := anchored(t, pr, anchor.callsWell(l))
	peer := anchor.spawn()
	before, after := peer.callsWell(l), peer.callsWell(l)
	identified, err := pr.Identify(after)
	if err != nil {
		t.Fatal(err)
	}
	anchor.tell("kill %d", peer.pid)
	anchor.tell("clone %d", peer.pid)
	second := f.meet(peer.pid)

	wantError(t, before.Verify(), peercred.ErrExited)
	if p, err := pr.Identify(before); !errors.Is(err, peercred.ErrExited) || p != (peercred.Process{}) {
		t.Errorf("Identify: %v, %v", p, err)
	}
	late, err := after.Anchor(identified)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if !late.Exited() {
		t.Error("the second holder of the pid became an anchor in the peer's place")
	}
	_, err = pr.Descends(before, a)
	wantError(t, err, peercred.ErrExited)
	_, err = pr.Descends(after, a)
	wantError(t, err, peercred.ErrExited)
	// It is only itself.
	if _, err := pr.Descends(second.callsWell(l), a); err != nil {
		t.Errorf("the second holder of the pid: %v", err)
	}
}

func TestAnAnchorWhosePidWasRecycledHasExited(t *testing.T) {
	needRoot(t)
	l, pr, f := listen(t), newProver(t), newFamily(t)
	anchor := f.child(nil)
	c := anchor.callsWell(l)
	a := anchored(t, pr, c)
	endOf(t, anchor.pid)
	tick(t, pr, a.Process())
	impostor := f.impostor(anchor.pid)
	if !a.Exited() {
		t.Error("the anchor has not exited")
	}
	for name, m := range map[string]*member{"the impostor": impostor, "its child": impostor.spawn()} {
		_, err := pr.Descends(m.callsWell(l), a)
		if !errors.Is(err, peercred.ErrAnchorExited) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// After a restart there is only the record.
	if again, err := pr.OpenAnchor(a.Process()); !errors.Is(err, peercred.ErrNoProcess) {
		t.Errorf("opened again: %v, %v", again, err)
	}
}

// twins makes two processes that follow each other with the same pid and the
// same start time. What is wanted of the first while it lives is done by use.
func twins(t testing.TB, pr *peercred.Prover, use func(pid int), second func(pid int) (int, error), first func() (int, error)) int {
	t.Helper()
	const tries = 1000
	for range tries {
		pid, err := first()
		if err != nil {
			t.Fatal(err)
		}
		use(pid)
		old, _ := pr.Explain(pid, peercred.Process{})
		endOf(t, pid)
		if _, err := second(pid); err != nil {
			if errors.Is(err, unix.EEXIST) {
				continue // somebody else was given it
			}
			t.Fatal(err)
		}
		now, _ := pr.Explain(pid, peercred.Process{})
		if len(old) > 0 && len(now) > 0 && now[0].Process == old[0].Process {
			t.Cleanup(func() { endOf(t, pid) })
			return pid
		}
		endOf(t, pid)
	}
	t.Fatalf("no second process within the clock tick of the first in %d tries", tries)
	return 0
}

// K05, the peer.
func TestAPeerIsNotTakenForItsSuccessorWithinAClockTick(t *testing.T) {
	needRoot(t)
	l, pr := listen(t), newProver(t)
	var c *peercred.Conn
	var a *peercred.Anchor
	twins(t, pr, func(int) {
		c = accept(t, l)
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		a = anchored(t, pr, c)
	}, proctest.Idle, func() (int, error) { return proctest.Caller(0, l.Addr(), aLine) })
	wantError(t, c.Verify(), peercred.ErrExited)
	_, err := pr.Identify(c)
	wantError(t, err, peercred.ErrExited)
	_, err = pr.Descends(c, a)
	wantError(t, err, peercred.ErrExited)
}

// K05, the anchor: the second process can show the same pid and start time.
func TestAnAnchorIsNotTakenForItsSuccessorWithinAClockTick(t *testing.T) {
	needRoot(t)
	l, pr := listen(t), newProver(t)
	var a *peercred.Anchor
	var c *peercred.Conn
	twins(t, pr, func(pid int) {
		chain, _ := pr.Explain(pid, peercred.Process{})
		var err error
		if a, err = pr.OpenAnchor(chain[0].Process); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
	}, func(pid int) (int, error) {
		pid, err := proctest.Caller(pid, l.Addr(), aLine)
		if err == nil {
			c = accept(t, l)
		}
		return pid, err
	}, func() (int, error) { return proctest.Idle(0) })

	p, err := pr.Identify(c)
	if err != nil || p != a.Process() {
		t.Fatalf("the second is %v, %v, and the anchor %v", p, err, a.Process())
	}
	_, err = pr.Descends(c, a)
	wantError(t, err, peercred.ErrAnchorExited)
	// The documented limit: a record holds no more than the two numbers.
	again, err := pr.OpenAnchor(a.Process())
	if err != nil {
		t.Fatalf("the limit that is documented is none any more: %v", err)
	}
	defer again.Close()
	if _, err := pr.Descends(c, again); err != nil {
		t.Error(err)
	}
}

// Where the kernel cannot give the pidfd of who connected, its pid may be
// another one's before a pidfd is opened.
func TestAnOldKernelsPeerIsNotTakenForItsSuccessor(t *testing.T) {
	needRoot(t)
	t.Run("before the accept", func(t *testing.T) {
		l, f := listen(t), newFamily(t)
		l.AsOldKernel(t, nil)
		m := f.child(nil)
		m.tell("dial %s", l.Addr())
		m.exit()
		proctest.Reap(t, m.pid)
		f.impostor(m.pid)
		c := accept(t, l)
		wantError(t, c.Refusal(), peercred.ErrNoPidfd)
		wantError(t, c.Refusal(), peercred.ErrExited)
	})
	t.Run("while the pidfd is opened", func(t *testing.T) {
		l, pr, f := listen(t), newProver(t), newFamily(t)
		m := f.child(nil)
		m.tell("dial %s", l.Addr())
		given := m.taken() // its end stays open
		chain, _ := pr.Explain(m.pid, peercred.Process{})
		l.AsOldKernel(t, func() {
			m.exit()
			proctest.Reap(t, m.pid)
			tick(t, pr, chain[0].Process)
			f.impostor(m.pid)
		})
		c := accept(t, l)
		wantError(t, c.Refusal(), peercred.ErrNoPidfd)
		wantError(t, c.Refusal(), peercred.ErrExited)
		given.Close()
	})
}
