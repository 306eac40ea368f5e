//go:build linux

package broker_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// K20.
func TestOfTwoBrokersOverAStaleSocketOneServesAndTheOtherSaysWhich(t *testing.T) {
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for name, apart := range map[string]func(s *site) *site{
		"the same socket and state": func(s *site) *site { return s },
		"the same socket": func(s *site) *site {
			return &site{t: s.t, dir: s.dir, socket: s.socket, state: s.state + "2"}
		},
		"the same state": func(s *site) *site {
			return &site{t: s.t, dir: s.dir, socket: filepath.Join(s.dir, "s2", "broker.sock"), state: s.state}
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := newSite(t)
			at.run(nil).kill()
			if _, err := os.Lstat(at.socket); err != nil {
				t.Fatal("a killed broker leaves no socket: ", err)
			}
			for range rounds {
				a, b := at.start(nil), apart(at).start(nil)
				if !a.ready() {
					a, b = b, a
					if !a.ready() {
						t.Fatalf("none of the two serves: %s, %s", a.stderr.String(), b.stderr.String())
					}
				}
				code, text := b.fails()
				if code != 7 || !strings.Contains(text, fmt.Sprintf("process %d", a.cmd.Process.Pid)) {
					t.Errorf("process %d serves, and the other one ends with %d: %s", a.cmd.Process.Pid, code, text)
				}
				a.kill()
			}
		})
	}
}

// K21.
func TestABrokerThatIsStoppedIsNotDisplaced(t *testing.T) {
	at, c := newSite(t), newCast(t)
	first := at.run(nil)
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	first.signal(unix.SIGSTOP)
	var status unix.WaitStatus
	if _, err := unix.Wait4(first.cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatal(status, err)
	}
	code, text := at.start(nil).fails()
	if code != 7 || !strings.Contains(text, fmt.Sprintf("process %d, which is stopped", first.cmd.Process.Pid)) {
		t.Errorf("process %d is stopped, and the other broker ends with %d: %s", first.cmd.Process.Pid, code, text)
	}
	first.signal(unix.SIGCONT)
	want(t, "after SIGCONT", anchor.authenticate(s), ok)
	first.end()
}

