//go:build linux

package broker_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/proctest"
	"github.com/spendonce/spendonce/lease"
)

// cast is the actors of a test: processes that obey it. Each keeps a line to
// the test, whoever its parent is, and ends with it.
type cast struct {
	t    testing.TB
	line *net.UnixListener
	path string
}

const lineVariable = "BROKER_TEST_LINE"

func newCast(t testing.TB) *cast {
	t.Helper()
	path := filepath.Join(openTempDir(t), "line") // actors of other users come too
	line, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return &cast{t, line, path}
}

// openTempDir makes a directory that everybody may enter.
func openTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "broker") //nolint:usetesting // below t.TempDir other users may not go, and its name is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// actor is one process.
type actor struct {
	t    testing.TB
	cast *cast
	pid  int // as the test sees it
	line *net.UnixConn
	says *json.Decoder
}

// order is what an actor is told, and reply what it says to it.
type order struct {
	Do   string
	PID  int    `json:",omitempty"`
	Path string `json:",omitempty"` // of a socket
	Text string `json:",omitempty"`
	N    int    `json:",omitempty"`

	Session    string        `json:",omitempty"`
	Generation uint64        `json:",omitempty"`
	Token      string        `json:",omitempty"`
	Binding    lease.Binding `json:"binding,omitzero"`
}

type reply struct {
	Failed string `json:",omitempty"` // the actor could not obey
	PID    int    `json:",omitempty"`
	Text   string `json:",omitempty"`

	Code    string         `json:",omitempty"` // of a request: OK, a refusal, or one of those at codeOf
	Session string         `json:",omitempty"`
	Token   string         `json:",omitempty"`
	Binding lease.Binding  `json:"binding,omitzero"`
	Began   int64          `json:",omitempty"` // of a request, on the clock that all processes share, in ns
	Ended   int64          `json:",omitempty"`
	Counts  map[string]int `json:",omitempty"` // of many requests, by code
}

// actor starts one whose parent is the test.
func (c *cast) actor() *actor { return c.actorWith(nil) }

func (c *cast) actorWith(attr *syscall.SysProcAttr) *actor {
	c.t.Helper()
	cmd := exec.Command("/proc/self/exe") // which other users may execute too
	cmd.Env = actorEnvironment(c.path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return c.meet(cmd.Process.Pid)
}

func actorEnvironment(line string) []string {
	return append(environment("actor"), lineVariable+"="+line)
}

// meet waits for the line of an actor that was started.
func (c *cast) meet(pid int) *actor {
	c.t.Helper()
	line, err := c.line.AcceptUnix()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { line.Close() })
	return &actor{c.t, c, pid, line, json.NewDecoder(bufio.NewReader(line))}
}

// tell gives an order, which must be obeyed.
func (a *actor) tell(o order) reply {
	a.t.Helper()
	r, err := a.ask(o)
	if err != nil {
		a.t.Fatalf("process %d does not %s: %v", a.pid, o.Do, err)
	}
	return r
}

func (a *actor) ask(o order) (reply, error) {
	if err := a.say(o); err != nil {
		return reply{}, err
	}
	return a.hear()
}

func (a *actor) say(o order) error { return json.NewEncoder(a.line).Encode(o) }

func (a *actor) hear() (reply, error) {
	var r reply
	if err := a.says.Decode(&r); err != nil {
		return reply{}, err
	}
	if r.Failed != "" {
		return r, errors.New(r.Failed)
	}
	return r, nil
}

// spawn makes a child of a.
func (a *actor) spawn() *actor {
	a.t.Helper()
	return a.cast.meet(a.tell(order{Do: "spawn"}).PID)
}

// below makes a descendant of a, so many generations down.
func (a *actor) below(n int) *actor {
	a.t.Helper()
	for range n {
		a = a.spawn()
	}
	return a
}

// exit ends a; its parent must reap it. Its line ends a little before it does.
func (a *actor) exit() {
	a.t.Helper()
	pidfd, err := unix.PidfdOpen(a.pid, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	defer unix.Close(pidfd)
	_ = a.say(order{Do: "exit"})
	if _, err := a.hear(); !errors.Is(err, io.EOF) {
		a.t.Fatalf("process %d says goodbye with %v", a.pid, err)
	}
	ended := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for ended[0].Revents == 0 {
		if _, err := unix.Poll(ended, -1); err != nil && !errors.Is(err, unix.EINTR) {
			a.t.Fatal(err)
		}
	}
}

// end ends a child of the test and reaps it: its pid is free.
func (a *actor) end() {
	a.t.Helper()
	a.exit()
	proctest.Reap(a.t, a.pid)
}

// act is the other side: it obeys until its line ends.
func act() error {
	c, err := net.Dial("unix", os.Getenv(lineVariable))
	if err != nil {
		return err
	}
	line, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("no Unix socket")
	}
	r := &role{line: line}
	orders, replies := json.NewDecoder(line), json.NewEncoder(line)
	for {
		var o order
		err := orders.Decode(&o)
		if errors.Is(err, io.EOF) || o.Do == "exit" {
			return nil // the test has ended, or says so
		}
		if err != nil {
			return fmt.Errorf("an actor lost its line: %w", err)
		}
		answer, err := r.obey(o)
		if err != nil {
			answer = reply{Failed: err.Error()}
		}
		if err := replies.Encode(answer); err != nil {
			return fmt.Errorf("an actor lost its line: %w", err)
		}
	}
}

// role is what an actor has between two orders.
type role struct {
	line *net.UnixConn
	conn *net.UnixConn // to the broker
}

func (r *role) obey(o order) (reply, error) {
	var no reply
	switch o.Do {
	case "spawn":
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = actorEnvironment(os.Getenv(lineVariable))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return no, err
		}
		return reply{PID: cmd.Process.Pid}, nil
	case "reap":
		_, err := unix.Wait4(o.PID, nil, 0, nil)
		return no, err
	case "kill":
		if err := unix.Kill(o.PID, unix.SIGKILL); err != nil {
			return no, err
		}
		_, err := unix.Wait4(o.PID, nil, 0, nil)
		return no, err
	case "adopt":
		return no, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	case "hide":
		return no, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	case "rename":
		return no, os.WriteFile("/proc/self/comm", []byte(o.Text), 0)
	}
	if request := requests[o.Do]; request != nil {
		return request(o), nil
	}
	if by := byHand[o.Do]; by != nil {
		return by(r, o)
	}
	if root := rootOrders[o.Do]; root != nil {
		return root(o)
	}
	return no, errors.New("no such order")
}
