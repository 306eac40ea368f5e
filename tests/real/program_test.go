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

const target = "demo"

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

// user is one account on a machine: directories, an environment, and a memory
// of everything the program printed. When its test ends, outputs and files are
// searched for every secret that crossed the wire.
type user struct {
	t      *testing.T
	server server
	binary string
	home   string // everything the program may write is below

	mu   sync.Mutex
	runs []result
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
	u := &user{t: t, server: s, binary: binary, home: t.TempDir()}
	for _, dir := range []string{u.stateDir(), u.configDir(), u.tempDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, leak := range u.leaks() {
			t.Error(leak)
		}
	})
	return u
}

func (u *user) stateDir() string  { return filepath.Join(u.home, "state") }
func (u *user) configDir() string { return filepath.Join(u.home, "config") }
func (u *user) tempDir() string   { return filepath.Join(u.home, "tmp") }
func (u *user) storePath() string { return filepath.Join(u.stateDir(), "remote-credentials.json") }

func (u *user) environment(extra ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + u.home,
		"TMPDIR=" + u.tempDir(),
		"LC_ALL=C",
		"XDG_CONFIG_HOME=" + u.configDir(),
		"SPENDONCE_STATE_DIR=" + u.stateDir(),
		"BROWSER=false", // whoever wants one says so
	}, extra...)
}

func (u *user) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, u.binary, args...)
	cmd.Env = u.environment()
	cmd.Dir = u.tempDir()
	return cmd
}

func (u *user) remember(r result) result {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs = append(u.runs, r)
	return r
}

// running is a program that was started and not yet waited for.
type running struct {
	user           *user
	ctx            context.Context
	cmd            *exec.Cmd
	args           []string
	stdout, stderr bytes.Buffer
}

func (u *user) start(ctx context.Context, stdin io.Reader, args ...string) *running {
	u.t.Helper()
	r := &running{user: u, ctx: ctx, cmd: u.command(ctx, args...), args: args}
	r.cmd.Stdin = stdin
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	return r
}

func (r *running) wait() result {
	r.user.t.Helper()
	code, err := exitCode(r.ctx, r.cmd.Wait())
	if err != nil {
		r.user.t.Fatalf("spendonce %s: %v\nstderr: %s", strings.Join(r.args, " "), err, &r.stderr)
	}
	return r.user.remember(result{args: r.args, stdout: r.stdout.String(), stderr: r.stderr.String(), code: code})
}

