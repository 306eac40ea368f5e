package real_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// running is a program that was started and not yet waited for.
type running struct {
	machine        *machine
	ctx            context.Context
	cmd            *exec.Cmd
	args           []string
	stdout, stderr bytes.Buffer
}

func (m *machine) start(ctx context.Context, stdin io.Reader, args ...string) *running {
	m.t.Helper()
	r := &running{machine: m, ctx: ctx, cmd: m.command(ctx, args...), args: args}
	r.cmd.Stdin = stdin
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return r
}

func (r *running) wait() result {
	r.machine.t.Helper()
	got, err := r.end()
	if err != nil {
		r.machine.t.Fatal(err)
	}
	return got
}

// end is wait for goroutines, which may not end a test.
func (r *running) end() (result, error) {
	code, err := exitCode(r.ctx, r.cmd.Wait())
	if err != nil {
		return result{}, fmt.Errorf("spendonce %s: %w\nstderr: %s", strings.Join(r.args, " "), err, &r.stderr)
	}
	return r.machine.remember(result{args: r.args, stdout: r.stdout.String(), stderr: r.stderr.String(), code: code}), nil
}

// awaitPrinted reports the first match in what the program prints on stderr, as
// soon as white space ends it.
func (r *running) awaitPrinted(pattern string) <-chan string {
	found := make(chan string, 1)
	r.cmd.Stderr = &finder{pattern: regexp.MustCompile(`(` + pattern + `)\s`), seen: &r.stderr, found: found}
	return found
}

type finder struct {
	pattern *regexp.Regexp
	seen    *bytes.Buffer
	found   chan<- string
	done    bool
}

func (f *finder) Write(p []byte) (int, error) {
	f.seen.Write(p)
	if match := f.pattern.FindSubmatch(f.seen.Bytes()); match != nil && !f.done {
		f.done = true
		f.found <- string(match[1])
	}
	return len(p), nil
}

// run runs the program to its end, whatever its exit code.
func (m *machine) run(ctx context.Context, args ...string) result {
	m.t.Helper()
	return m.start(ctx, nil, args...).wait()
}

// exitCode is the status of a program that ended by itself; 128+n, as a shell
// has it, for one that a signal ended.
func exitCode(ctx context.Context, err error) (int, error) {
	if ctx.Err() != nil {
		return 0, fmt.Errorf("still running at the end of patience: %w", ctx.Err())
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0, nil
	case !ok:
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

func (m *machine) mustRun(ctx context.Context, args ...string) result {
	m.t.Helper()
	r := m.run(ctx, args...)
	if r.code != exitOK {
		m.t.Fatal(r)
	}
	return r
}

// listed is one target as "list --json" shows it.
type listed struct {
	Target  string `json:"target"`
	State   string `json:"state"`
	Account string `json:"account"`
	Issuer  string `json:"issuer"`
}

func (m *machine) list(ctx context.Context) []listed {
	m.t.Helper()
	r := m.mustRun(ctx, "list", "--json")
	var document struct {
		Version int      `json:"version"`
		Targets []listed `json:"targets"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &document); err != nil || document.Version != 1 {
		m.t.Fatalf("list: version %d, %v: %v", document.Version, err, r)
	}
	return document.Targets
}

// storm is stormOf with the same command n times.
func (m *machine) storm(ctx context.Context, n int, args ...string) []result {
	m.t.Helper()
	return m.stormOf(ctx, slices.Repeat([][]string{args}, n))
}

// stormOf starts a process for each command behind a barrier, opens it when all
// of them stand there, and returns when all have ended.
func (m *machine) stormOf(ctx context.Context, commands [][]string) []result {
	m.t.Helper()
	n := len(commands)
	barrier, open, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	ready, report, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	defer ready.Close()

	// Descriptor 4 says "here", descriptor 3 lets go by its end of file. Both
	// are closed before the shell becomes the program, which sees no barrier.
	const wait = `echo >&4; read -r go <&3; exec "$0" "$@" 3<&- 4>&-`
	cmds := make([]*exec.Cmd, n)
	outs := make([]struct{ stdout, stderr bytes.Buffer }, n)
	for i, args := range commands {
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", wait, m.binary}, args...)...)
		cmd.Env = m.environment()
		cmd.Dir = m.tempDir()
		cmd.ExtraFiles = []*os.File{barrier, report}
		cmd.Stdout, cmd.Stderr = &outs[i].stdout, &outs[i].stderr
		if err := cmd.Start(); err != nil {
			m.t.Fatal(err)
		}
		cmds[i] = cmd
	}
	barrier.Close()
	report.Close()
	if _, err := io.ReadFull(ready, make([]byte, n)); err != nil {
		m.t.Fatalf("waiting for %d processes at the barrier: %v", n, err)
	}
	open.Close()

	results := make([]result, n)
	for i, cmd := range cmds {
		code, err := exitCode(ctx, cmd.Wait())
		if err != nil {
			m.t.Fatal(err)
		}
		results[i] = m.remember(result{args: commands[i], code: code,
			stdout: outs[i].stdout.String(), stderr: outs[i].stderr.String()})
	}
	return results
}
