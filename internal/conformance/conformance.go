//go:build linux

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"text/tabwriter"
)

// Config says what to judge, and how.
type Config struct {
	// Socket is the path of the broker's socket. The broker must be one that
	// nobody else uses meanwhile: tokens that others hold would be counted
	// against it. Its deadlines must be below 5 s.
	Socket string

	// Actor is the command line that starts a process whose main is [Act] on
	// its standard streams, usually this same program. The environment is
	// passed on.
	Actor []string

	// Quick leaves out what has to wait for deadlines or crowds. Such checks
	// are reported as skipped.
	Quick bool

	// Progress, if not nil, is called before each check and once at the end,
	// then with done == total and no name.
	Progress func(done, total int, name string)
}

// Result is what one check saw.
type Result struct {
	Section string `json:"section"`
	// Name is a sentence that is true of a broker that keeps the rule.
	Name string `json:"name"`
	// Rule is the name of the rule in docs/protocol.md.
	Rule string `json:"rule"`
	// Held reports whether the broker did as Name says. It is false for a
	// check that was skipped.
	Held    bool `json:"held"`
	Skipped bool `json:"skipped"`
	// Got is what was seen, or why the check was skipped; Want is what
	// should have been. Neither holds a whole session id or token.
	Got  string `json:"got"`
	Want string `json:"want"`
}

// Report holds the results in the order in which they were had.
type Report []Result

// Broken returns the results of checks that ran and did not hold.
func (r Report) Broken() Report {
	var broken Report
	for _, res := range r {
		if !res.Held && !res.Skipped {
			broken = append(broken, res)
		}
	}
	return broken
}

// Table writes the report for people: a line for each check, what was seen
// where one did not hold, and a line that counts.
func (r Report) Table(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	section, skipped := "", 0
	for _, res := range r {
		if res.Section != section {
			section = res.Section
			fmt.Fprintf(tab, "%s\n", section)
		}
		word := "held"
		switch {
		case res.Skipped:
			word = "skipped"
			skipped++
		case !res.Held:
			word = "BROKEN"
		}
		fmt.Fprintf(tab, "  %s\t%s\t%s\n", word, res.Rule, res.Name)
		switch {
		case res.Skipped:
			fmt.Fprintf(tab, "  \t\t  %s\n", res.Got)
		case !res.Held:
			fmt.Fprintf(tab, "  \t\t  got   %s\n  \t\t  want  %s\n", res.Got, res.Want)
		}
	}
	_ = tab.Flush()
	broken := len(r.Broken())
	fmt.Fprintf(w, "%d held, %d broken, %d skipped\n", len(r)-broken-skipped, broken, skipped)
}

// Run judges the broker at cfg.Socket. The error says that the kit itself
// could not do its work (no such actor, no more processes, ctx ended); the
// report then holds what was found until there. That rules are broken is not
// an error.
//
// When it returns, all its actors have ended, and with them the sessions and
// tokens that it made.
func Run(ctx context.Context, cfg Config) (Report, error) {
	return run(ctx, cfg, func(check) bool { return true })
}

// run judges with the checks that keep picks.
func run(ctx context.Context, cfg Config, keep func(check) bool) (report Report, err error) {
	if cfg.Socket == "" || len(cfg.Actor) == 0 {
		return nil, errors.New("the conformance kit needs a socket and an actor's command line")
	}
	program, err := exec.LookPath(cfg.Actor[0])
	if err != nil {
		return nil, fmt.Errorf("finding the actor's program: %w", err)
	}
	var checks []check
	for _, c := range allChecks() {
		if keep(c) {
			checks = append(checks, c)
		}
	}
	k, err := newKit(cfg.Socket, append([]string{program}, cfg.Actor...))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	// What waits for an actor or a broker is woken when ctx ends.
	defer context.AfterFunc(ctx, k.hub.close)()

	tell := cfg.Progress
	if tell == nil {
		tell = func(int, int, string) {}
	}
	for i, c := range checks {
		tell(i, len(checks), c.name)
		if err := ctx.Err(); err != nil {
			return report, err
		}
		res := Result{Section: c.section, Name: c.name, Rule: c.rule}
		if cfg.Quick && c.slow {
			res.Skipped, res.Got = true, "left out of a quick run"
			report = append(report, res)
			continue
		}
		if err := k.judge(c, &res); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return report, fmt.Errorf("checking that %s: %w", c.name, err)
		}
		report = append(report, res)
	}
	tell(len(checks), len(checks), "")
	return report, nil
}

// allChecks returns every check, in the order in which they run.
func allChecks() []check {
	var all []check
	for _, s := range []struct {
		name   string
		checks []check
	}{
		{"Place", placeChecks()},
		{"Frame", frameChecks()},
		{"Deadline", deadlineChecks()},
		{"Decoding", decodeChecks()},
		{"Register", registerChecks()},
		{"Descent", descentChecks()},
		{"Peer", peerChecks()},
		{"Authenticate", authenticateChecks()},
		{"Mint", mintChecks()},
		{"Capacity", capacityChecks()},
		{"Consume", consumeChecks()},
		{"Order", orderChecks()},
		{"Limits", limitChecks()},
		// Last: they judge every answer that was had.
		{"Answers", answerChecks()},
	} {
		for _, c := range s.checks {
			c.section = s.name
			all = append(all, c)
		}
	}
	return all
}

// short says text in at most n bytes, for a table.
func short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "..."
}
