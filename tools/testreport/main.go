// Testreport runs `go test` and prints what a reader needs: go's own line for
// each package, everything that a failed test said, and every skipped test
// with its reason. `go test` alone is silent about skips, and a suite that
// skips unseen proves nothing.
//
//	testreport [-skips FILE] [-quiet] -- go test ./...
//
// With -skips, and as root, a skip that FILE does not allow fails the run: as
// root there is nothing a suite may lack. With -quiet, packages in which no
// test ran are not listed.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	skips := flag.String("skips", "", "`file` of the skips allowed to root")
	quiet := flag.Bool("quiet", false, "do not list packages in which no test ran")
	flag.Parse()
	code, err := run(flag.Args(), *skips, *quiet)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		code = 2
	}
	os.Exit(code)
}

func run(command []string, skips string, quiet bool) (code int, err error) {
	if len(command) < 2 || command[1] != "test" {
		return 0, errors.New("usage: testreport [-skips FILE] [-quiet] -- go test ARGUMENT...")
	}
	report := Report{Out: os.Stdout, Quiet: quiet}
	if skips != "" && os.Geteuid() == 0 {
		if report.Allowed, err = readAllowed(skips); err != nil {
			return 0, err
		}
		report.Strict = true
	}

	cmd := exec.Command(command[0], append([]string{"test", "-json"}, command[2:]...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	// An interrupt reaches the whole foreground group; go test ends, and we
	// report what there was.
	signal.Ignore(syscall.SIGINT)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	readErr := report.Read(events)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, events)
	}
	waitErr := cmd.Wait()
	ok := report.Summary()
	var exit *exec.ExitError
	switch {
	case errors.As(waitErr, &exit):
		return max(exit.ExitCode(), 1), nil
	case waitErr != nil:
		return 0, waitErr
	case readErr != nil:
		return 0, readErr
	case !ok:
		return 1, nil
	}
	return 0, nil
}

// readAllowed reads a file of allowed skips: "REGEXP # why" on each line.
func readAllowed(file string) ([]*regexp.Regexp, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var allowed []*regexp.Regexp
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expr, why, _ := strings.Cut(line, " # ")
		if strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%s:%d: a skip is allowed for a reason: add ' # why'", file, i+1)
		}
		re, err := regexp.Compile("^(?:" + strings.TrimSpace(expr) + ")$")
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		allowed = append(allowed, re)
	}
	return allowed, nil
}

// Report turns the events of `go test -json` into text.
type Report struct {
	Out     io.Writer
	Quiet   bool             // omit packages in which no test ran
	Strict  bool             // skips beyond Allowed fail the run
	Allowed []*regexp.Regexp // over "package/Test: reason"

	output  map[test][]string // what unfinished tests, and packages, have said
	ran     map[string]bool   // packages with at least one test
	skipped []string
	passed  int
	failed  int
}

type test struct{ pkg, name string }

// An event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
}

// Read consumes all events and prints packages as they end.
func (r *Report) Read(events io.Reader) error {
	r.output = map[test][]string{}
	r.ran = map[string]bool{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				r.add(e)
			} else {
				// Not from test2json: go's own complaint about its arguments, say.
				_, _ = r.Out.Write(line)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (r *Report) add(e event) {
	id := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.Out, e.Output)
	case "output":
		r.output[id] = append(r.output[id], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
			return
		}
		r.ran[e.Package] = true
		switch e.Action {
		case "pass":
			r.passed++
			delete(r.output, id)
		case "fail":
			r.failed++
			// A parent fails with its subtests: theirs was printed already.
			r.print(r.output[id], "=== ")
			delete(r.output, id)
		case "skip":
			r.skipped = append(r.skipped, skipLine(id, r.output[id]))
			delete(r.output, id)
		}
	}
}

// endPackage prints go's result line for the package, and for a failed one
// also what was said outside of tests and by tests that never ended (a panic,
// a time-out).
func (r *Report) endPackage(e event) {
	own := test{pkg: e.Package}
	if e.Action == "fail" {
		for id, out := range r.output {
			if id.pkg == e.Package && id.name != "" {
				r.print(out, "=== ")
				fmt.Fprintf(r.Out, "--- NOT ENDED: %s\n", id.name)
			}
		}
		r.print(r.output[own], "PASS\n")
	} else if !r.Quiet || r.ran[e.Package] {
		for _, line := range r.output[own] {
			if isResult(line) {
				fmt.Fprint(r.Out, line)
			}
		}
	}
	for id := range r.output {
		if id.pkg == e.Package {
			delete(r.output, id)
		}
	}
}

// isResult reports whether line is one by which go test closes a package.
func isResult(line string) bool {
	for _, start := range []string{"ok  \t", "?   \t", "FAIL\t"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

func (r *Report) print(lines []string, but string) {
	for _, line := range lines {
		if !strings.HasPrefix(line, but) {
			fmt.Fprint(r.Out, line)
		}
	}
}

// place matches the file and line that the testing package puts before a
// message.
var place = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// skipLine gives "package/Test: reason" from what a skipped test printed.
func skipLine(id test, output []string) string {
	var reason []string
	for _, line := range output {
		if strings.HasPrefix(line, "=== ") || strings.HasPrefix(strings.TrimSpace(line), "--- SKIP") {
			continue
		}
		if text := strings.TrimSpace(place.ReplaceAllString(line, "")); text != "" {
			reason = append(reason, text)
		}
	}
	if len(reason) == 0 {
		reason = []string{"no reason given"}
	}
	pkg := id.pkg
	if parts := strings.SplitN(pkg, "/", 4); len(parts) == 4 { // host/owner/module/...
		pkg = parts[3]
	} else {
		pkg = path.Base(pkg)
	}
	return pkg + "/" + id.name + ": " + strings.Join(reason, " ")
}

// Summary prints skips and counts, and reports whether every skip is allowed.
func (r *Report) Summary() bool {
	slices.Sort(r.skipped)
	var refused int
	for _, s := range r.skipped {
		mark := "skipped  "
		if r.Strict && !r.allows(s) {
			mark = "SKIPPED  "
			refused++
		}
		fmt.Fprintln(r.Out, mark+s)
	}
	fmt.Fprintf(r.Out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skipped))
	if refused > 0 {
		fmt.Fprintf(r.Out, "%d skipped that may not be (SKIPPED): root lacks nothing, so the suite must run;\n"+
			"if it truly cannot, tools/testreport/allowed-skips.txt takes it with the reason\n", refused)
	}
	return refused == 0
}

func (r *Report) allows(skip string) bool {
	return slices.ContainsFunc(r.Allowed, func(re *regexp.Regexp) bool { return re.MatchString(skip) })
}
