//go:build linux

package conformance_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/conformance"
)

// feed are checks that get the answers which the last section judges.
var feed = []string{"an object, a newline and end of file are a request", "an unknown session comes before descent"}

// waiting are the faults that show only when the kit has waited long enough.
var waiting = []string{
	"a crowd holds up all", "a drip holds up all", "carries out before it has read all", "does not wait for the half-close",
	"gives back what nobody fetched", "grants at the deadline", "hangs up on a crowd", "hides unknown sessions", "looks at content at once", "never forgets a crowd",
	"no deadline", "one after the other", "sessions outlive their anchors", "sliding deadline", "stays open",
	"waits before it writes", "waits for its reader",
}

func TestEveryMutantIsSeenByTheChecksMeantForIt(t *testing.T) {
	// They wait beside each other and beside the rest. That the machine is
	// busy meanwhile can only break more checks, and not mend one.
	var late []func()
	for i, m := range mutants {
		switch slow := slices.Contains(waiting, m.fault); {
		case testing.Short() && (slow || i%4 != 0):
		case slow:
			type outcome struct {
				report conformance.Report
				err    error
			}
			ended := make(chan outcome, 1)
			socket := serve(t, m.fault)
			go func() {
				report, err := judge(t.Context(), socket, m.seen)
				ended <- outcome{report, err}
			}()
			late = append(late, func() {
				t.Run(m.fault, func(t *testing.T) {
					o := <-ended
					mustBreak(t, o.report, o.err, m.seen)
				})
			})
		default:
			t.Run(m.fault, func(t *testing.T) {
				if strings.HasSuffix(m.fault, " user") && os.Geteuid() != 0 {
					t.Skip("only root can be another user")
				}
				report, err := judge(t.Context(), serve(t, m.fault), m.seen)
				mustBreak(t, report, err, m.seen)
			})
		}
	}
	for _, l := range late {
		l()
	}
}

// judge runs the named checks.
func judge(ctx context.Context, socket string, names []string) (conformance.Report, error) {
	return conformance.RunOnly(ctx, conformance.Config{Socket: socket, Actor: actor()},
		func(name string) bool { return slices.Contains(names, name) || slices.Contains(feed, name) })
}

func mustBreak(t *testing.T, report conformance.Report, err error, names []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil || regexp.MustCompile(`[A-Za-z0-9_-]{40}`).Match(text) {
		t.Errorf("the report holds a session id or token: %s, %v", text, err)
	}
	broken := map[string]bool{}
	for _, res := range report.Broken() {
		broken[res.Name] = true
	}
	for _, name := range names {
		if !broken[name] {
			t.Errorf("the check %q holds", name)
		}
	}
}

// A check that no fault breaks may be one that cannot fail.
func TestEveryCheckIsSeenToFail(t *testing.T) {
	names := conformance.CheckNames()
	if len(names) != conformance.CheckCount() {
		t.Errorf("%d checks have %d names", conformance.CheckCount(), len(names))
	}
	unbroken := maps.Clone(names)
	for _, m := range mutants {
		for _, name := range m.seen {
			if names[name] == "" {
				t.Errorf("%s: there is no check %q", m.fault, name)
			}
			delete(unbroken, name)
		}
	}
	for name := range unbroken {
		t.Errorf("no fault breaks the check %q", name)
	}
}

func TestEveryFaultOfTheReferenceIsUsed(t *testing.T) {
	files, err := filepath.Glob("reference*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	known := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.has\("([^"]+)"\)`).FindAllSubmatch(b, -1) {
			known[string(m[1])] = true
		}
	}
	for _, m := range mutants {
		if !known[m.fault] {
			t.Errorf("the reference has no fault %q", m.fault)
		}
		delete(known, m.fault)
	}
	for fault := range known {
		t.Errorf("no mutant has the fault %q", fault)
	}
}
