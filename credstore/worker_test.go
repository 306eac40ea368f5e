package credstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// A test that needs other processes runs this binary again as a worker, which
// gets its job in this variable.
const jobVariable = "CREDSTORE_TEST_JOB"

// job is what a worker does.
type job struct {
	Do                      string // token, login, logout, static, encrypt, rekey, decrypt
	Keyring                 bool   // new keys are made in the keyring
	Dir                     string
	Target                  string
	URL, Endpoint, ClientID string // the server
	StaleAfter              time.Duration
	Rejected                string // an access token
	Refresh, Access         string // login: what the server gave

	// KillAt and StopAt end or stop the process before that step on the disk,
	// counted from 1; 0: never. A stop waits for SIGCONT.
	KillAt int
	StopAt string // "send": in the exchange, before it; "mark": before the mark is durable; "store": before the store is replaced
}

func (j job) settings() (credstore.Settings, error) {
	return credstore.Settings{URL: j.URL, Pin: credstore.Pin{TokenEndpoint: j.Endpoint, ClientID: j.ClientID}}, nil
}

// report is what a worker says on its standard output. It holds no token:
// all that a worker prints is searched for those.
type report struct {
	Token string `json:"token"` // fingerprint
	Err   string `json:"err"`
	Kind  string `json:"kind"`
	Steps []step `json:"steps"`
	Took  time.Duration
}

// step is a step on the disk.
type step struct{ Op, Path string }

func TestMain(m *testing.M) {
	if raw := os.Getenv(jobVariable); raw != "" {
		work(raw)
		return
	}
	endWithParent()
	os.Exit(m.Run())
}

var kinds = map[string]error{
	"no credential": credstore.ErrNoCredential, "outcome unknown": credstore.ErrOutcomeUnknown, "login required": credstore.ErrLoginRequired,
	"temporary": credstore.ErrTemporary, "not saved": credstore.ErrNotSaved, "not writable": credstore.ErrNotWritable,
	"locked": credstore.ErrLocked, "rejected": credstore.ErrRejected, "config": credstore.ErrConfig, "request": credstore.ErrRequest,
}

func work(raw string) {
	var j job
	if err := json.Unmarshal([]byte(raw), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The barrier: whoever started us closes the other end for all at once.
	_, _ = io.Copy(io.Discard, os.Stdin)
	start := time.Now()
	var r report
	var err error
	r.Token, r.Steps, err = j.run()
	r.Took = time.Since(start)
	if err != nil {
		r.Err, r.Kind = err.Error(), "other"
		for _, kind := range []string{"no credential", "outcome unknown", "login required", "temporary", "not saved", "not writable", "locked", "rejected", "config", "request"} {
			if errors.Is(err, kinds[kind]) {
				r.Kind = kind
				break
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run does the job and returns the fingerprint of the token it got and the
// steps that were done on the disk.
func (j job) run() (token string, steps []step, err error) {
	var mu sync.Mutex
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		mu.Lock()
		steps = append(steps, step{s.Op, s.Path})
		n := len(steps)
		mu.Unlock()
		switch {
		case n == j.KillAt:
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		case j.StopAt == "mark" && s.Op == "fsync" && strings.HasSuffix(s.Path, j.Target+".lock.guard"),
			j.StopAt == "store" && s.Op == "rename" && strings.HasSuffix(s.Path, ".json") && !strings.Contains(s.Path, "/sessions/"):
			stopOnce()
		}
		return do()
	}}
	by := formKeys()
	if j.Keyring {
		by = keyringKeys()
	}
	s, err := credstore.Open(credstore.Config{
		Dir: j.Dir, StaleAfter: j.StaleAfter, Disk: disk, Keys: by,
		Warn: func(text string) { fmt.Fprintln(os.Stderr, "warning:", text) },
	})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	switch j.Do {
	case "token":
		over := httpExchange()
		src, err := s.Source(credstore.SourceConfig{
			Target: j.Target, Settings: j.settings,
			Exchange: func(ctx context.Context, g credstore.Grant) (credstore.Tokens, error) {
				if j.StopAt == "send" {
					stopOnce()
				}
				return over(ctx, g)
			},
		})
		if err != nil {
			return "", nil, err
		}
		t, err := src.Get(ctx, credstore.Request{Rejected: secret.New(j.Rejected)})
		return t.AccessToken.Fingerprint(), steps, err
	case "login":
		set, _ := j.settings()
		err = onlyError(s.Login(ctx, j.Target, credstore.SignedIn{URL: set.URL, Pin: set.Pin, Tokens: credstore.Tokens{
			AccessToken: secret.New(j.Access), RefreshToken: secret.New(j.Refresh), ExpiresAt: time.Now().Add(-time.Second),
		}}))
	case "static":
		err = s.SetStatic(ctx, j.Target, secret.New(j.Access))
	case "encrypt", "rekey", "decrypt":
		err = onlyError(s.Reseal(ctx, credstore.Reseal{Do: credstore.Sealing(j.Do)}))
	case "logout":
		err = onlyError(s.Remove(ctx, j.Target))
	}
	return "", steps, err
}

var stopped sync.Once

// stopOnce stops this process as a terminal would, all threads of it before
// the next instruction of this one.
func stopOnce() {
	stopped.Do(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = stopThisThread()
	})
}

// httpExchange is the way to a real server.
func httpExchange() credstore.Exchange { return refresh.Exchange(nil) }

// worker is a process that was started and waits at the barrier.
type worker struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

// start starts a worker; it does its job when the barrier is closed.
func start(t *testing.T, j job, barrier *os.File, change func(*exec.Cmd)) *worker {
	t.Helper()
	raw, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: exec.Command(os.Args[0])}
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = barrier, &w.out, &w.err
	// The race detector would wait for a second at its end.
	w.cmd.Env = append(os.Environ(), jobVariable+"="+string(raw), "GORACE=atexit_sleep_ms=0", "GOMAXPROCS=2")
	if change != nil {
		change(w.cmd)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	return w
}

// run starts workers, lets them go at the same moment and waits for all.
func run(t *testing.T, jobs ...job) []report {
	t.Helper()
	workers, open := startAll(t, jobs...)
	open()
	reports := make([]report, len(workers))
	for i, w := range workers {
		reports[i] = w.report(t)
	}
	return reports
}

// startAll starts workers and returns what opens their barrier.
func startAll(t *testing.T, jobs ...job) (workers []*worker, open func()) {
	t.Helper()
	return startAllWith(t, nil, jobs...)
}

// startAllWith lets change say how the processes are started.
func startAllWith(t *testing.T, change func(*exec.Cmd), jobs ...job) (workers []*worker, open func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		workers = append(workers, start(t, j, r, change))
	}
	_ = r.Close()
	return workers, func() { _ = w.Close() }
}

// report waits for the worker's end.
func (w *worker) report(t *testing.T) report {
	t.Helper()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("a worker: %v: %s%s", err, &w.out, &w.err)
		return report{}
	}
	var r report
	if err := json.Unmarshal(w.out.Bytes(), &r); err != nil {
		t.Errorf("a worker said %q: %v", &w.out, err)
	}
	return r
}

