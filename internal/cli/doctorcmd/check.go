package doctorcmd

import (
	"fmt"
	"strings"
	"time"
)

// Level says how much a finding matters.
type level string

const (
	fine    level = "ok"      // looked at, and as it should be
	note    level = "note"    // worth knowing; nothing to be done about
	warning level = "warning" // a risk, or something that will fail later
	failure level = "error"   // something fails now, until somebody does the next step
)

func (l level) rank() int {
	switch l {
	case failure:
		return 3
	case warning:
		return 2
	case note:
		return 1
	default:
		return 0
	}
}

// check is one thing that was looked at. The part of its id before the dot
// says where it belongs.
type check struct {
	ID     string `json:"id"`
	Level  level  `json:"level"`
	Target string `json:"target,omitempty"`
	Text   string `json:"text"`
	Next   string `json:"next,omitempty"` // the next step; "" where all is well
}

// place is what a check is about: "state", "store", or "target x".
func (c check) place() string {
	where, _, _ := strings.Cut(c.ID, ".")
	if c.Target != "" {
		return where + " " + c.Target
	}
	return where
}

// findings collects the checks of one place.
type findings struct {
	all    *[]check
	target string
}

func (f findings) ok(id, format string, args ...any) { f.find(fine, id, "", format, args...) }

func (f findings) find(l level, id, next, format string, args ...any) {
	*f.all = append(*f.all, check{id, l, f.target, fmt.Sprintf(format, args...), next})
}

// report turns an error of the store into a finding. Its sentence ends with
// the next step.
func (f findings) report(l level, id string, err error) {
	text, next := split(err.Error())
	f.find(l, id, next, "%s", text)
}

// split cuts a sentence before its next step.
func split(sentence string) (text, next string) {
	i := strings.LastIndex(sentence, ": ")
	if i < 0 {
		return sentence, ""
	}
	return sentence[:i], sentence[i+2:]
}

// at names a moment, and how far it is from now.
func at(now, t time.Time) string {
	stamp := t.UTC().Format(time.RFC3339)
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", stamp, rounded(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", stamp, rounded(now.Sub(t)))
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// summary counts the findings.
type summary struct {
	Targets  int `json:"targets"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Notes    int `json:"notes"`
}

func summarize(checks []check, targets int) summary {
	s := summary{Targets: targets}
	for _, c := range checks {
		switch c.Level {
		case failure:
			s.Errors++
		case warning:
			s.Warnings++
		case note:
			s.Notes++
		case fine:
		}
	}
	return s
}

func (s summary) String() string {
	text := many(s.Targets, "target")
	counts := ""
	for _, c := range []struct {
		n    int
		what string
	}{{s.Errors, "error"}, {s.Warnings, "warning"}, {s.Notes, "note"}} {
		if c.n > 0 {
			counts += ", " + many(c.n, c.what)
		}
	}
	if s.Errors+s.Warnings == 0 {
		text += ", nothing wrong"
	}
	return text + counts
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
