//go:build crash && linux

package broker_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/proctest"
)

// K01: what answers under the pid is a member, and another process.
func TestAPeerWhosePidWentToAMemberIsRefused(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	for name, member := range map[string]bool{"a member": true, "a stranger": false} {
		var peer *actor
		if member {
			peer = anchor.spawn()
		} else {
			peer = c.actor()
		}
		peer.tell(order{Do: "dial", Path: at.socket})
		peer.tell(order{Do: "send", Text: s.frame("authenticate")})
		conn := peer.gives()
		peer.exit()
		if member {
			anchor.tell(order{Do: "reap", PID: peer.pid})
		} else {
			reap(t, peer.pid)
		}
		second := anchor.clone(peer.pid)
		want(t, "the next holder of the pid of "+name, second.authenticate(s), ok)
		want(t, name+" that was", refusalIn(t, finish(t, conn)), "PEER_REFUSED")
	}
}

func TestAnAnchorWhosePidWentToAnotherProcessIsNone(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	stop := at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	anchor.end()
	second := c.clone(anchor.pid)
	child := second.spawn()
	want(t, "the next holder of its pid", second.authenticate(s), "SESSION_UNKNOWN")
	want(t, "a child of that", child.authenticate(s), "SESSION_UNKNOWN")
	if own := second.register(at.socket, 0); own.id == s.id {
		t.Error("the next holder has the same session")
	}
	stop()
	at.serve()
	want(t, "the next holder, after a restart", second.authenticate(s), "SESSION_UNKNOWN")
}

// The broker does not run when the anchor ends and its pid goes to another.
func TestAnAnchorWhosePidWasRecycledWhileNoBrokerRanIsNone(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	stop := at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	stop()
	anchor.end()
	second := c.clone(anchor.pid)
	at.serve()
	want(t, "the next holder of its pid", second.authenticate(s), "SESSION_UNKNOWN")
	if st := at.status(); len(st.Sessions) != 0 {
		t.Errorf("there are sessions: %+v", st.Sessions)
	}
}

// K05: the second process has the same pid and the same start time, and gets a
// session of its own.
func TestAnAnchorIsNotTakenForItsSuccessorWithinAClockTick(t *testing.T) {
	needRoot(t)
	at := newSite(t)
	at.state = onShm(t) // a commit must not take a clock tick
	at.serve()
	const registration = `{"action":"register_anchor","runtime_generation":0}` + "\n"
	registered := func(pid int, not string) (session, anchor string) {
		eventually(t, func() bool {
			for _, s := range at.status().Sessions {
				if s.AnchorPID == pid && s.Session != not {
					session, anchor = s.Session, fmt.Sprint(s.StartTime)
				}
			}
			return session != ""
		})
		return session, anchor
	}
	const tries = 200
	for range tries {
		pid, err := proctest.Stayer(0, at.socket, registration)
		if err != nil {
			t.Fatal(err)
		}
		first, started := registered(pid, "")
		kill(t, pid)
		if _, err := proctest.Stayer(pid, at.socket, registration); err != nil {
			continue // somebody else was given the pid
		}
		second, again := registered(pid, first)
		kill(t, pid)
		if started != again {
			continue
		}
		if first == second {
			t.Error("both have the same session")
		}
		return
	}
	t.Fatalf("no second process within the clock tick of the first in %d tries", tries)
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reap(t, pid)
}

func onShm(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "broker") //nolint:usetesting // no disk is as fast
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// K14: strace holds the broker between the caller and its parent.
func TestAParentWhosePidGoesToAMemberDuringTheWalkIsNoWayToTheAnchor(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	b := at.run(func(p *plan, _ *exec.Cmd) { p.Config.Deadline = 10 * time.Second })
	anchor, parent := c.actor(), c.actor()
	s := anchor.register(at.socket, 0)
	orphan := parent.spawn()
	held := b.hold("openat", unix.SYS_OPENAT, fmt.Sprintf("%d/stat", parent.pid))
	orphan.tell(order{Do: "dial", Path: at.socket})
	orphan.tell(order{Do: "send", Text: s.frame("authenticate")})
	orphan.tell(order{Do: "half-close"})
	held()
	parent.end()
	anchor.clone(parent.pid)
	answer := orphan.tell(order{Do: "receive"}).Text
	want(t, "the orphan", refusalIn(t, answer), "ANCESTRY_CHANGED")
	r := at.lastRefusal()
	if len(r.Chain) < 2 || r.Chain[1].PID != parent.pid {
		t.Errorf("the walk did not meet the second holder of the pid: %+v", r)
	}
	// The client asks again, and then it is no member.
	want(t, "the orphan, asking again", orphan.authenticate(s), "NOT_DESCENDANT")
}

