//go:build linux

package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/spendoncetest"
)

// voice is what a process says while it runs.
type voice struct {
	mu    sync.Mutex
	heard chan struct{} // closed at the next word
	b     bytes.Buffer
}

func (v *voice) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.b.Write(p)
	if v.heard != nil {
		close(v.heard)
		v.heard = nil
	}
	return len(p), nil
}

// listen returns what was said, and a channel that closes when there is more.
func (v *voice) listen() (string, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.heard == nil {
		v.heard = make(chan struct{})
	}
	return v.b.String(), v.heard
}

// await waits until the process says what pattern matches, and returns its
// submatches.
func (v *voice) await(t *testing.T, pattern string) []string {
	t.Helper()
	bound := time.After(30 * time.Second)
	for {
		said, more := v.listen()
		if m := regexp.MustCompile(pattern).FindStringSubmatch(said); m != nil {
			return m
		}
		select {
		case <-more:
		case <-bound:
			t.Fatalf("it does not say %q, but %q", pattern, said)
		}
	}
}

// signingIn is a login that runs.
type signingIn struct {
	*process
	voice *voice
	in    io.WriteCloser
}

const addressOf = `\n  (http://\S+/authorize\?\S+)\n`

// bare is a machine without a browser, a display, or a terminal.
var bare = []string{"BROWSER=", "DISPLAY=", "WAYLAND_DISPLAY=", "SSH_CONNECTION=", "SSH_TTY=", "WSL_DISTRO_NAME=", "container="}

// signIn starts "login box --url RESOURCE ARG...".
func (h *home) signIn(env []string, args ...string) *signingIn {
	h.t.Helper()
	p := h.command(append([]string{"login", "box", "--url", h.server.ResourceURL()}, args...)...)
	p.Env = append(append(p.Env, bare...), env...)
	v := &voice{}
	p.Stderr = io.MultiWriter(&p.err, v)
	in, err := p.StdinPipe()
	must(h.t, err)
	must(h.t, p.Start())
	h.t.Cleanup(func() { _ = p.Process.Kill() })
	return &signingIn{p, v, in}
}

// authorize is what alice does at the address, up to the redirect.
func authorize(t *testing.T, address string) *url.URL {
	t.Helper()
	back, err := spendoncetest.Person{}.Authorize(t.Context(), address)
	must(t, err)
	return back
}

// comeBack opens the redirect, as her browser does, and returns the page.
func comeBack(t *testing.T, back *url.URL) string {
	t.Helper()
	resp, err := http.Get(back.String())
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(b)
}

// endsSignedIn waits, and demands a token of the session.
func (s *signingIn) endsSignedIn() {
	s.h.t.Helper()
	if code, _ := s.end(); code != 0 {
		s.h.t.Fatalf("the login ended with %d: %s", code, s.err.String())
	}
	if !strings.Contains(s.err.String(), "signed in to box as alice@example.test") {
		s.h.t.Errorf("it said %s", s.err.String())
	}
	if code, out, said := s.h.run("token", "box"); code != 0 || !s.h.server.Live(out) {
		s.h.t.Errorf("token ended with %d: %s", code, said)
	}
}

func TestASignInByDeviceCodeNeedsNoBrowserHere(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{DeviceInterval: time.Second})
	s := h.signIn(nil, "--device")
	code := s.voice.await(t, `enter the code\n\n  (\S+)\n`)[1]
	must(t, h.server.ApproveDevice(code, "alice"))
	s.endsSignedIn()
}

func TestADeviceThatIsDeniedIsNotSignedIn(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{DeviceInterval: time.Second})
	s := h.signIn(nil, "--device")
	code := s.voice.await(t, `enter the code\n\n  (\S+)\n`)[1]
	must(t, h.server.DenyDevice(code))
	if code, _ := s.end(); code != 1 || !strings.Contains(s.err.String(), "refused on the page") {
		t.Errorf("it ended with %d: %s", code, s.err.String())
	}
}

