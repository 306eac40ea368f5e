//go:build linux

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// binary is the plain program: these tests are about processes, and a
// race-built one takes too long to start by the dozen.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("SPENDONCE_BIN"); path != "" {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	dir, err := os.MkdirTemp("", "spendonce-bin-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "spendonce")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// home is one user with one signed-in session.
type home struct {
	t       *testing.T
	bin     string
	dir     string
	server  *spendoncetest.TokenServer
	session spendoncetest.Session
	outputs bytes.Buffer // all that any process of it said
	mu      sync.Mutex
}

func newHome(t *testing.T, cfg spendoncetest.TokenServerConfig) *home {
	t.Helper()
	heedSignals()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	server, err := spendoncetest.StartTokenServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &home{t: t, bin: bin, dir: t.TempDir(), server: server}
	t.Cleanup(func() {
		_ = server.Close()
		h.searchForSecrets()
	})
	h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\ntoken_endpoint = %q\nclient_id = %q\n", server.TokenEndpoint(), server.ClientID()))
	h.renew()
	return h
}

// renew stores a new session whose access token has expired.
func (h *home) renew() {
	h.session = h.server.NewSession("alice")
	b, _ := json.Marshal(map[string]any{"work": map[string]string{
		"kind": "oidc", "refreshToken": h.session.RefreshToken.Reveal(), "accessJwt": h.session.AccessToken.Reveal(), "expiresAt": "2020-01-01T00:00:00.000Z",
	}})
	h.write("state/remote-credentials.json", string(b))
	_ = os.Remove(filepath.Join(h.dir, "state/sessions/work.json"))
}

func (h *home) write(name, content string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) store() []byte {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.dir, "state/remote-credentials.json"))
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// process is one run of the program.
type process struct {
	*exec.Cmd
	h        *home
	out, err buffer
}

// buffer may be read while the process still writes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (h *home) command(args ...string) *process {
	p := &process{Cmd: exec.Command(h.bin, args...), h: h}
	p.Env = append(os.Environ(), "HOME="+h.dir, "SPENDONCE_STATE_DIR="+filepath.Join(h.dir, "state"), "XDG_CONFIG_HOME="+filepath.Join(h.dir, "config"))
	p.Stdout, p.Stderr = &p.out, &p.err
	return p
}

func (h *home) start(args ...string) *process {
	h.t.Helper()
	p := h.command(args...)
	if err := p.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// end waits and returns exit code and standard output.
func (p *process) end() (int, string) {
	p.h.t.Helper()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.h.t.Fatal(err)
	}
	p.h.mu.Lock()
	p.h.outputs.WriteString(p.err.String())
	p.h.mu.Unlock()
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -int(status.Signal()), p.out.String()
	}
	return p.ProcessState.ExitCode(), strings.TrimSuffix(p.out.String(), "\n")
}

func (h *home) run(args ...string) (int, string, string) {
	h.t.Helper()
	p := h.start(args...)
	code, out := p.end()
	return code, out, p.err.String()
}

func (h *home) searchForSecrets() {
	state := filepath.Join(h.dir, "state")
	var tokens []canary.Value
	for i, token := range h.server.Issued() {
		tokens = append(tokens, canary.Value{Name: fmt.Sprintf("token %d of those issued", i+1), Secret: token})
	}
	canary.Absent(h.t, tokens, canary.Places{
		Outputs: map[string][]byte{"what was said": h.outputs.Bytes()}, Dirs: []string{h.dir},
		Allow: []string{filepath.Join(state, "remote-credentials.json"), filepath.Join(state, ".remote-credentials.json.*.tmp"), "rejected"},
	})
}

