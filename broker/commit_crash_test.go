//go:build crash && linux

package broker_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/lease"
)

// consumption begins to consume; hear tells what came of it.
func (a *actor) consumption(s session, token string) {
	a.t.Helper()
	o := s.order("consume")
	o.Token = token
	if err := a.say(o); err != nil {
		a.t.Fatal(err)
	}
}

func (a *actor) heard() string {
	a.t.Helper()
	r, err := a.hear()
	if err != nil {
		a.t.Fatal(err)
	}
	return r.Code
}

func TestSIGTERMDuringACommitAnswersWhatWasAdmittedAndExits(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	b := at.run(func(p *plan, _ *exec.Cmd) { p.Config.Deadline = 30 * time.Second })
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	token, next := anchor.mint(s), anchor.mint(s)
	held := b.hold("fsync", unix.SYS_FSYNC, at.state)
	anchor.consumption(s, token)
	held()
	child.tell(order{Do: "dial", Path: at.socket})
	child.tell(order{Do: "send", Text: s.consumeFrame(next)})
	child.tell(order{Do: "half-close"})
	// Who came after it has been served: it has been let in.
	want(t, "what needs no commit", c.actor().authenticate(s), "NOT_DESCENDANT")
	b.signal(unix.SIGTERM)
	eventually(t, func() bool { // it takes no more requests
		conn, err := lease.Dial(at.socket)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, lease.ErrNoBroker)
	})
	want(t, "what was in the commit", anchor.heard(), ok)
	want(t, "what waited for it", refusalIn(t, child.tell(order{Do: "receive"}).Text), ok)
	if err := b.wait(); err != nil {
		t.Errorf("it ends with %v: %s", err, b.stderr.String())
	}
	at.run(nil)
	want(t, "the token", anchor.consume(s, token), "TOKEN_REPLAY")
	want(t, "the other one", anchor.consume(s, next), "TOKEN_REPLAY")
}

// The commit takes twice as long as a request may wait.
func TestTheDeadlineEndsWhatWaitsForACommitAndNotWhatIsInIt(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	b := at.run(nil)
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	child := anchor.spawn()
	first, second := anchor.mint(s), anchor.mint(s)
	held := b.hold("fsync", unix.SYS_FSYNC, at.state)
	anchor.consumption(s, first)
	held()
	child.consumption(s, second)
	want(t, "what waited", child.heard(), "DEADLINE_EXCEEDED")
	want(t, "what was admitted", anchor.heard(), ok)
	want(t, "the token of what waited", child.consume(s, second), ok)
}

// K15 of the disk: nothing is granted that is not on it.
func TestOnAFullDiskNothingIsGrantedAndNothingIsLost(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	mkdir(t, at.state, 0o700)
	if err := unix.Mount("tmpfs", at.state, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at.state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	at.serve()
	anchor, other := c.actor(), c.actor()
	s := anchor.register(at.socket, 0)
	token := anchor.mint(s)

	filler := fill(t, filepath.Join(at.state, "filler"))
	before := at.stateFile()
	code, _ := anchor.tryMint(s)
	want(t, "a mint", code, "STATE_UNAVAILABLE")
	want(t, "a consumption", anchor.consume(s, token), "STATE_UNAVAILABLE")
	want(t, "a registration", other.tell(order{Do: "register", Path: at.socket}).Code, "STATE_UNAVAILABLE")
	want(t, "a higher generation", anchor.tell(order{Do: "register", Path: at.socket, Generation: 1}).Code, "STATE_UNAVAILABLE")
	want(t, "what changes nothing", anchor.authenticate(s), ok)
	if at.stateFile() != before {
		t.Error("the file has changed")
	}
	for range 100 { // lines that find no room
		anchor.authenticate(s)
	}
	eventually(t, func() bool { return strings.Contains(at.warned(), "audit log") })

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	want(t, "the token", anchor.consume(s, token), ok)
	want(t, "the token again", anchor.consume(s, token), "TOKEN_REPLAY")
	want(t, "a new one", anchor.consume(s, anchor.mint(s)), ok)
	if st := at.status(); st.InDoubt || len(st.Sessions) != 1 {
		t.Errorf("the broker says %+v", st)
	}
}

func fill(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 512)); errors.Is(err, unix.ENOSPC) {
			return path
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestInADirectoryThatCannotBeWrittenToNothingIsGrantedAndNothingIsLost(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	at.run(at.asAnother)
	anchor := c.actorWith(&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: another, Gid: another}})
	s := anchor.register(at.socket, 0)
	token := anchor.mint(s)
	if err := os.Chmod(at.state, 0o500); err != nil {
		t.Fatal(err)
	}
	want(t, "a consumption", anchor.consume(s, token), "STATE_UNAVAILABLE")
	want(t, "what changes nothing", anchor.authenticate(s), ok)
	if err := os.Chmod(at.state, 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, "the token", anchor.consume(s, token), ok)
	want(t, "the token again", anchor.consume(s, token), "TOKEN_REPLAY")
}

