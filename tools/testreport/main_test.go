package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

const pkg = "example.com/owner/module/lock"

// stream builds what `go test -json` would print.
func stream(t *testing.T, events ...event) *strings.Reader {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		if e.Action != "build-output" {
			e.Package = pkg
		}
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return strings.NewReader(b.String())
}

func TestReport(t *testing.T) {
	skipped := []event{
		{Action: "run", Test: "TestA"},
		{Action: "output", Test: "TestA", Output: "=== RUN   TestA\n"},
		{Action: "output", Test: "TestA", Output: "    a_test.go:7: needs a mount\n"},
		{Action: "output", Test: "TestA", Output: "--- SKIP: TestA (0.00s)\n"},
		{Action: "skip", Test: "TestA"},
		{Action: "output", Output: "ok  \t" + pkg + "\t0.1s\n"},
		{Action: "pass"},
	}
	failed := []event{
		{Action: "run", Test: "TestB"},
		{Action: "output", Test: "TestB", Output: "=== RUN   TestB\n"},
		{Action: "output", Test: "TestB", Output: "    b_test.go:9: sent twice\n"},
		{Action: "output", Test: "TestB", Output: "--- FAIL: TestB (0.00s)\n"},
		{Action: "fail", Test: "TestB"},
		{Action: "output", Output: "FAIL\n"},
		{Action: "output", Output: "FAIL\t" + pkg + "\t0.1s\n"},
		{Action: "fail"},
	}
	panicked := []event{
		{Action: "run", Test: "TestC"},
		{Action: "output", Test: "TestC", Output: "panic: boom\n"},
		{Action: "output", Output: "FAIL\t" + pkg + "\t0.1s\n"},
		{Action: "fail"},
	}
	passed := []event{
		{Action: "run", Test: "TestD"},
		{Action: "output", Test: "TestD", Output: "    d_test.go:3: chatter\n"},
		{Action: "pass", Test: "TestD"},
		{Action: "output", Output: "PASS\n"},
		{Action: "output", Output: "ok  \t" + pkg + "\t0.1s\n"},
		{Action: "pass"},
	}
	empty := []event{{Action: "output", Output: "?   \t" + pkg + "\t[no test files]\n"}, {Action: "skip"}}

	for _, c := range []struct {
		name    string
		events  []event
		report  Report
		ok      bool
		want    []string
		wantNot []string
	}{
		{"a skip is printed with its reason", skipped, Report{}, true,
			[]string{"skipped  lock/TestA: needs a mount\n", "ok  \t" + pkg, "0 passed, 0 failed, 1 skipped\n"}, nil},
		{"a skip fails root", skipped, Report{Strict: true}, false,
			[]string{"SKIPPED  lock/TestA: needs a mount\n"}, nil},
		{"a skip on the list does not", skipped,
			Report{Strict: true, Allowed: []*regexp.Regexp{regexp.MustCompile(`^lock/TestA: .*$`)}}, true,
			[]string{"skipped  lock/TestA"}, []string{"SKIPPED"}},
		{"a failure says what it said", failed, Report{}, true,
			[]string{"b_test.go:9: sent twice\n", "FAIL\t" + pkg, "0 passed, 1 failed"}, []string{"=== RUN"}},
		{"a test that never ended says what it said", panicked, Report{}, true, []string{"panic: boom\n", "NOT ENDED: TestC\n", "FAIL\t" + pkg}, nil},
		{"a success is one line", passed, Report{}, true, []string{"ok  \t" + pkg, "1 passed"}, []string{"chatter", "PASS\n"}},
		{"a package without tests is named", empty, Report{}, true, []string{"[no test files]"}, nil},
		{"but not when quiet", empty, Report{Quiet: true}, true, nil, []string{"[no test files]"}},
		{"a failed build says why", []event{
			{Action: "build-output", Output: "lock.go:1: syntax error\n"},
			{Action: "output", Output: "FAIL\t" + pkg + " [build failed]\n"},
			{Action: "fail"},
		}, Report{}, true, []string{"syntax error\n", "[build failed]"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			c.report.Out = &out
			if err := c.report.Read(stream(t, c.events...)); err != nil {
				t.Fatal(err)
			}
			if ok := c.report.Summary(); ok != c.ok {
				t.Errorf("every skip allowed = %t, want %t", ok, c.ok)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("missing %q in:\n%s", want, &out)
				}
			}
			for _, not := range c.wantNot {
				if strings.Contains(out.String(), not) {
					t.Errorf("unwanted %q in:\n%s", not, &out)
				}
			}
		})
	}
}

func TestAllowedSkipsNeedAReason(t *testing.T) {
	if _, err := readAllowed("allowed-skips.txt"); err != nil {
		t.Fatal(err)
	}
}