// killed waits for the worker's end and reports whether it was killed.
func (w *worker) killed(t *testing.T) bool {
	t.Helper()
	err := w.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == unix.SIGKILL {
			return true
		}
	}
	if err != nil {
		t.Errorf("a worker: %v: %s%s", err, &w.out, &w.err)
	}
	return false
}

func (w *worker) stop(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.awaitStop(t)
}

func (w *worker) carryOn(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// server is a strict authorization server.
func server(t *testing.T, cfg spendoncetest.TokenServerConfig) *spendoncetest.TokenServer {
	t.Helper()
	s, err := spendoncetest.StartTokenServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func settingsOf(s *spendoncetest.TokenServer) func() (credstore.Settings, error) {
	return jobAt(s).settings
}

// jobAt is a job with that server.
func jobAt(s *spendoncetest.TokenServer) job {
	return job{URL: s.URL(), Endpoint: s.TokenEndpoint(), ClientID: s.ClientID(), Target: box}
}

// ground is a state directory with a session whose token has expired, and
// the server it belongs to.
type ground struct {
	dir     string
	server  *spendoncetest.TokenServer
	secrets []canary.Value
}

func newGround(t *testing.T, s *spendoncetest.TokenServer) *ground {
	t.Helper()
	g := &ground{dir: stateDir(t), server: s}
	g.signIn(t, box)
	return g
}

// signIn stores a new session of the target, expired.
func (g *ground) signIn(t *testing.T, target string) spendoncetest.Session {
	t.Helper()
	session := g.server.NewSession("alice")
	records := map[string]record{}
	if _, err := os.Stat(storePath(g.dir)); err == nil {
		records = storeOf(t, g.dir)
	}
	records[target] = oidc(session.RefreshToken.Reveal(), session.AccessToken.Reveal(), in(-time.Hour))
	putStore(t, g.dir, records)
	g.secrets = append(g.secrets, canary.Of("first access token", session.AccessToken.Reveal()), canary.Of("first refresh token", session.RefreshToken.Reveal()))
	return session
}

func (g *ground) token() job {
	j := jobAt(g.server)
	j.Do, j.Dir = "token", g.dir
	return j
}

// at is the same job with another server.
func (j job) at(s *spendoncetest.TokenServer) job {
	there := jobAt(s)
	j.URL, j.Endpoint, j.ClientID = there.URL, there.Endpoint, there.ClientID
	return j
}

func times(n int, j job) []job {
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = j
	}
	return jobs
}

// settled checks what must hold whenever nobody is at work: the store
// parses, its token of the target is live, its refresh token is still to be
// spent, nothing was spent twice and nobody's session was revoked.
func (g *ground) settled(t *testing.T) {
	t.Helper()
	r := storeOf(t, g.dir)[box]
	access, _ := r["accessJwt"].(string)
	refresh, _ := r["refreshToken"].(string)
	if !g.server.Live(access) || !g.server.Spendable(refresh) {
		t.Error("what is stored is dead")
	}
	if c := g.server.Counters(); c.DoubleSpends != 0 || c.FamiliesRevoked != 0 {
		t.Errorf("%d double spends, %d families revoked", c.DoubleSpends, c.FamiliesRevoked)
	}
}

// noLeak searches the outputs of the workers, all files but the two that may
// hold secrets, and the arguments of every process.
func (g *ground) noLeak(t *testing.T, workers ...*worker) {
	t.Helper()
	values := g.secrets
	for _, r := range storeOf(t, g.dir) {
		for _, name := range []string{"accessJwt", "refreshToken"} {
			if token, ok := r[name].(string); ok && token != "" {
				values = append(values, canary.Of("stored "+name, token))
			}
		}
	}
	places := canary.Places{Outputs: map[string][]byte{}, Dirs: []string{g.dir}, Cmdlines: true, Allow: []string{storePath(g.dir), sessionPath(g.dir, box)}}
	for i, w := range workers {
		places.Outputs[fmt.Sprintf("output %d", i)] = append(w.out.Bytes(), w.err.Bytes()...)
	}
	canary.Absent(t, values, places)
}

func context30(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
