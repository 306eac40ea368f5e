package lockmodel_test

import (
	"fmt"
	"strings"

	. "github.com/spendonce/spendonce/internal/lockmodel"
)

// describe gives a configuration in one line.
func describe(c Config) string {
	var roles []string
	for i, r := range c.Procs {
		name := r.String()
		if c.OtherMachine>>i&1 == 1 {
			name += " (other machine)"
		}
		roles = append(roles, name)
	}
	text := strings.Join(roles, " + ")
	add := func(on bool, format string, a ...any) {
		if on {
			text += ", " + fmt.Sprintf(format, a...)
		}
	}
	add(c.NoKernelLocks, "no kernel locks")
	add(c.Clock == Paced, "paced")
	add(c.Crashes > 0, "crashes %d", c.Crashes)
	add(c.Stops > 0, "stops %d", c.Stops)
	add(c.ClockSteps > 0, "clock steps %d", c.ClockSteps)
	add(c.DiskFaults > 0, "disk faults %d", c.DiskFaults)
	add(c.LostAnswers, "lost answers")
	add(c.ReuseGrace, "reuse allowed")
	add(c.DecideAnew, "decide anew")
	add(c.Unpinned, "unpinned")
	add(c.UserFile > 0, "user's file names %c", " AB"[c.UserFile])
	add(c.AtomicBreak, "atomic break")
	add(c.Edits > 0, "edits %d", c.Edits)
	add(c.SameToken, "the same token again")
	return text
}
