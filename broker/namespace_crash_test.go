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

	"golang.org/x/sys/unix"
)

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
