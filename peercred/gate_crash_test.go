//go:build crash && linux

package peercred_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spendonce/spendonce/peercred"
)

// gatekeeper is a listener in a process of its own, seen from the test.
type gatekeeper struct {
	t    *testing.T
	path string
	said *bufio.Reader
}

// keep starts the gate with a command that is given the program and its
// argument last; none is the program itself.
func keep(t *testing.T, attr *syscall.SysProcAttr, command ...string) *gatekeeper {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "peercred") //nolint:usetesting // that one is ours alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	// Also other users may run it.
	program := filepath.Join(dir, "gate")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	command = append(command, program, path)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = environment("gate")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	if _, err := cmd.StdinPipe(); err != nil { // ends with us
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &gatekeeper{t, path, bufio.NewReader(out)}
}

func (g *gatekeeper) says(want string) {
	g.t.Helper()
	line, err := g.said.ReadString('\n')
	if err != nil || !strings.Contains(line, want) {
		g.t.Errorf("the gate says %q, %v; want %q", line, err, want)
	}
}

// K03: in a pid namespace, the peer outside.
func TestAPeerOutsideOurPidNamespaceIsRefused(t *testing.T) {
	g := keep(t, nil, "unshare", "-pf", "--mount-proc", "--kill-child")
	g.says("listening")
	m := newFamily(t).child(nil)
	m.tell("dial %s", g.path)
	g.says("refused 0: " + peercred.ErrOtherNamespace.Error())
}

// K03: with the host's /proc still mounted.
func TestAProverRefusesTheHostsProc(t *testing.T) {
	g := keep(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	g.says("prover: /proc shows another pid namespace")
}

// K03: the peer in a namespace below ours.
func TestAPeerInAChildNamespaceIsServedUnderItsOuterPid(t *testing.T) {
	needRoot(t)
	l, pr, f := listen(t), newProver(t), newFamily(t)
	inside := f.child(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	c := inside.callsWell(l)
	inside.tell("send %q", "x")
	inside.tell("half-close")
	readAll(t, c, "x")
	if c.Peer().PID != inside.pid {
		t.Errorf("%+v, want process %d", c.Peer(), inside.pid)
	}
	a := anchored(t, pr, c)
	// Its child has another pid there than here.
	inner := number(t, inside.tell("spawn"))
	child := f.meet(inner)
	again := child.callsWell(l)
	if again.Peer().PID == inner {
		t.Fatalf("process %d has the same pid inside", inner)
	}
	chain, err := pr.Descends(again, a)
	if err != nil || len(chain) != 2 {
		t.Errorf("%v, %v", chain, err)
	}
	ours, err := pr.OpenAnchor(chain[1].Process)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if _, err := pr.Descends(child.callsWell(l), ours); err != nil {
		t.Error(err)
	}
}

const stranger = 54321 // a uid

func asUser(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

// Even where file modes let it through.
func TestAPeerOfAnotherUserIsRefused(t *testing.T) {
	needRoot(t)
	for _, uid := range []uint32{stranger, 65534} {
		dir, err := os.MkdirTemp("", "peercred") //nolint:usetesting // that one is ours alone
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		l, err := peercred.Listen(filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		f := newFamily(t)
		m := f.child(asUser(uid))
		if _, err := m.ask("dial %s", l.Addr()); err == nil {
			t.Error("the modes let it through")
		}
		for _, name := range []string{dir, l.Addr()} {
			if err := os.Chmod(name, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		c := m.calls(l)
		wantError(t, c.Refusal(), peercred.ErrOtherUser)
		want := peercred.Peer{PID: m.pid, UID: uid, GID: uid}
		if c.Peer() != want {
			t.Errorf("%+v, want %+v", c.Peer(), want)
		}
		wantError(t, c.Verify(), peercred.ErrOtherUser)
	}
}

// Root is not special.
func TestRootIsAnotherUserToo(t *testing.T) {
	g := keep(t, asUser(stranger))
	g.says("listening")
	m := newFamily(t).child(nil)
	m.tell("dial %s", g.path)
	g.says(fmt.Sprintf("refused %d: %v: uid 0, not %d", m.pid, peercred.ErrOtherUser, stranger))
}

// Who has no uid in the user namespace of the broker.
func TestTheOverflowUserIsRefused(t *testing.T) {
	g := keep(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: stranger, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: stranger, Size: 1}},
		Credential:  &syscall.Credential{Uid: 65534, Gid: 65534},
	})
	g.says("listening")
	f := newFamily(t)
	for _, attr := range []*syscall.SysProcAttr{nil, asUser(stranger)} {
		m := f.child(attr)
		m.tell("dial %s", g.path)
		g.says(fmt.Sprintf("refused %d: %v: uid 65534 stands for", m.pid, peercred.ErrOtherUser))
	}
}

// K02: its /proc entry belongs to root, and the uid is not asked there.
func TestAPeerThatIsNotDumpableIsServed(t *testing.T) {
	g := keep(t, asUser(stranger))
	g.says("listening")
	m := newFamily(t).child(asUser(stranger))
	m.tell("hide")
	st, err := os.Stat(fmt.Sprintf("/proc/%d/stat", m.pid))
	if err != nil {
		t.Fatal(err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Uid != 0 {
		t.Fatalf("/proc/%d belongs to %v", m.pid, st.Sys())
	}
	m.tell("dial %s", g.path)
	m.tell("send %q", "x")
	m.tell("half-close")
	g.says(fmt.Sprintf("served %d", m.pid))
}

// Under hidepid our own processes are to be seen, unless they hide as well:
// then a lookup fails, and that refuses.
func TestHidepidHidesOnlyWhoIsNotDumpable(t *testing.T) {
	g := keep(t, nil, "unshare", "-m", "sh", "-c",
		`mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid `+fmt.Sprint(stranger)+` --regid `+fmt.Sprint(stranger)+` --clear-groups "$0" "$1"`)
	g.says("listening")
	f := newFamily(t)
	m := f.child(asUser(stranger))
	m.tell("dial %s", g.path)
	m.tell("half-close")
	g.says(fmt.Sprintf("served %d", m.pid))
	g.says(fmt.Sprintf("anchor %d: <nil>", m.pid))
	m.tell("hide")
	m.tell("dial %s", g.path)
	m.tell("half-close")
	g.says(fmt.Sprintf("unidentified %d: process %d is gone or hidden: %v", m.pid, m.pid, peercred.ErrUnreadable))
	// Nor is it said to have exited.
	g.says(fmt.Sprintf("anchor %d: %v: process %d lives and is hidden, exited false", m.pid, peercred.ErrUnreadable, m.pid))
}
