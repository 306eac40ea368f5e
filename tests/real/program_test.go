package real_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/real/person"
)

// Exit codes of the program that these tests meet.
const (
	exitOK            = 0
	exitNoCredential  = 3
	exitLoginRequired = 4
)

// buildDir holds the program while the tests run.
var buildDir string

func TestMain(m *testing.M) {
	// The servers under the tests log through slog; only failures of ours count.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	dir, err := os.MkdirTemp("", "spendonce-real-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// program is the path of the binary under test, built when first needed.
var program = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("SPENDONCE_BIN"); given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(buildDir, "spendonce")
	build := exec.Command("go", "build", "-o", path, "./cmd/spendonce")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, nil
})

// user is one target of one person on a machine, and where its session is.
type user struct {
	*machine
	server server
	target string
}

// machine is the account of a person: directories, an environment, and a memory
// of everything the program printed. When its test ends, outputs and files are
// searched for every secret that crossed the wire.
type machine struct {
	t      *testing.T
	binary string
	home   string // everything the program may write is below

	mu      sync.Mutex
	runs    []result
	servers []server
}

// result is one finished run.
type result struct {
	args   []string
	stdout string
	stderr string
	code   int
}

func (r result) String() string {
	return fmt.Sprintf("spendonce %s: exit %d\nstdout: %s\nstderr: %s",
		strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

// token is what a run of "token" printed.
func (r result) token() string { return strings.TrimSuffix(r.stdout, "\n") }

func newUser(t *testing.T, s server) *user {
	t.Helper()
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, binary: binary, home: t.TempDir()}
	for _, dir := range []string{m.stateDir(), m.configDir(), m.tempDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, leak := range m.leaks() {
			t.Error(leak)
		}
	})
	return (&user{machine: m}).at(s, "demo")
}

// at is another target on the same machine.
func (u *user) at(s server, target string) *user {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.servers = append(u.servers, s)
	return &user{machine: u.machine, server: s, target: target}
}

func (m *machine) stateDir() string  { return filepath.Join(m.home, "state") }
func (m *machine) configDir() string { return filepath.Join(m.home, "config") }
func (m *machine) tempDir() string   { return filepath.Join(m.home, "tmp") }
func (m *machine) storePath() string { return filepath.Join(m.stateDir(), "remote-credentials.json") }

func (m *machine) environment(extra ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + m.home,
		"TMPDIR=" + m.tempDir(),
		"LC_ALL=C",
		"XDG_CONFIG_HOME=" + m.configDir(),
		"SPENDONCE_STATE_DIR=" + m.stateDir(),
		"BROWSER=false", // whoever wants one says so
	}, extra...)
}

func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.binary, args...)
	cmd.Env = m.environment()
	cmd.Dir = m.tempDir()
	return cmd
}

func (m *machine) remember(r result) result {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs = append(m.runs, r)
	return r
}

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

