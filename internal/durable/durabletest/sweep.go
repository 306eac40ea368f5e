// Package durabletest fails every operation on the disk, one after the other,
// for the tests of whatever works through [durable.Disk].
package durabletest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
)

// ErrInjected is in the tree of every error that a sweep makes; EIO is beside
// it, as from a real disk.
var ErrInjected = errors.New("injected fault")

// ErrCrashed is what every step says after the power went. It comes with
// [ErrInjected].
var ErrCrashed = errors.New("after the crash")

// Mode says what becomes of the step that is hit.
type Mode string

// The modes of a fault.
const (
	// NotApplied: the step is not done, and reports so.
	NotApplied Mode = "not applied"
	// Reported: the step is done and reported as failed.
	Reported Mode = "applied, reported failed"
	// Crash: neither this step nor any later one is done.
	Crash Mode = "crash"
)

// Modes are all of them.
var Modes = []Mode{NotApplied, Reported, Crash}

// Fault is a disk that fails at one step. The zero value never fails. It is
// safe for concurrent use.
type Fault struct {
	Mode Mode
	At   int // the step that is hit, from 0

	mu    sync.Mutex
	steps []durable.Step
	hit   bool
}

// Disk returns the disk that fails.
func (f *Fault) Disk() durable.Disk { return durable.Disk{Hook: f.step} }

func (f *Fault) step(s durable.Step, do func() error) error {
	f.mu.Lock()
	n := len(f.steps)
	f.steps = append(f.steps, s)
	now := f.Mode != "" && n == f.At
	f.hit = f.hit || now
	dead := f.hit && f.Mode == Crash
	f.mu.Unlock()
	switch {
	case dead:
		return fmt.Errorf("%s %s: %w: %w: %w", s.Op, s.Path, ErrInjected, ErrCrashed, unix.EIO)
	case now && f.Mode == Reported:
		_ = do()
		fallthrough
	case now:
		return fmt.Errorf("%s %s: %w: %w", s.Op, s.Path, ErrInjected, unix.EIO)
	}
	return do()
}

// Hit reports whether the step was reached.
func (f *Fault) Hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// Step returns the step that was hit.
func (f *Fault) Step() durable.Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.hit {
		return durable.Step{}
	}
	return f.steps[f.At]
}

// Steps returns the operations so far, in order, hit ones included.
func (f *Fault) Steps() []durable.Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]durable.Step(nil), f.steps...)
}

// String names the fault in a message.
func (f *Fault) String() string {
	if !f.Hit() {
		return "no fault"
	}
	s := f.Step()
	return fmt.Sprintf("step %d (%s %s) %s", f.At, s.Op, s.Path, f.Mode)
}

// Sweep calls run again and again, in each mode with a disk that fails at step
// 0, then 1, 2 and so on, until a run meets no fault, which must return nil.
// After each run, that one included, check is called with the fault and what
// run returned: it opens what is left with a disk that works and asserts what
// must hold. run makes its own fresh ground, without the disk it is given,
// whose steps are counted.
//
// Sweep returns how many steps a run without fault took.
func Sweep(t *testing.T, run func(disk durable.Disk) error, check func(f *Fault, err error)) (steps int) {
	t.Helper()
	const bound = 10_000 // steps; a run that never gets clean is a loop
	for _, mode := range Modes {
		for i := 0; ; i++ {
			f := &Fault{Mode: mode, At: i}
			err := run(f.Disk())
			if !f.Hit() && err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			check(f, err)
			if t.Failed() {
				t.Fatalf("%s; the run returned: %v", f, err)
			}
			if !f.Hit() {
				steps = len(f.Steps())
				break
			}
			if i == bound {
				t.Fatalf("no clean run after %d faults", bound)
			}
		}
	}
	return steps
}
