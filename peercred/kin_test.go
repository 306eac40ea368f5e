//go:build linux

package peercred_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// family is a tree of processes under a test. Each member keeps a line to the
// test, whoever its parent is, and ends with it.
type family struct {
	t    testing.TB
	line *net.UnixListener
	path string
}

const lineVariable = "PEERCRED_TEST_LINE"

func newFamily(t testing.TB) *family {
	t.Helper()
	// Also processes of other users find the way here.
	dir, err := os.MkdirTemp("", "peercred") //nolint:usetesting // that one is ours alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "line")
	line, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	for _, name := range []string{dir, path} {
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return &family{t, line, path}
}

// member is one process.
type member struct {
	t    testing.TB
	f    *family
	pid  int // as the test sees it
	line *net.UnixConn
	said *bufio.Reader
}

// child starts a member whose parent is the test.
func (f *family) child(attr *syscall.SysProcAttr) *member {
	f.t.Helper()
	cmd := kinCommand(f.path)
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return f.meet(cmd.Process.Pid)
}

func kinCommand(line string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe") // which other users may execute too
	cmd.Env = append(environment("kin"), lineVariable+"="+line)
	cmd.Stderr = os.Stderr
	return cmd
}

// meet waits for the line of a member that was started.
func (f *family) meet(pid int) *member {
	f.t.Helper()
	line, err := f.line.AcceptUnix()
	if err != nil {
		f.t.Fatal(err)
	}
	m := &member{f.t, f, pid, line, bufio.NewReader(line)}
	f.t.Cleanup(func() { line.Close() })
	return m
}

// tell gives an order and returns the answer, which must not be an error.
func (m *member) tell(format string, args ...any) string {
	m.t.Helper()
	answer, err := m.ask(format, args...)
	if err != nil {
		m.t.Fatalf("process %d: %s: %v", m.pid, fmt.Sprintf(format, args...), err)
	}
	return answer
}

func (m *member) ask(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(m.line, format+"\n", args...); err != nil {
		return "", err
	}
	answer, err := m.said.ReadString('\n')
	if err != nil {
		return "", err
	}
	answer, failed := strings.CutPrefix(strings.TrimSuffix(answer, "\n"), "error ")
	if failed {
		return "", errors.New(answer)
	}
	return answer, nil
}

// spawn makes a child of m.
func (m *member) spawn() *member {
	m.t.Helper()
	return m.f.meet(number(m.t, m.tell("spawn")))
}

// exit ends m; its parent must reap it.
func (m *member) exit() {
	m.t.Helper()
	fmt.Fprintln(m.line, "exit")
	if _, err := m.said.ReadString('\n'); !errors.Is(err, io.EOF) {
		m.t.Fatalf("process %d says goodbye with %v", m.pid, err)
	}
}

func number(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kin is the other side: it obeys until its line ends.
func kin() error {
	c, err := net.Dial("unix", os.Getenv(lineVariable))
	if err != nil {
		return err
	}
	line, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("no Unix socket")
	}
	k := &kinsman{line: line}
	for orders := bufio.NewScanner(line); orders.Scan(); {
		order, arg, _ := strings.Cut(orders.Text(), " ")
		if order == "exit" {
			break
		}
		answer, err := k.obey(order, arg)
		if err != nil {
			answer = "error " + err.Error()
		}
		if _, err := fmt.Fprintln(line, answer); err != nil {
			return err
		}
	}
	return nil
}

type kinsman struct {
	line *net.UnixConn
	conn *net.UnixConn // to the listener under test
}

func (k *kinsman) obey(order, arg string) (answer string, err error) {
	switch order {
	case "spawn":
		cmd := kinCommand(os.Getenv(lineVariable))
		if err := cmd.Start(); err != nil {
			return "", err
		}
		return strconv.Itoa(cmd.Process.Pid), nil
	case "reap", "kill":
		pid, err := strconv.Atoi(arg)
		if err == nil && order == "kill" {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err == nil {
			_, err = unix.Wait4(pid, nil, 0, nil)
		}
		return "ok", err
	case "await": // a child becomes a zombie
		pid, err := strconv.Atoi(arg)
		if err == nil {
			err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		}
		return "ok", err
	case "dial":
		c, err := net.Dial("unix", arg)
		if err != nil {
			return "", err
		}
		k.conn, _ = c.(*net.UnixConn)
		return "ok", nil
	case "send": // a quoted text
		text, err := strconv.Unquote(arg)
		if err == nil {
			_, err = k.conn.Write([]byte(text))
		}
		return "ok", err
	case "send-descriptors": // so many, with one byte
		n, err := strconv.Atoi(arg)
		if err != nil {
			return "", err
		}
		fds := make([]int, n)
		for i := range fds {
			fds[i] = 2
		}
		_, _, err = k.conn.WriteMsgUnix([]byte("x"), unix.UnixRights(fds...), nil)
		return "ok", err
	case "half-close":
		return "ok", k.conn.CloseWrite()
	case "hang-up":
		return "ok", k.conn.Close()
	case "receive":
		b, err := io.ReadAll(k.conn)
		return strconv.Quote(string(b)), err
	case "give": // the connection to the test, over the line
		f, err := k.conn.File()
		if err != nil {
			return "", err
		}
		defer f.Close()
		_, _, err = k.line.WriteMsgUnix([]byte("taken\n"), unix.UnixRights(int(f.Fd())), nil)
		return "ok", err
	case "rename": // a quoted text
		text, err := strconv.Unquote(arg)
		if err != nil {
			return "", err
		}
		return "ok", os.WriteFile("/proc/self/comm", []byte(text), 0)
	case "hide":
		return "ok", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	case "adopt":
		return "ok", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	return k.clone(order, arg)
}