func TestTheAddressOfABrowserElsewhereIsPasted(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	s := h.signIn([]string{"SSH_CONNECTION=192.0.2.1 1 192.0.2.2 22"}, "--paste")
	back := authorize(t, s.voice.await(t, addressOf)[1])
	wrong := *back
	wrong.RawQuery = "code=canary&state=wrong"
	_, err := io.WriteString(s.in, wrong.String()+"\n")
	must(t, err)
	s.voice.await(t, "not the answer of this sign-in")
	_, err = io.WriteString(s.in, back.String()+"\n")
	must(t, err)
	s.endsSignedIn()
	if strings.Contains(s.err.String(), "canary") {
		t.Error("it repeats what was pasted")
	}
}

func TestHowToSignInIsChosenByWhatIsThereAndExplained(t *testing.T) {
	noDevices := spendoncetest.Answer{Endpoint: spendoncetest.DiscoveryEndpoint, Omit: []string{"device_authorization_endpoint"}, Times: -1}
	for name, c := range map[string]struct {
		env       []string
		noDevices bool
		says      string
		code      int // with which it ends at once; -1: it goes on
	}{
		"SSH":                     {env: []string{"DISPLAY=:0", "SSH_CONNECTION=192.0.2.1 1 192.0.2.2 22"}, says: `with a code on another device: this is an SSH session`, code: -1},
		"a container":             {env: []string{"DISPLAY=:0", "container=podman"}, says: `with a code on another device: this is a container`, code: -1},
		"a browser over SSH":      {env: []string{"BROWSER=true", "SSH_TTY=/dev/pts/0"}, says: `Open this address in a browser`, code: -1},
		"no way at all":           {noDevices: true, says: "nobody can be asked to sign in: th.* --paste in a terminal", code: 1},
		"no way at all, over SSH": {noDevices: true, env: []string{"SSH_TTY=/dev/pts/0"}, says: "nobody can be asked to sign in: this is an SSH session", code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, spendoncetest.TokenServerConfig{DeviceInterval: time.Second})
			if c.noDevices {
				must(t, h.server.Script(noDevices))
			}
			s := h.signIn(c.env)
			s.voice.await(t, c.says)
			if c.code < 0 {
				must(t, s.Process.Kill())
				s.end()
				return
			}
			if code, _ := s.end(); code != c.code {
				t.Errorf("it ended with %d: %s", code, s.err.String())
			}
		})
	}
}

func TestOfThreeLoginsAtOnceOneAsksThePersonAndAllAreSignedIn(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	first := h.signIn(nil, "--no-browser")
	address := first.voice.await(t, addressOf)[1]
	var others []*signingIn
	for range 2 {
		s := h.signIn(nil, "--no-browser")
		s.voice.await(t, "Another process is signing in to box: waiting for it, for 1m0s at most")
		others = append(others, s)
	}
	comeBack(t, authorize(t, address))
	first.endsSignedIn()
	for _, s := range others {
		s.endsSignedIn()
		if strings.Contains(s.err.String(), "Open this address") || !strings.Contains(s.err.String(), "by another process") {
			t.Errorf("it said %s", s.err.String())
		}
	}
	if c := h.server.Counters(); c.Registrations != 1 {
		t.Errorf("%d registrations", c.Registrations)
	}
}

func TestALoginThatIsKilledLeavesItsTurnToTheNext(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	first := h.signIn(nil, "--no-browser")
	first.voice.await(t, addressOf)
	second := h.signIn(nil, "--no-browser")
	second.voice.await(t, "Another process")
	must(t, first.Process.Kill())
	first.end()
	comeBack(t, authorize(t, second.voice.await(t, addressOf)[1]))
	second.endsSignedIn()
}

func TestWithoutATerminalTheWaitForAnotherLoginEnds(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	h.write("config/spendonce/config.toml", "[lock]\nstale_after = \"1s\"\n")
	h.signIn(nil, "--no-browser").voice.await(t, addressOf)
	second := h.signIn(nil, "--no-browser")
	second.voice.await(t, "for 1s at most")
	comeBack(t, authorize(t, second.voice.await(t, addressOf)[1]))
	second.endsSignedIn()
}

