//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// realm is one user's places for a broker, and all that is said there.
type realm struct {
	*home
	socket, state string
}

// newRealm has a directory of its own, for a test's name may be longer than a
// socket's path. At the end its brokers are stopped, and what was said on
// standard error and left behind by us is searched for session ids and tokens.
func newRealm(t *testing.T) *realm {
	t.Helper()
	heedSignals()
	bin, err := binary()
	must(t, err)
	dir, err := os.MkdirTemp("", "lease-") //nolint:usetesting // see above
	must(t, err)
	r := &realm{home: &home{t: t, bin: bin, dir: dir}, socket: filepath.Join(dir, "run/spendonce/broker.sock"), state: filepath.Join(dir, "state")}
	t.Cleanup(func() {
		stopBrokers(script{t}, dir)
		r.looksForIDs()
		must(t, os.RemoveAll(dir))
	})
	for _, name := range []string{"run", "bin", "config"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	must(t, os.Symlink(bin, filepath.Join(dir, "bin/spendonce")))
	return r
}

// heedSignals gives processes that are started from now on the signals as they
// usually are, also where this test runs under nohup: what was ignored, and is
// caught instead, is not inherited.
var heedSignals = sync.OnceFunc(func() {
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
})

// patience is how long a process of a test may take, and a line from it.
const patience = 90 * time.Second

// command is run in the realm's directory with its own environment.
func (r *realm) command(args ...string) *process {
	p := r.home.command(args...)
	p.Dir = r.dir
	p.WaitDelay = 10 * time.Second
	p.Env = append(p.Env, "XDG_RUNTIME_DIR="+filepath.Join(r.dir, "run"), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"),
		"SPENDONCE_SOCKET=", "SPENDONCE_SESSION_ID=", "SPENDONCE_GENERATION=", "SPENDONCE_GENERATION_FILE=")
	return p
}

// shell runs a script, whose $@ is args, and in which spendonce is the
// program.
func (r *realm) shell(script string, args ...string) *process {
	p := r.command()
	sh, err := exec.LookPath("sh")
	must(r.t, err)
	p.Path, p.Args = sh, append([]string{"sh", "-c", script, "sh"}, args...)
	return p
}

func (r *realm) begin(p *process) *process {
	r.t.Helper()
	must(r.t, p.Start())
	late := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	r.t.Cleanup(func() {
		late.Stop()
		_ = p.Process.Kill()
	})
	return p
}

// finish runs a command to its end.
func (r *realm) finish(p *process) (code int, out, talk string) {
	r.t.Helper()
	code, out = r.begin(p).end()
	return code, out, p.err.String()
}

// ok runs a command that must succeed, and returns what it printed.
func (r *realm) ok(p *process) string {
	r.t.Helper()
	code, out, talk := r.finish(p)
	if code != 0 {
		r.t.Fatalf("%s ended with %d: %s", strings.Join(p.Args, " "), code, talk)
	}
	return out
}

// inside runs a script as an anchor that stays alive: it may say lines, which
// the test reads with next, and ends with the test, or when told.
type inside struct {
	*process
	in    io.WriteCloser
	out   *os.File
	lines *bufio.Reader
}

func (r *realm) inside(p *process) *inside {
	r.t.Helper()
	in, err := p.StdinPipe()
	must(r.t, err)
	p.Stdout = nil
	pipe, err := p.StdoutPipe()
	must(r.t, err)
	out, ok := pipe.(*os.File)
	if !ok {
		r.t.Fatalf("the pipe is %T", pipe)
	}
	r.begin(p)
	return &inside{p, in, out, bufio.NewReader(out)}
}

func (i *inside) next() string {
	i.h.t.Helper()
	must(i.h.t, i.out.SetReadDeadline(time.Now().Add(patience)))
	line, err := i.lines.ReadString('\n')
	if err != nil {
		i.h.t.Fatalf("the command said %q and then %v; %s", line, err, i.err.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// rest waits for the end and returns the exit code and what was still said.
func (i *inside) rest() (int, string) {
	i.h.t.Helper()
	must(i.h.t, i.out.SetReadDeadline(time.Now().Add(patience)))
	said, err := io.ReadAll(i.lines)
	must(i.h.t, err)
	code, _ := i.end()
	return code, string(said)
}

// leave lets a script that waits for the end of its input end.
func (i *inside) leave() int {
	i.h.t.Helper()
	_ = i.in.Close()
	code, _ := i.rest()
	return code
}

// brokerStatus is what 'lease status --json' says, as far as tests look.
type brokerStatus struct {
	PID      int
	Socket   string
	StateDir string `json:"state_dir"`
	Sessions []struct {
		Session    string
		AnchorPID  int    `json:"anchor_pid"`
		Generation uint64 `json:"runtime_generation"`
	}
	Spent int `json:"tokens_spent"`
}

func (r *realm) status() brokerStatus {
	r.t.Helper()
	var st brokerStatus
	must(r.t, json.Unmarshal([]byte(r.ok(r.command("lease", "status", "--json"))), &st))
	return st
}

// stop stops a process, which need not be a child: the signal is on its way
// for a moment in which it still answers.
func stop(t *testing.T, pid int) {
	t.Helper()
	must(t, unix.Kill(pid, unix.SIGSTOP))
	for late := time.Now().Add(patience); ; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		if bytes.Contains(b, []byte("\nState:\tT")) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("process %d does not stop", pid)
		}
		runtime.Gosched()
	}
}