// openUp lets other users come to the socket: only the uid is then in the way.
func (s *site) openUp() {
	s.t.Helper()
	for path, mode := range map[string]os.FileMode{filepath.Dir(s.socket): 0o711, s.socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestAnotherUserIsRefusedEvenBelowTheAnchor(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	at.serve()
	at.openUp()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	want(t, "as the same user", child.authenticate(s), ok)
	child.tell(order{Do: "become", N: another})
	child.tell(order{Do: "dial", Path: at.socket})
	child.tell(order{Do: "send", Text: s.frame("authenticate")})
	child.tell(order{Do: "half-close"})
	want(t, "as another one", refusalIn(t, child.tell(order{Do: "receive"}).Text), "PEER_REFUSED")
	if r := at.lastRefusal(); r.PID != child.pid || r.UID != another || !strings.Contains(r.Reason, "another user") && !strings.Contains(r.Reason, "uid") {
		t.Errorf("the reason is %+v", r)
	}
}

// asAnother makes the place, and the process of a broker, another user's.
func (s *site) asAnother(_ *plan, cmd *exec.Cmd) {
	s.t.Helper()
	if err := os.Chown(s.dir, another, another); err != nil {
		s.t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: another, Gid: another}}
}

func TestRootIsRefusedByTheBrokerOfAnotherUser(t *testing.T) {
	needRoot(t)
	at := newSite(t)
	at.run(at.asAnother)
	conn, err := net.Dial("unix", at.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := io.ReadAll(conn) // it is certain before anything is sent
	if err != nil {
		t.Fatal(err)
	}
	want(t, "root", refusalIn(t, string(b)), "PEER_REFUSED")
}

// inNamespaces runs a broker's process by unshare(1), with its flags.
func inNamespaces(cmd *exec.Cmd, flags ...string) {
	cmd.Path = "/usr/bin/unshare"
	cmd.Args = append(append([]string{"unshare"}, flags...), os.Args[0])
}

// K03.
func TestAPeerOutsideTheBrokersPidNamespaceIsRefused(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	b := at.run(func(_ *plan, cmd *exec.Cmd) { inNamespaces(cmd, "--pid", "--kill-child", "--mount-proc") })
	want(t, "a peer outside", c.actor().tell(order{Do: "register", Path: at.socket}).Code, "PEER_REFUSED")
	eventually(t, func() bool { return len(at.audit()) == 1 })
	if d := at.audit()[0]; d["code"] != "PEER_REFUSED" || !strings.Contains(fmt.Sprint(d["reason"]), "pid namespace") {
		t.Errorf("the audit log says %v", d)
	}
	b.kill()
}

func TestABrokerDoesNotStartWithTheProcOfAnotherPidNamespace(t *testing.T) {
	needRoot(t)
	at := newSite(t)
	code, text := at.start(func(_ *plan, cmd *exec.Cmd) { inNamespaces(cmd, "--pid", "--kill-child") }).fails()
	if code != 1 || !strings.Contains(text, "pid namespace") {
		t.Errorf("it ends with %d: %s", code, text)
	}
}

func TestABrokerDoesNotStartWithoutProc(t *testing.T) {
	needRoot(t)
	at := newSite(t)
	code, text := at.start(func(_ *plan, cmd *exec.Cmd) {
		inNamespaces(cmd, "--mount", "sh", "-c", `mount -t tmpfs none /proc && exec "$0"`)
	}).fails()
	if code != 1 || !strings.Contains(text, "/proc") {
		t.Errorf("it ends with %d: %s", code, text)
	}
}

func TestAPeerInAPidNamespaceOfItsOwnIsServedUnderItsOuterPid(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actorWith(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID})
	s := anchor.register(at.socket, 0)
	if got := at.status().Sessions; len(got) != 1 || got[0].AnchorPID != anchor.pid {
		t.Errorf("the sessions are %+v, and the process is %d", got, anchor.pid)
	}
	child := anchor.spawn()
	want(t, "a child in there", child.consume(s, child.mint(s)), ok)
	want(t, "a stranger outside", c.actor().authenticate(s), "NOT_DESCENDANT")
}

// Under hidepid the broker cannot see a process of its own user that is not
// dumpable: it has no identity, and no default one.
func TestAPeerThatProcHidesIsRefused(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	if err := os.Chown(at.dir, another, another); err != nil {
		t.Fatal(err)
	}
	b := at.run(func(_ *plan, cmd *exec.Cmd) {
		inNamespaces(cmd, "--mount", "sh", "-c",
			fmt.Sprintf(`mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid %d --regid %d --clear-groups "$0"`, another, another))
		cmd.Args[len(cmd.Args)-1] = openBinary(t)
	})
	anchor := c.actorWith(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: another, Gid: another}})
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	want(t, "while it can be seen", child.authenticate(s), ok)
	child.tell(order{Do: "hide"})
	want(t, "when it cannot", child.authenticate(s), "PEER_REFUSED")
	b.kill()
}

// openBinary is this program where every user may start it.
func openBinary(t testing.TB) string {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(openTempDir(t), "broker.test")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	return path
}