func TestAtATerminalEnterEndsTheWaitForAnotherLogin(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	h.signIn(nil, "--no-browser").voice.await(t, addressOf)
	master, slave := openTerminal(t)
	t.Cleanup(func() { _ = master.Close() })
	p := h.command("login", "box", "--url", h.server.ResourceURL(), "--no-browser")
	v := &voice{}
	p.Env, p.Stdin, p.Stderr = append(p.Env, bare...), slave, io.MultiWriter(&p.err, v)
	must(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	must(t, slave.Close())
	second := &signingIn{p, v, nil}
	v.await(t, "Press Enter to sign in here instead")
	_, err := io.WriteString(master, "\n")
	must(t, err)
	comeBack(t, authorize(t, v.await(t, addressOf)[1]))
	second.endsSignedIn()
}

// Reading the terminal would stop a job of the background, for good.
func TestInTheBackgroundOfATerminalTheWaitForAnotherLoginHasABound(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	first := h.signIn(nil, "--no-browser")
	address := first.voice.await(t, addressOf)[1]
	master, slave := openTerminal(t)
	t.Cleanup(func() { _ = master.Close() })
	p := h.command("login", "box", "--url", h.server.ResourceURL(), "--no-browser")
	shell, err := exec.LookPath("dash") // another one would give up its jobs here, and the terminal with them
	must(t, err)
	p.Path, p.Args = shell, append([]string{"dash", "-mc", `"$@" & wait $!`, "dash", p.Path}, p.Args[1:]...)
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	v := &voice{}
	p.Env, p.Stdin, p.Stderr = append(p.Env, bare...), slave, io.MultiWriter(&p.err, v)
	must(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	must(t, slave.Close())
	v.await(t, "waiting for it, for 1m0s at most")
	comeBack(t, authorize(t, address))
	first.endsSignedIn()
	(&signingIn{p, v, nil}).endsSignedIn()
}

// What is typed after the wait is for whoever reads the terminal next.
func TestWhatIsTypedAfterTheWaitIsLeftToOthers(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	first := h.signIn(nil, "--no-browser")
	first.voice.await(t, addressOf)
	master, slave := openTerminal(t)
	t.Cleanup(func() { _ = master.Close() })
	t.Cleanup(func() { _ = slave.Close() })
	p := h.command("login", "box", "--url", h.server.ResourceURL(), "--no-browser")
	v := &voice{}
	p.Env, p.Stdin, p.Stderr = append(p.Env, bare...), slave, io.MultiWriter(&p.err, v)
	must(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	v.await(t, "Press Enter")
	must(t, first.Process.Kill())
	first.end()
	back := authorize(t, v.await(t, addressOf)[1])
	_, err := io.WriteString(master, "for others\n")
	must(t, err)
	comeBack(t, back)
	(&signingIn{p, v, nil}).endsSignedIn()
	if n, err := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCINQ); n != len("for others\n") {
		t.Errorf("%d bytes are left, %v", n, err)
	}
}

// The person has signed in, and nobody would ever use or end that session.
func TestALoginThatIsInterruptedBeforeItIsSavedIsEndedAtTheServer(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	s := h.signIn(nil, "--no-browser")
	back := authorize(t, s.voice.await(t, addressOf)[1])
	guard, err := os.OpenFile(filepath.Join(h.dir, "state/remote-credentials.json.lock.guard"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer func() { _ = guard.Close() }()
	must(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_EX)) // another process saves, and takes its time
	before := h.server.Counters().CodeExchanges
	visited := make(chan struct{})
	go func() {
		defer close(visited)
		if resp, err := http.Get(back.String()); err == nil {
			_ = resp.Body.Close()
		}
	}()
	h.awaitCounters("the exchange of the code", func(c spendoncetest.Counters) bool { return c.CodeExchanges == before+1 })
	must(t, s.Process.Signal(syscall.SIGINT))
	if code, _ := s.end(); code != 130 {
		t.Errorf("it ended with %d: %s", code, s.err.String())
	}
	<-visited
	if c := h.server.Counters(); c.Revocations == 0 {
		t.Error("the session that nobody can use was not ended")
	}
}

func TestALoginForSomethingElseIsNotAdopted(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	first := h.signIn(nil, "--no-browser")
	address := first.voice.await(t, addressOf)[1]
	second := h.signIn(nil, "--no-browser", "--scope", "more")
	second.voice.await(t, "Another process")
	comeBack(t, authorize(t, address))
	first.endsSignedIn()
	own := second.voice.await(t, addressOf)[1]
	if !strings.Contains(own, "more") {
		t.Errorf("it asks for %s", own)
	}
	comeBack(t, authorize(t, own))
	second.endsSignedIn()
}

// A person who walks away must not keep anybody from anything.
func TestALoginThatNobodyFinishesHoldsNothingUp(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	left := h.signIn(nil, "--no-browser")
	left.voice.await(t, addressOf)
	h.write("token", "static-token\n")
	for _, args := range [][]string{
		{"token", "work"}, {"token", "work", "--refresh"}, {"login", "other", "--token-file", filepath.Join(h.dir, "token")}, {"token", "other"},
		{"login", "box", "--token-file", filepath.Join(h.dir, "token")}, {"token", "box"}, {"list"}, {"logout", "box"}, {"logout", "other"},
	} {
		if code, _, said := h.run(args...); code != 0 {
			t.Errorf("%s ended with %d: %s", strings.Join(args, " "), code, said)
		}
	}
}

func TestABrowserThatFailsOrHangsDoesNotKeepAnybodyFromSigningIn(t *testing.T) {
	for name, browser := range map[string]string{"missing": "/nonexistent/browser", "failing": "false", "hanging": "sleep 1000 %s"} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, spendoncetest.TokenServerConfig{})
			if name == "hanging" {
				hang := filepath.Join(h.dir, "browser")
				must(t, os.WriteFile(hang, []byte("#!/bin/sh\nread line <\"$PIPE\"\n"), 0o700))
				browser = hang
			}
			pipe := filepath.Join(h.dir, "pipe")
			hold := fifo(t, pipe)
			s := h.signIn([]string{"BROWSER=" + browser, "PIPE=" + pipe})
			comeBack(t, authorize(t, s.voice.await(t, addressOf)[1]))
			s.endsSignedIn()
			_, err := hold.WriteString("\n") // the browser may end
			must(t, err)
		})
	}
}