func (h *home) held(point spendoncetest.Point, n int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	if err := h.server.WaitForHeld(ctx, point, n); err != nil {
		h.t.Fatalf("the server holds no request: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rounds are few with the race detector, where TestStorm... runs again
// without it, and all of them in a soak.
func rounds(t *testing.T, share, soak int) int {
	if os.Getenv("SPENDONCE_SOAK") == "1" {
		return soak
	}
	if testing.Short() {
		return 1
	}
	t.Logf("a share of %d of %d rounds", share, soak)
	return share
}

func TestStormOfProcessesMakesOneExchange(t *testing.T) {
	for _, n := range []int{2, 8, 32, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := newHome(t, spendoncetest.TokenServerConfig{Latency: 20 * time.Millisecond})
			count := rounds(t, 3, 20)
			if n == 64 {
				count = rounds(t, 10, 200)
			}
			for range count {
				h.renew()
				h.storm(t, n, "token", "work")
			}
			c := h.server.Counters()
			if c.Exchanges != count || c.TokenPosts != count || c.DoubleSpends != 0 || c.FamiliesRevoked != 0 {
				t.Fatalf("%d rounds made %d exchanges in %d posts, %d double spends, %d families revoked", count, c.Exchanges, c.TokenPosts, c.DoubleSpends, c.FamiliesRevoked)
			}
		})
	}
}

func TestStormAfterOneSharedRejectionMakesOneExchange(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{Latency: 20 * time.Millisecond})
	count := rounds(t, 3, 20)
	for range count {
		h.renew()
		_, token, _ := h.run("token", "work")
		must(t, h.server.RevokeAccessToken(token))
		h.write("rejected", token)
		before := h.server.Counters().Exchanges
		h.storm(t, 64, "token", "work", "--rejected", filepath.Join(h.dir, "rejected"))
		if n := h.server.Counters().Exchanges - before; n != 1 {
			t.Fatalf("64 processes with one rejected token made %d exchanges", n)
		}
	}
}

// storm starts n processes behind a barrier and checks that all of them print
// the same live token.
func (h *home) storm(t *testing.T, n int, args ...string) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	processes := make([]*process, n)
	for i := range processes {
		p := h.command()
		p.Path = "/bin/sh"
		p.Args = append([]string{"sh", "-c", `read -r _; exec "$0" "$@" </dev/null`, h.bin}, args...)
		p.Stdin = r
		must(t, p.Start())
		processes[i] = p
	}
	_ = r.Close()
	_ = w.Close()
	tokens := map[string]int{}
	for _, p := range processes {
		code, token := p.end()
		if code != 0 || !h.server.Live(token) {
			t.Errorf("a process ended with %d, live token %v: %s", code, h.server.Live(token), p.err.String())
		}
		tokens[token]++
	}
	if len(tokens) != 1 {
		t.Errorf("%d different tokens were printed", len(tokens))
	}
}

func TestTheFirstInterruptWaitsForTheCommitAndGivesTheToken(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			h := newHome(t, spendoncetest.TokenServerConfig{})
			must(t, h.server.Hold(spendoncetest.After))
			p := h.start("token", "work")
			h.held(spendoncetest.After, 1)
			must(t, p.Process.Signal(sig))
			h.awaitTalk(p, "finishing the refresh")
			must(t, h.server.Release(spendoncetest.After))
			code, token := p.end()
			if code != 0 || !h.server.Live(token) {
				t.Fatalf("ended with %d and a live token: %v; %s", code, h.server.Live(token), p.err.String())
			}
			if !bytes.Contains(h.store(), []byte(token)) {
				t.Fatal("the token that was printed is not in the store")
			}
		})
	}
}

func TestTheSecondInterruptEndsAtOnce(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	must(t, h.server.Hold(spendoncetest.Before))
	p := h.start("token", "work")
	h.held(spendoncetest.Before, 1)
	must(t, p.Process.Signal(syscall.SIGINT))
	h.awaitTalk(p, "finishing the refresh")
	must(t, p.Process.Signal(syscall.SIGINT))
	if code, _ := p.end(); code != 128+int(syscall.SIGINT) {
		t.Fatalf("ended with %d", code)
	}
}

func TestAMereWaiterEndsAtOnce(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	must(t, h.server.Hold(spendoncetest.After))
	holder := h.start("token", "work")
	h.held(spendoncetest.After, 1)
	waiter := h.start("token", "work")
	h.awaitOpen(waiter, "work.lock.guard")
	must(t, waiter.Process.Signal(syscall.SIGTERM))
	if code, out := waiter.end(); code != 128+int(syscall.SIGTERM) || out != "" {
		t.Fatalf("the waiter ended with %d and printed %d bytes: %s", code, len(out), waiter.err.String())
	}
	must(t, h.server.Release(spendoncetest.After))
	if code, token := holder.end(); code != 0 || !h.server.Live(token) {
		t.Fatalf("the holder ended with %d", code)
	}
}

// awaitTalk returns once the process has said text on its standard error.
func (h *home) awaitTalk(p *process, text string) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("the process says %q", text), func() bool {
		return strings.Contains(p.err.String(), text)
	})
}