// run runs the program to its end, whatever its exit code.
func (u *user) run(ctx context.Context, args ...string) result {
	u.t.Helper()
	return u.start(ctx, nil, args...).wait()
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

func (u *user) mustRun(ctx context.Context, args ...string) result {
	u.t.Helper()
	r := u.run(ctx, args...)
	if r.code != exitOK {
		u.t.Fatal(r)
	}
	return r
}

// needs skips a test of something that the program does not claim to do: its
// help for the command does not have the word.
func (u *user) needs(ctx context.Context, word string, command ...string) {
	u.t.Helper()
	help := u.mustRun(ctx, append(command, "--help")...)
	if !strings.Contains(strings.ToLower(help.stdout), word) {
		u.t.Skipf("the help of %q does not speak of %q", strings.Join(command, " "), word)
	}
}

// listed is one target as "list --json" shows it.
type listed struct {
	Target  string `json:"target"`
	State   string `json:"state"`
	Account string `json:"account"`
	Issuer  string `json:"issuer"`
}

func (u *user) list(ctx context.Context) []listed {
	u.t.Helper()
	r := u.mustRun(ctx, "list", "--json")
	var document struct {
		Version int      `json:"version"`
		Targets []listed `json:"targets"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &document); err != nil || document.Version != 1 {
		u.t.Fatalf("list: version %d, %v: %v", document.Version, err, r)
	}
	return document.Targets
}

// storm starts n processes with the same arguments behind a barrier, opens it
// when all of them stand there, and returns when all have ended.
func (u *user) storm(ctx context.Context, n int, args ...string) []result {
	u.t.Helper()
	barrier, open, err := os.Pipe()
	if err != nil {
		u.t.Fatal(err)
	}
	ready, report, err := os.Pipe()
	if err != nil {
		u.t.Fatal(err)
	}
	defer ready.Close()

	// Descriptor 4 says "here", descriptor 3 lets go by its end of file. Both
	// are closed before the shell becomes the program, which sees no barrier.
	const wait = `echo >&4; read -r go <&3; exec "$0" "$@" 3<&- 4>&-`
	cmds := make([]*exec.Cmd, n)
	outs := make([]struct{ stdout, stderr bytes.Buffer }, n)
	for i := range cmds {
		cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", wait, u.binary}, args...)...)
		cmd.Env = u.environment()
		cmd.Dir = u.tempDir()
		cmd.ExtraFiles = []*os.File{barrier, report}
		cmd.Stdout, cmd.Stderr = &outs[i].stdout, &outs[i].stderr
		if err := cmd.Start(); err != nil {
			u.t.Fatal(err)
		}
		cmds[i] = cmd
	}
	barrier.Close()
	report.Close()
	if _, err := io.ReadFull(ready, make([]byte, n)); err != nil {
		u.t.Fatalf("waiting for %d processes at the barrier: %v", n, err)
	}
	open.Close()

	results := make([]result, n)
	for i, cmd := range cmds {
		code, err := exitCode(ctx, cmd.Wait())
		if err != nil {
			u.t.Fatal(err)
		}
		results[i] = u.remember(result{args: args, code: code,
			stdout: outs[i].stdout.String(), stderr: outs[i].stderr.String()})
	}
	return results
}

// loginWay is how the authorization URL reaches the person.
type loginWay int

const (
	byBrowser loginWay = iota // the program starts $BROWSER with it
	byPrinted                 // the program prints it
)

func (u *user) loginArgs(way loginWay) []string {
	args := []string{"login", target,
		"--url", u.server.Resource(),
		"--issuer", u.server.Issuer(),
		"--client-id", u.server.ClientID(),
	}
	for _, scope := range u.server.Scopes() {
		args = append(args, "--scope", scope)
	}
	if way == byPrinted {
		args = append(args, "--no-browser")
	}
	return args
}

// login runs "login" and lets somebody walk the pages while it waits.
func (u *user) login(ctx context.Context, way loginWay, who person.Person) (result, person.Page) {
	u.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := u.loginArgs(way)
	cmd := u.command(ctx, args...)
	found := make(chan string, 1)
	var stdout, stderr bytes.Buffer
	cmd.Stdout = &stdout
	printed := io.Writer(&stderr)
	if way == byBrowser {
		browser, urls := u.fakeBrowser(ctx)
		cmd.Env = append(cmd.Env, "BROWSER="+browser)
		go func() {
			if address, ok := <-urls; ok {
				found <- address
			}
		}()
	} else {
		printed = io.MultiWriter(&stderr, &urlFinder{prefix: u.server.AuthorizationEndpoint(), found: found})
	}
	cmd.Stderr = printed

	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	var page person.Page
	var err error
	select {
	case address := <-found:
		if page, err = who.SignIn(ctx, address); err != nil {
			cancel()
			<-ended
			u.t.Fatalf("the person did not get through: %v\nstderr: %s", err, &stderr)
		}
		err = <-ended
	case err = <-ended:
	}
	code, err := exitCode(ctx, err)
	if err != nil {
		u.t.Fatalf("login: %v\nstderr: %s", err, &stderr)
	}
	return u.remember(result{args: args, stdout: stdout.String(), stderr: stderr.String(), code: code}), page
}

// mustLogin signs in, for tests that are about what comes after it.
func (u *user) mustLogin(ctx context.Context) {
	u.t.Helper()
	if r, _ := u.login(ctx, byPrinted, u.server.Account()); r.code != exitOK {
		u.t.Fatal(r)
	}
}

// fakeBrowser makes a program that passes its one argument on.
func (u *user) fakeBrowser(ctx context.Context) (path string, urls <-chan string) {
	u.t.Helper()
	dir := u.t.TempDir()
	pipe := filepath.Join(dir, "urls")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		u.t.Fatal(err)
	}
	path = filepath.Join(dir, "browser")
	script := fmt.Sprintf("#!/bin/sh\n[ $# -eq 1 ] || { echo \"$# arguments\" >'%[1]s'; exit 1; }\nprintf '%%s\\n' \"$1\" >'%[1]s'\n", pipe)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		u.t.Fatal(err)
	}
	// Open for both, so that neither this nor the browser waits for the other.
	reader, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		u.t.Fatal(err)
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

// urlFinder reports the first authorization URL in what is written to it.
type urlFinder struct {
	prefix string
	found  chan<- string
	seen   bytes.Buffer
	done   bool
}

func (f *urlFinder) Write(p []byte) (int, error) {
	f.seen.Write(p)
	if !f.done {
		whole := regexp.MustCompile(regexp.QuoteMeta(f.prefix) + `\?\S+\s`)
		if match := whole.FindString(f.seen.String()); match != "" {
			f.done = true
			f.found <- strings.TrimSpace(match)
		}
	}
	return len(p), nil
}

// store reads the credential file as any other program would.
func (u *user) store() map[string]map[string]any {
	u.t.Helper()
	data, err := os.ReadFile(u.storePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		u.t.Fatal(err)
	}
	var records map[string]map[string]any
	if err := json.Unmarshal(data, &records); err != nil {
		u.t.Fatalf("the store is damaged: %v", err)
	}
	return records
}

func (u *user) member(name string) string {
	u.t.Helper()
	value, _ := u.store()[target][name].(string)
	return value
}

func (u *user) accessToken() string  { u.t.Helper(); return u.member("accessJwt") }
func (u *user) refreshToken() string { u.t.Helper(); return u.member("refreshToken") }

// expire makes the stored access token look expired, by replacing the file as
// a program that shares it would. It stands in for waiting.
func (u *user) expire() {
	u.t.Helper()
	records := u.store()
	if records[target] == nil {
		u.t.Fatal("nothing stored that could expire")
	}
	records[target]["expiresAt"] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
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
func (u *user) secretFile(token string) string {
	u.t.Helper()
	path := filepath.Join(u.t.TempDir(), "rejected")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// leaks searches everything the program printed and every file it may have
// written. A secret may stand in the store, and an access token in what
// "token" prints on stdout; nowhere else.
func (u *user) leaks() []string {
	secrets := u.server.Tap().Secrets()
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
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.runs {
		what := strings.Join(r.args, " ")
		allowed := ""
		if r.args[0] == "token" {
			allowed = "access_token"
		}
		search("stdout of "+what, r.stdout, allowed)
		search("stderr of "+what, r.stderr, "")
	}
	err := filepath.WalkDir(u.home, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path == u.storePath() {
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
