//go:build crash && linux

package broker_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
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
			proctest.Reap(t, peer.pid)
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
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		pid, err := proctest.Stayer(0, at.socket, registration)
		if err != nil {
			t.Fatal(err)
		}
		first, started := at.registered(pid, "")
		kill(t, pid)
		if _, err := proctest.Stayer(pid, at.socket, registration); err != nil {
			continue // somebody else was given the pid
		}
		second, again := at.registered(pid, first)
		kill(t, pid)
		if second == "" || started != again {
			continue // it was refused, or started too late
		}
		if first == second {
			t.Error("both have the same session")
		}
		return
	}
	t.Fatal("no second process within the clock tick of the first in a minute")
}

// registered waits for a process's session to be in the state file, as fast as
// that can be, but not for ever.
func (s *site) registered(pid int, other string) (id, started string) {
	s.t.Helper()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		for _, record := range strings.Split(s.stateFile(), "{") {
			_, record, _ = strings.Cut(record, `"session_id":"`)
			id, record, _ = strings.Cut(record, `"`)
			if _, start, is := strings.Cut(record, fmt.Sprintf(`,"anchor_pid":%d,"anchor_starttime":`, pid)); is && id != other {
				start, _, _ = strings.Cut(start, ",")
				return id, start
			}
		}
	}
	return "", ""
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	proctest.Reap(t, pid)
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