// awaitOpen returns once the process has a file of that name open.
func (h *home) awaitOpen(p *process, name string) {
	h.t.Helper()
	h.eventually("the process has "+name+" open", func() bool {
		fds := fmt.Sprintf("/proc/%d/fd", p.Process.Pid)
		entries, _ := os.ReadDir(fds)
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && filepath.Base(to) == name {
				return true
			}
		}
		return false
	})
}

// eventually looks every millisecond: what it waits for happens in another
// process, which does not tell us.
func (h *home) eventually(what string, ok func() bool) {
	h.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			h.t.Fatalf("waited 30 s until %s", what)
		case <-tick.C:
		}
	}
}

func TestAStopFromTheTerminalWaitsUntilTheLockIsReleased(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	must(t, h.server.Hold(spendoncetest.After))
	p := h.start("token", "work")
	h.held(spendoncetest.After, 1)
	must(t, p.Process.Signal(syscall.SIGTSTP))
	// The stop is pending while the answer is held; another process would
	// wait for nothing if it were not.
	must(t, h.server.Release(spendoncetest.After))
	h.eventually("the process has stopped or ended", func() bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Process.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		return err == nil && info.Signo == int32(unix.SIGCHLD)
	})
	// Whatever it is, the lock is free now and the token committed.
	code, token, talk := h.run("token", "work")
	if code != 0 || !h.server.Live(token) {
		t.Fatalf("beside a process stopped at the terminal: exit %d: %s", code, talk)
	}
	must(t, p.Process.Signal(syscall.SIGCONT))
	if code, own := p.end(); code != 0 || own != token {
		t.Fatalf("continued, it ended with %d and the same token: %v", code, own == token)
	}
	if c := h.server.Counters(); c.Exchanges != 1 || c.DoubleSpends != 0 {
		t.Fatalf("%d exchanges, %d double spends", c.Exchanges, c.DoubleSpends)
	}
}

func TestAProcessThatHoldsATokenIsNotDumpable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root sees who owns the files of a process that is not dumpable")
	}
	h := newHome(t, spendoncetest.TokenServerConfig{})
	must(t, h.server.Hold(spendoncetest.Before))
	p := h.command("token", "work")
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for dir := h.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) { // which is everybody's
		must(t, os.Chmod(dir, 0o711))
	}
	must(t, filepath.WalkDir(h.dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 65534, 65534))
	}))
	must(t, p.Start())
	h.held(spendoncetest.Before, 1)
	var st unix.Stat_t
	must(t, unix.Stat(fmt.Sprintf("/proc/%d/environ", p.Process.Pid), &st))
	if st.Uid != 0 {
		t.Errorf("its files in /proc belong to user %d: others of that user can read its memory", st.Uid)
	}
	must(t, h.server.Release(spendoncetest.Before))
	if code, _ := p.end(); code != 0 {
		t.Fatalf("ended with %d: %s", code, p.err.String())
	}
}

func TestDebugSettingsThatPrintHeadersAreGone(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	p := h.command("token", "work")
	p.Env = append(p.Env, "GODEBUG=http2debug=2,netdns=go")
	must(t, p.Start())
	if code, token := p.end(); code != 0 || !h.server.Live(token) || p.err.String() != "" {
		t.Fatalf("ended with %d and said %q", code, p.err.String())
	}
}

func TestATokenGoesNowhereElseWhenStandardOutputIsClosed(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	p := h.command()
	p.Path, p.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" token work <&- >&- 2>&-`, h.bin}
	must(t, p.Start())
	if code, _ := p.end(); code != 0 {
		t.Fatalf("ended with %d", code)
	}
	var records map[string]map[string]string
	if err := json.Unmarshal(h.store(), &records); err != nil || !h.server.Live(records["work"]["accessJwt"]) {
		t.Fatalf("the store holds no live token: %v", err)
	}
}

func TestAReaderThatGoesAwayLosesNothing(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	r, w, err := os.Pipe()
	must(t, err)
	p := h.command("token", "work")
	p.Stdout = w
	must(t, r.Close())
	must(t, p.Start())
	_ = w.Close()
	_, _ = p.end()
	code, token, _ := h.run("token", "work")
	if c := h.server.Counters(); code != 0 || !h.server.Live(token) || c.Exchanges != 1 {
		t.Fatalf("afterwards: exit %d, %d exchanges", code, c.Exchanges)
	}
}