func TestALoginWhoseSessionCannotBeSavedSaysSoInTheBrowserToo(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	s := h.signIn(nil, "--no-browser")
	back := authorize(t, s.voice.await(t, addressOf)[1])
	store := filepath.Join(h.dir, "state/remote-credentials.json")
	must(t, os.WriteFile(store, []byte("{"), 0o600))
	page := comeBack(t, back)
	if code, _ := s.end(); code != 6 {
		t.Errorf("it ended with %d: %s", code, s.err.String())
	}
	if !strings.Contains(page, "Sign-in did not succeed") || !strings.Contains(page, "is damaged") {
		t.Errorf("the page is %s", page)
	}
	if c := h.server.Counters(); c.Revocations == 0 {
		t.Error("the session that nobody can use was not ended")
	}
}

func TestAMachineSignsInWithItsClientsSecret(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{RequireClientSecret: true, Lifetime: time.Hour})
	secret := h.server.ClientSecret()
	h.write("rejected", secret.Reveal()) // a name that the search for secrets leaves out
	s := h.signIn(nil, "--client-credentials", "--client-id", h.server.ClientID(), "--client-secret-file", filepath.Join(h.dir, "rejected"))
	if code, _ := s.end(); code != 0 {
		t.Fatalf("it ended with %d: %s", code, s.err.String())
	}
	_, first, _ := h.run("token", "box")
	code, second, said := h.run("token", "box", "--refresh")
	if code != 0 || first == second || !h.server.Live(first) || !h.server.Live(second) {
		t.Errorf("the renewal ended with %d: %s", code, said)
	}
	if c := h.server.Counters(); c.ClientCredentials != 2 {
		t.Errorf("%d grants to the client", c.ClientCredentials)
	}
	var list struct {
		Targets []struct{ Target, State string }
	}
	_, out, _ := h.run("list", "--json")
	must(t, json.Unmarshal([]byte(out), &list))
	if len(list.Targets) == 0 || list.Targets[0].State != "valid" {
		t.Errorf("the list says %s", out)
	}
	if strings.Contains(h.outputs.String(), secret.Reveal()) {
		t.Error("the client's secret was printed")
	}
}

// fifo makes a pipe with a name and keeps it open, so that nobody waits at it.
func fifo(t *testing.T, path string) *os.File {
	t.Helper()
	must(t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}
