package durabletest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

func TestASweepHitsEveryStepInEveryMode(t *testing.T) {
	var done, seen []string
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		done = nil
		var errs []error
		for _, op := range []string{"a", "b", "c"} {
			errs = append(errs, disk.Hook(durable.Step{Op: op, Path: "p"}, func() error {
				done = append(done, op)
				return nil
			}))
		}
		return errors.Join(errs...)
	}, func(f *durabletest.Fault, err error) {
		if f.Hit() != errors.Is(err, durabletest.ErrInjected) || f.Hit() != errors.Is(err, unix.EIO) {
			t.Errorf("%s: %v", f, err)
		}
		if (f.Mode == durabletest.Crash && f.Hit()) != errors.Is(err, durabletest.ErrCrashed) {
			t.Errorf("%s: %v", f, err)
		}
		if f.Hit() && f.Step().Op != string(rune('a'+f.At)) || len(f.Steps()) != 3 {
			t.Errorf("%s: steps %v", f, f.Steps())
		}
		seen = append(seen, fmt.Sprintf("%s %d %v", f.Mode, f.At, done))
	})
	want := []string{
		"not applied 0 [b c]", "not applied 1 [a c]", "not applied 2 [a b]", "not applied 3 [a b c]",
		"applied, reported failed 0 [a b c]", "applied, reported failed 1 [a b c]", "applied, reported failed 2 [a b c]", "applied, reported failed 3 [a b c]",
		"crash 0 []", "crash 1 [a]", "crash 2 [a b]", "crash 3 [a b c]",
	}
	if steps != 3 || !slices.Equal(seen, want) {
		t.Errorf("%d steps; done:\n%q, want\n%q", steps, seen, want)
	}
}
