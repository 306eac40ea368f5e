package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/bench/baseline"
)

const (
	drawn = 16 // processes in the picture
	// A slower server than that of the table: 5 ms would be a dot.
	drawnService = 25 * time.Millisecond
)

// life is one process of a storm, in time since the start of the storm.
type life struct {
	pid        int
	start, end time.Duration
	exchanges  []exchanged
	live       bool // it ended with a token that the server accepts after the storm
}

// exchanged is one token request as the server saw it.
type exchanged struct {
	start, end time.Duration
	refused    bool
}

// panel is one storm.
type panel struct {
	title        string
	lives        []life
	doubleSpends int
}

func (p panel) count(is func(life) bool) int {
	n := 0
	for _, l := range p.lives {
		if is(l) {
			n++
		}
	}
	return n
}

// picture draws one storm of each client: of several, made in turn, the one of
// middle length.
func picture(ctx context.Context, b *bench, path string) error {
	if err := b.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.Latency = drawnService }); err != nil {
		return err
	}
	front, err := newFront(b.server)
	if err != nil {
		return err
	}
	defer front.close()
	unlocked, err := newSimple(b, front.endpoint(), true)
	if err != nil {
		return err
	}
	flock, err := newSimple(b, front.endpoint(), false)
	if err != nil {
		return err
	}
	mine, err := newOurs(b, front.endpoint())
	if err != nil {
		return err
	}
	sides := []struct {
		title string
		of    contender
		guard string // the file whose lock the exchanging process holds
	}{
		{"without a lock", unlocked, ""},
		{"with flock", flock, flock.file() + ".lock"},
		{"with spendonce", mine, filepath.Join(mine.state(), "locks", target+".lock.guard")},
	}
	storms := make([][]panel, len(sides))
	for round := range 8 { // the first does not count
		for i, side := range sides {
			before := b.server.Counters().DoubleSpends
			lives, err := front.watch(ctx, b, side.of, side.guard)
			if err != nil {
				return fmt.Errorf("drawing %s: %w", side.of.name(), err)
			}
			if round > 0 {
				storms[i] = append(storms[i], panel{side.title, lives, b.server.Counters().DoubleSpends - before})
			}
		}
	}
	panels := make([]panel, len(sides))
	for i := range panels {
		panels[i] = middle(storms[i])
	}
	return os.WriteFile(path, draw(panels), 0o644) //nolint:gosec // a picture for everybody
}

func middle(storms []panel) panel {
	var ends []float64
	for _, p := range storms {
		ends = append(ends, float64(p.end()))
	}
	want := spreadOf(ends).Median
	for _, p := range storms {
		if float64(p.end()) == want {
			return p
		}
	}
	return storms[0]
}

func (p panel) end() time.Duration {
	var end time.Duration
	for _, l := range p.lives {
		end = max(end, l.end)
	}
	return end
}

// front stands before the token server and notes who asked when.
type front struct {
	back   *spendoncetest.TokenServer
	server *http.Server
	client *http.Transport
	addr   string

	mu    sync.Mutex
	guard string
	start time.Time
	seen  map[int][]exchanged // by pid
	lost  int                 // requests of nobody knows whom
}

func newFront(back *spendoncetest.TokenServer) (*front, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{back: back, client: &http.Transport{}, addr: l.Addr().String(), seen: map[int][]exchanged{}}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: patience}
	go func() { _ = f.server.Serve(l) }()
	return f, nil
}

func (f *front) endpoint() string { return "http://" + f.addr + "/token" }

func (f *front) close() {
	_ = f.server.Close()
	f.client.CloseIdleConnections()
}

// ServeHTTP passes the request on.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	pid := f.asker(r)
	status, body := http.StatusBadGateway, []byte(nil)
	req, err := http.NewRequestWithContext(r.Context(), r.Method, f.back.TokenEndpoint(), r.Body)
	if err == nil {
		req.Header = r.Header.Clone()
		var resp *http.Response
		if resp, err = f.client.RoundTrip(req); err == nil {
			status = resp.StatusCode
			body, _ = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		}
	}
	f.mu.Lock()
	if pid == 0 {
		f.lost++
	}
	refused := status != http.StatusOK
	f.seen[pid] = append(f.seen[pid], exchanged{start: begin.Sub(f.start), end: time.Since(f.start), refused: refused})
	f.mu.Unlock()
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// asker tells which process asks. Ours does not say so and cannot be looked
// into, but while it exchanges it holds a lock that the kernel lists.
func (f *front) asker(r *http.Request) int {
	var pid int
	if _, err := fmt.Sscanf(r.UserAgent(), strings.TrimSuffix(baseline.UserAgent(0), "0")+"%d", &pid); err == nil {
		return pid
	}
	f.mu.Lock()
	guard := f.guard
	f.mu.Unlock()
	pid, _ = lockHolder(guard)
	return pid
}

// lockHolder returns the process that holds a lock on the file.
func lockHolder(path string) (int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, err
	}
	// 1: FLOCK  ADVISORY  WRITE 4242 fe:00:1234567 0 EOF
	for line := range strings.Lines(string(locks)) {
		fields := strings.Fields(line)
		if len(fields) == 8 && fields[1] == "FLOCK" && strings.HasSuffix(fields[5], fmt.Sprintf(":%d", st.Ino)) {
			return strconv.Atoi(fields[4])
		}
	}
	return 0, os.ErrNotExist
}

// watch makes one storm and returns what became of each process, in the order
// of their starts.
func (f *front) watch(ctx context.Context, b *bench, c contender, guard string) ([]life, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.signIn(past()); err != nil {
		return nil, err
	}
	settle()
	cmds := commands(c, drawn)
	stop := context.AfterFunc(ctx, func() { killAll(cmds) })
	defer stop()

	start := time.Now()
	f.mu.Lock()
	f.guard, f.start, f.lost = guard, start, 0
	clear(f.seen)
	f.mu.Unlock()
	lives := make([]life, drawn)
	tokens := make([]strings.Builder, drawn)
	var running sync.WaitGroup
	defer running.Wait()
	for i, cmd := range cmds {
		cmd.Stdout = &tokens[i]
		lives[i].start = time.Since(start)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		lives[i].pid = cmd.Process.Pid
		running.Go(func() { lives[i].end = waitFor(cmd, start) })
	}
	running.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost > 0 {
		return nil, fmt.Errorf("%d token requests came from processes that could not be told", f.lost)
	}
	for i := range lives {
		lives[i].exchanges = f.seen[lives[i].pid]
		lives[i].live = b.server.Live(strings.TrimSpace(tokens[i].String()))
	}
	return lives, nil
}

func waitFor(cmd *exec.Cmd, start time.Time) time.Duration {
	_ = cmd.Wait() // a process that fails is part of the picture
	return time.Since(start)
}
