//go:build linux

package broker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/lease"
)

// site is where a broker lives.
type site struct {
	t      testing.TB
	dir    string
	socket string
	state  string // the directory

	mu       sync.Mutex
	warnings []string
}

func newSite(t testing.TB) *site {
	t.Helper()
	dir := openTempDir(t)
	return &site{t: t, dir: dir, socket: filepath.Join(dir, "s", "broker.sock"), state: filepath.Join(dir, "state")}
}

func (s *site) config() broker.Config {
	return broker.Config{Socket: s.socket, StateDir: s.state, Warn: func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.warnings = append(s.warnings, text)
	}}
}

func (s *site) warned() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.warnings, "\n")
}

// serve runs the broker in this process until the test ends or stop is called.
func (s *site) serve(change ...func(*broker.Config)) (stop func()) {
	s.t.Helper()
	cfg := s.config()
	for _, c := range change {
		c(&cfg)
	}
	server, err := broker.Open(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// broken opens the broker, which must fail, and returns why.
func (s *site) broken(change ...func(*broker.Config)) error {
	s.t.Helper()
	cfg := s.config()
	for _, c := range change {
		c(&cfg)
	}
	server, err := broker.Open(cfg)
	if err == nil {
		server.Close()
		s.t.Fatal("the broker starts")
	}
	return err
}

func (s *site) status() broker.Status {
	s.t.Helper()
	st, err := broker.QueryStatus(context.Background(), s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// lastRefusal is the newest.
func (s *site) lastRefusal() broker.Refused {
	s.t.Helper()
	all := s.status().Refusals
	if len(all) == 0 {
		s.t.Fatal("nothing was refused")
	}
	return all[0]
}

// audit returns the decisions written down so far. All are there once the
// broker has ended.
func (s *site) audit() []map[string]any {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.state, "broker-audit.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	var all []map[string]any
	for line := range bytes.Lines(b) {
		var d map[string]any
		if err := json.Unmarshal(line, &d); err != nil {
			s.t.Fatalf("the line %q: %v", line, err)
		}
		all = append(all, d)
	}
	return all
}

// stateFile is what stands in it.
func (s *site) stateFile() string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.state, "broker-state.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

func (s *site) client() *lease.Client { return &lease.Client{Socket: s.socket} }

// plan is what a broker in a process of its own is told.
type plan struct {
	Config broker.Config
	Files  uint64 // RLIMIT_NOFILE; 0: as it is
	Umask  int
	Handed bool // the socket is descriptor 3
}

const planVariable = "BROKER_TEST_PLAN"

// serve is the process of a broker.
func serve() error {
	var p plan
	if err := json.Unmarshal([]byte(os.Getenv(planVariable)), &p); err != nil {
		return err
	}
	if p.Files > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: p.Files, Max: p.Files}); err != nil {
			return err
		}
	}
	unix.Umask(p.Umask)
	go func() { // under whatever commands: it does not outlive the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	p.Config.Warn = func(text string) { fmt.Println("warning:", text) }
	if p.Handed {
		p.Config.Activated = os.NewFile(3, "socket")
	}
	server, err := broker.Open(p.Config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	fmt.Println("ready")
	return server.Serve(ctx)
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, broker.ErrUnsafe), errors.Is(err, broker.ErrNotCommitted):
		return 6
	case errors.Is(err, broker.ErrRunning):
		return 7
	}
	return 1
}

// process is a broker in a process of its own.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	out    *bufio.Reader
	stderr bytes.Buffer
	ended  bool
}

// start starts it and does not wait for it.
func (s *site) start(change func(*plan, *exec.Cmd)) *process {
	s.t.Helper()
	p := plan{Config: broker.Config{Socket: s.socket, StateDir: s.state}, Umask: 0o022}
	cmd := exec.Command("/proc/self/exe")
	if change != nil {
		change(&p, cmd)
	}
	p.Config.Warn = nil
	text, err := json.Marshal(planOf(p))
	if err != nil {
		s.t.Fatal(err)
	}
	b := &process{t: s.t, cmd: cmd}
	cmd.Env = append(environment("broker"), planVariable+"="+string(text))
	cmd.Stderr = &b.stderr
	if _, err := cmd.StdinPipe(); err != nil { // ends with us
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	b.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if !b.ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return b
}

// planOf leaves out what is no data.
func planOf(p plan) any {
	type data struct {
		Socket, StateDir                                                string
		MaxConnections, MaxPerProcess, MaxSessions, MaxTokens, MaxState int
		Deadline, AnswerBound                                           int64
	}
	c := p.Config
	return struct {
		Config data
		Files  uint64
		Umask  int
		Handed bool
	}{data{
		c.Socket, c.StateDir, c.MaxConnections, c.MaxPerProcess, c.MaxSessions, c.MaxTokens, c.MaxState,
		int64(c.Deadline), int64(c.AnswerBound),
	}, p.Files, p.Umask, p.Handed}
}

// run starts it and waits until it accepts requests.
func (s *site) run(change func(*plan, *exec.Cmd)) *process {
	s.t.Helper()
	b := s.start(change)
	for {
		line, err := b.out.ReadString('\n')
		if err != nil {
			_ = b.wait()
			s.t.Fatalf("the broker does not start: %s", b.stderr.String())
		}
		if line == "ready\n" {
			return b
		}
	}
}

func (b *process) wait() error {
	b.ended = true
	return b.cmd.Wait()
}

func (b *process) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.t.Fatal(err)
	}
}

// kill ends it as a crash does.
func (b *process) kill() {
	b.t.Helper()
	b.signal(unix.SIGKILL)
	_ = b.wait()
}

// end ends it as a service manager does.
func (b *process) end() {
	b.t.Helper()
	b.signal(unix.SIGTERM)
	if err := b.wait(); err != nil {
		b.t.Errorf("the broker ends with %v: %s", err, b.stderr.String())
	}
}

// fails waits for its end, which must come before it accepts requests, and
// returns its exit code and what it said.
func (b *process) fails() (int, string) {
	b.t.Helper()
	if b.ready() {
		b.t.Fatal("the broker starts")
	}
	var exit *exec.ExitError
	if err := b.wait(); !errors.As(err, &exit) {
		b.t.Fatalf("the broker ends with %v", err)
	}
	return exit.ExitCode(), b.stderr.String()
}