func TestABrokerThatEndsTakesItsSocketsAwayAndLeavesItsLocks(t *testing.T) {
	at := newSite(t)
	at.run(nil).end()
	for name, there := range map[string]bool{
		"s/broker.sock": false, "s/control.sock": false, "s/broker.sock.lock": true, "state/broker-state.json.lock": true,
	} {
		if _, err := os.Lstat(filepath.Join(at.dir, name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// K22.
func TestASocketThatAnotherOneBoundIsNotTakenAway(t *testing.T) {
	at := newSite(t)
	b := at.run(nil)
	if err := os.Remove(at.socket); err != nil {
		t.Fatal(err)
	}
	successor, err := net.Listen("unix", at.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	before := description(t, at.socket)
	b.end()
	if description(t, at.socket) != before {
		t.Error("the successor's socket is another one")
	}
}

func TestABrokerThatDoesNotStartTouchesNoSocket(t *testing.T) {
	at := newSite(t)
	at.serve()
	before := description(t, at.socket)
	other := &site{t: t, dir: at.dir, socket: at.socket, state: at.state + "2"}
	other.start(nil).fails()
	if description(t, at.socket) != before {
		t.Error("the socket is another one")
	}
}

func TestAnAnchorKeepsItsSessionAndTokensOverACrashOfTheBroker(t *testing.T) {
	at, c := newSite(t), newCast(t)
	b := at.run(nil)
	anchor := c.actor()
	s := anchor.register(at.socket, 7)
	child := anchor.spawn()
	kept, spent := child.mint(s), child.mint(s)
	want(t, "before", child.consume(s, spent), ok)
	b.kill()
	want(t, "meanwhile", child.authenticate(s), noBroker)
	at.run(nil)
	want(t, "the child", child.authenticate(s), ok)
	want(t, "the spent token", child.consume(s, spent), "TOKEN_REPLAY")
	want(t, "the other one", child.consume(s, kept), ok)
	want(t, "the other one again", child.consume(s, kept), "TOKEN_REPLAY")
	if again := anchor.register(at.socket, 7); again.id != s.id {
		t.Error("the anchor gets another session")
	}
}

// K07.
func TestASessionDoesNotOutliveTheBoot(t *testing.T) {
	at, c := newSite(t), newCast(t)
	stop := at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	token := anchor.mint(s)
	stop()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	here := bytes.TrimSpace(boot)
	other := bytes.Clone(here)
	if other[0] = '0'; here[0] == '0' {
		other[0] = '1'
	}
	state := at.stateFile()
	if !strings.Contains(state, string(here)) {
		t.Fatal("the state does not tell of which boot it is")
	}
	writeFile(t, filepath.Join(at.state, "broker-state.json"), strings.Replace(state, string(here), string(other), 1), 0o600)

	// The process with that pid and start time still runs.
	at.serve()
	if strings.Contains(at.stateFile(), s.id) {
		t.Error("the session is still in the state file")
	}
	want(t, "the anchor", anchor.authenticate(s), "SESSION_UNKNOWN")
	next := anchor.register(at.socket, 0)
	if next.id == s.id {
		t.Error("the anchor gets the same session")
	}
	want(t, "the token", anchor.consume(next, token), "TOKEN_REPLAY")
}

func TestAnAnchorThatEndedWhileNoBrokerRanIsForgottenBeforeAnybodyIsServed(t *testing.T) {
	at, c := newSite(t), newCast(t)
	stop := at.serve()
	gone, kept := c.actor(), c.actor()
	s, k := gone.register(at.socket, 0), kept.register(at.socket, 0)
	gone.mint(s)
	token := kept.mint(k)
	stop()
	gone.end()
	at.serve()
	if state := at.stateFile(); strings.Contains(state, s.id) {
		t.Error("the session is still in the state file")
	}
	want(t, "the other session's token", kept.consume(k, token), ok)
}

// One session has to be dropped, which takes the broker to the disk; the
// anchors of others exit meanwhile.
func TestAnchorsMayExitWhileTheBrokerStarts(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		at, c := newSite(t), newCast(t)
		stop := at.serve()
		gone := c.actor()
		gone.register(at.socket, 0)
		var others []*actor
		for range 6 {
			a := c.actor()
			a.register(at.socket, 0)
			others = append(others, a)
		}
		stop()
		gone.end()
		exits := make(chan struct{})
		go func() {
			defer close(exits)
			for _, a := range others {
				<-time.After(rand.N(3 * time.Millisecond))
				_ = a.say(order{Do: "exit"})
			}
		}()
		stop = at.serve()
		<-exits
		eventually(t, func() bool { return len(at.status().Sessions) == 0 })
		stop()
	}
}

// K35: who asked is gone before the answer.
func TestAConsumptionWhoseAnswerIsLostIsFinal(t *testing.T) {
	at, c := newSite(t), newCast(t)
	at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	token := anchor.mint(s)
	asker := anchor.spawn()
	asker.tell(order{Do: "dial", Path: at.socket})
	asker.tell(order{Do: "send", Text: s.consumeFrame(token)})
	asker.tell(order{Do: "half-close"})
	eventually(t, func() bool { return at.status().Spent == 1 })
	asker.exit()
	anchor.tell(order{Do: "reap", PID: asker.pid})
	want(t, "somebody else", anchor.consume(s, token), "TOKEN_REPLAY")
}

// ready waits until the broker accepts requests, or has ended.
func (b *process) ready() bool {
	for {
		line, err := b.out.ReadString('\n')
		if err != nil || line == "ready\n" {
			return err == nil
		}
	}
}

func TestABrokerThatIsKilledWhileItStartsLeavesNothingInTheWay(t *testing.T) {
	at, c := newSite(t), newCast(t)
	stop := at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	stop()
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		b := at.start(nil)
		<-time.After(rand.N(20 * time.Millisecond)) // a start takes about as long
		b.kill()
		b = at.run(nil)
		want(t, "the anchor", anchor.authenticate(s), ok)
		b.kill()
	}
}
