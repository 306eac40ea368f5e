//go:build linux

package conformance

import "context"

// CheckNames returns the rule of each check by its name.
func CheckNames() map[string]string {
	names := map[string]string{}
	for _, c := range allChecks() {
		names[c.name] = c.rule
	}
	return names
}

// CheckCount counts the checks, which names must tell apart.
func CheckCount() int { return len(allChecks()) }

// RunOnly is Run with the checks that keep picks by name.
func RunOnly(ctx context.Context, cfg Config, keep func(name string) bool) (Report, error) {
	return run(ctx, cfg, func(c check) bool { return keep(c.name) })
}

// Codes lists the codes that the kit knows.
func Codes() []string { return codes() }

// Judge says what a report would of an answer, and what is wrong with it.
func Judge(raw []byte) (text string, faults []string) {
	a := newAnswer(heard{Raw: raw, End: endEOF})
	for _, f := range []string{a.line(), a.newline(), a.ending(), a.members(), a.known()} {
		if f != "" {
			faults = append(faults, f)
		}
	}
	return a.String(), faults
}