// needs skips a test of something that the program does not claim to do: its
// help for the command does not have the word.
func (m *machine) needs(ctx context.Context, word string, command ...string) {
	m.t.Helper()
	help := m.mustRun(ctx, append(command, "--help")...)
	if !strings.Contains(strings.ToLower(help.stdout), word) {
		m.t.Skipf("the help of %q does not speak of %q", strings.Join(command, " "), word)
	}
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

// loginWay is how the person learns where to go.
type loginWay int

const (
	byBrowser loginWay = iota // the program starts $BROWSER with the address
	byPrinted                 // the program prints it
	byDevice                  // the program prints a code to type in elsewhere
)

func (u *user) loginArgs(way loginWay) []string {
	args := []string{"login", u.target,
		"--url", u.server.Resource(),
		"--issuer", u.server.Issuer(),
		"--client-id", u.server.ClientID(),
	}
	for _, scope := range u.server.Scopes() {
		args = append(args, "--scope", scope)
	}
	switch way {
	case byPrinted:
		args = append(args, "--no-browser")
	case byDevice:
		args = append(args, "--device")
	}
	return args
}

// login runs "login" and lets somebody walk the pages while it waits.
func (u *user) login(ctx context.Context, way loginWay, who person.Person) (result, person.Page) {
	u.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := u.loginArgs(way)
	r := &running{machine: u.machine, ctx: ctx, cmd: u.command(ctx, args...), args: args}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	var found <-chan string
	walk := who.SignIn
	switch way {
	case byBrowser:
		var browser string
		browser, found = u.fakeBrowser(ctx)
		r.cmd.Env = append(r.cmd.Env, "BROWSER="+browser)
	case byPrinted:
		found = r.awaitPrinted(regexp.QuoteMeta(u.server.AuthorizationEndpoint()) + `\?\S+`)
	case byDevice:
		// The code stands alone or at the end of the address of the page.
		found = r.awaitPrinted(`[B-Z]{4}-[B-Z]{4}`)
		walk = func(ctx context.Context, code string) (person.Page, error) {
			return who.Visit(ctx, u.server.Issuer()+"/device?user_code="+code)
		}
	}

	if err := r.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	ended := make(chan result, 1)
	failed := make(chan error, 1)
	go func() {
		got, err := r.end()
		if err != nil {
			failed <- err
			return
		}
		ended <- got
	}()

	var page person.Page
	select {
	case address := <-found:
		var err error
		if page, err = walk(ctx, address); err != nil {
			cancel()
			u.t.Fatalf("the person did not get through: %v (%v)", err, <-failed)
		}
	case got := <-ended:
		return got, page
	case err := <-failed:
		u.t.Fatal(err)
	}
	select {
	case got := <-ended:
		return got, page
	case err := <-failed:
		u.t.Fatal(err)
	}
	panic("not reached")
}

// mustLogin signs in, for tests that are about what comes after it.
func (u *user) mustLogin(ctx context.Context) {
	u.t.Helper()
	if r, _ := u.login(ctx, byPrinted, u.server.Account()); r.code != exitOK {
		u.t.Fatal(r)
	}
}

// fakeBrowser makes a program that passes its one argument on.
func (m *machine) fakeBrowser(ctx context.Context) (path string, urls <-chan string) {
	m.t.Helper()
	dir := m.t.TempDir()
	pipe := filepath.Join(dir, "urls")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		m.t.Fatal(err)
	}
	path = filepath.Join(dir, "browser")
	script := fmt.Sprintf("#!/bin/sh\n[ $# -eq 1 ] || { echo \"$# arguments\" >'%[1]s'; exit 1; }\nprintf '%%s\\n' \"$1\" >'%[1]s'\n", pipe)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		m.t.Fatal(err)
	}
	// Open for both, so that neither this nor the browser waits for the other.
	reader, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		if line, err := bufio.NewReader(reader).ReadString('\n'); err == nil {
			lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	context.AfterFunc(ctx, func() { _ = reader.Close() })
	return path, lines
}

// store reads the credential file as any other program would.
func (m *machine) store() map[string]map[string]any {
	m.t.Helper()
	data, err := os.ReadFile(m.storePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	var records map[string]map[string]any
	if err := json.Unmarshal(data, &records); err != nil {
		m.t.Fatalf("the store is damaged: %v", err)
	}
	return records
}

func (u *user) member(name string) string {
	u.t.Helper()
	value, _ := u.store()[u.target][name].(string)
	return value
}

func (u *user) accessToken() string  { u.t.Helper(); return u.member("accessJwt") }
func (u *user) refreshToken() string { u.t.Helper(); return u.member("refreshToken") }

// expire makes the stored access token look expired, by replacing the file as
// a program that shares it would. It stands in for waiting.
func (u *user) expire() {
	u.t.Helper()
	records := u.store()
	if records[u.target] == nil {
		u.t.Fatal("nothing stored that could expire")
	}
	records[u.target]["expiresAt"] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	data, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		u.t.Fatal(err)
	}
	next := u.storePath() + ".test"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		u.t.Fatal(err)
	}
	if err := os.Rename(next, u.storePath()); err != nil {
		u.t.Fatal(err)
	}
}

// secretFile writes a token to a file that is the test's, not the program's.
func (m *machine) secretFile(token string) string {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "rejected")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// leaks searches everything the program printed and every file it may have
// written. A secret may stand in the store, and an access token in what
// "token" prints on stdout; nowhere else.
func (m *machine) leaks() []string {
	secrets := map[string]string{}
	for _, s := range m.servers {
		maps.Copy(secrets, s.Tap().Secrets())
	}
	values := slices.Sorted(maps.Keys(secrets))
	var found []string
	search := func(where, text string, allowed string) {
		for _, value := range values {
			kind := secrets[value]
			if kind == allowed {
				continue
			}
			if strings.Contains(text, value) || strings.Contains(text, url.QueryEscape(value)) {
				found = append(found, fmt.Sprintf("%s holds a secret (%s)", where, kind))
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		what := strings.Join(r.args, " ")
		allowed := ""
		if r.args[0] == "token" {
			allowed = "access_token"
		}
		search("stdout of "+what, r.stdout, allowed)
		search("stderr of "+what, r.stderr, "")
	}
	err := filepath.WalkDir(m.home, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path == m.storePath() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			search(path, string(data), "")
		}
		return err
	})
	if err != nil {
		found = append(found, fmt.Sprintf("searching the files: %v", err))
	}
	return found
}