// A dead anchor's session must be dropped, and cannot be.
func TestABrokerThatCannotCommitWhatItDropsDoesNotStart(t *testing.T) {
	needRoot(t)
	at, c := newSite(t), newCast(t)
	b := at.run(at.asAnother)
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: another, Gid: another}}
	gone, kept := c.actorWith(as), c.actorWith(as)
	gone.register(at.socket, 0)
	s := kept.register(at.socket, 0)
	b.end()
	gone.end()
	before := at.stateFile()
	if err := os.Chmod(at.state, 0o500); err != nil {
		t.Fatal(err)
	}
	code, text := at.start(at.asAnother).fails()
	if code != 6 || !strings.Contains(text, "cannot be written") {
		t.Errorf("it ends with %d: %s", code, text)
	}
	if _, err := os.Lstat(at.socket); err == nil || at.stateFile() != before {
		t.Error("there is a socket, or the state has changed")
	}
	if err := os.Chmod(at.state, 0o700); err != nil {
		t.Fatal(err)
	}
	at.run(at.asAnother)
	want(t, "the living one", kept.authenticate(s), ok)
}

// That the bound mode is there from the socket's first moment shows in that
// nobody sets it afterwards.
func TestTheSocketsArePrivateFromTheirFirstMomentWhateverTheUmask(t *testing.T) {
	needRoot(t)
	for _, umask := range []int{0, 0o777} {
		at := newSite(t)
		trace := filepath.Join(at.dir, "trace")
		b := at.run(func(p *plan, cmd *exec.Cmd) {
			p.Umask = umask
			cmd.Path = "/usr/bin/strace"
			cmd.Args = []string{"strace", "-f", "-o", trace, os.Args[0]}
		})
		for _, path := range []string{at.socket, filepath.Join(filepath.Dir(at.socket), "control.sock")} {
			if mode := modeOf(t, path); mode != 0o600 {
				t.Errorf("with umask %o, %s has mode %o", umask, path, mode)
			}
		}
		if mode := modeOf(t, filepath.Dir(at.socket)); mode != 0o700 {
			t.Errorf("with umask %o, its directory has mode %o", umask, mode)
		}
		if umask == 0 {
			b, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			_, after, bound := strings.Cut(string(b), "bind(")
			for _, byName := range []string{`chmod("`, "fchmodat(", "syscall_0x1c4("} { // the last is fchmodat2, where strace does not know it
				if !bound || strings.Contains(after, byName) {
					t.Errorf("after a bind there is %s", byName)
				}
			}
		}
		_ = unix.Kill(childOf(t, b.cmd.Process.Pid), unix.SIGKILL)
		_ = b.wait()
	}
}

// childOf is the only child of a process.
func childOf(t testing.TB, pid int) int {
	t.Helper()
	children, err := filepath.Glob("/proc/" + itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range children {
		b, _ := os.ReadFile(path)
		if fields := strings.Fields(string(b)); len(fields) > 0 {
			return atoi(t, fields[0])
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}
