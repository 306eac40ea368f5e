//go:build linux

package broker_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// K23. A broker with few descriptors is given more connections than it can
// take. Each takes two descriptors: with an even number of them the broker is
// out of them when it accepts, with an odd one when it looks who is there.
func TestABrokerThatRunsOutOfDescriptorsBacksOffAndRecovers(t *testing.T) {
	backedOff, told := 0, map[string]int{}
	for _, files := range []uint64{48, 49} {
		at, c := newSite(t), newCast(t)
		b := at.run(func(p *plan, _ *exec.Cmd) {
			p.Files = files
			p.Config.Deadline = time.Minute // none of them goes by itself
		})
		anchor := c.actor()
		s := anchor.register(at.socket, 0)
		token := anchor.mint(s)
		warnings := make(chan string, 100)
		go func() {
			defer close(warnings)
			for {
				line, err := b.out.ReadString('\n')
				if err != nil {
					return
				}
				warnings <- line
			}
		}()
		var crowd []*net.UnixConn
		for range 100 {
			crowd = append(crowd, at.connect())
		}
		seen := false
		eventually(t, func() bool {
			select {
			case line := <-warnings:
				if !strings.Contains(line, "too many open files") {
					t.Errorf("the broker says %s", line)
				}
				backedOff++
				seen = true
			default:
			}
			for _, conn := range crowd {
				_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
				var answer [256]byte
				if n, err := conn.Read(answer[:]); err == nil {
					told[refusalIn(t, string(answer[:n]))]++
					seen = true
				}
			}
			return seen
		})
		for _, conn := range crowd {
			conn.Close()
		}
		eventually(t, func() bool { return anchor.authenticate(s) == ok })
		want(t, "the token", anchor.consume(s, token), ok)
		b.signal(unix.SIGTERM)
		for range warnings { // to its end
		}
		if err := b.wait(); err != nil {
			t.Errorf("it ends with %v", err)
		}
	}
	if backedOff == 0 || len(told) != 1 || told["BUSY"] == 0 {
		t.Errorf("it backed off %d times, and told %v", backedOff, told)
	}
}

// A session must not be lost because its anchor cannot be looked up.
func TestABrokerThatCannotLookUpItsAnchorsDoesNotStartAndKeepsTheirSessions(t *testing.T) {
	at, c := newSite(t), newCast(t)
	stop := at.serve()
	anchor := c.actor()
	s := anchor.register(at.socket, 0)
	for range 16 {
		c.actor().register(at.socket, 0)
	}
	stop()
	before := at.stateFile()
	code, text := at.start(func(p *plan, _ *exec.Cmd) { p.Files = 22 }).fails()
	if code != 1 || !strings.Contains(text, "looking for the anchor") || !strings.Contains(text, "too many open files") {
		t.Errorf("it ends with %d: %s", code, text)
	}
	if at.stateFile() != before {
		t.Error("the state has changed")
	}
	at.serve()
	want(t, "the anchor", anchor.authenticate(s), ok)
}

// handOver makes a listening socket for a broker's process.
func handOver(t *testing.T, path string, options ...int) func(*plan, *exec.Cmd) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	for _, o := range options {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1))
	}
	err = errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 128))
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "a listening socket")
	t.Cleanup(func() { f.Close() })
	return func(p *plan, cmd *exec.Cmd) {
		p.Handed = true
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
}

func TestASocketOfTheServiceManagerIsServedAndLeft(t *testing.T) {
	at, c := newSite(t), newCast(t)
	mkdir(t, at.dir+"/s", 0o700)
	handed := handOver(t, at.socket, unix.SO_PASSCRED)
	before := description(t, at.socket)
	anchor := c.actor()
	var s session
	for range 2 { // the manager starts it again and again
		b := at.run(handed)
		s = anchor.register(at.socket, 0)
		want(t, "a child", anchor.spawn().authenticate(s), ok)
		b.end()
		if description(t, at.socket) != before {
			t.Error("the socket is another one")
		}
	}
}

func TestASocketThatDoesNotTellWhoWritesIsNotServed(t *testing.T) {
	at := newSite(t)
	mkdir(t, at.dir+"/s", 0o700)
	code, text := at.start(handOver(t, at.socket)).fails()
	if code != 1 || !strings.Contains(text, "PassCredentials=yes") {
		t.Errorf("it ends with %d: %s", code, text)
	}
}

// What the broker has locked is the place it was told of.
func TestASocketOfTheServiceManagerAtAnotherPathIsNotServed(t *testing.T) {
	at := newSite(t)
	mkdir(t, at.dir+"/s", 0o700)
	code, text := at.start(handOver(t, at.socket+"2", unix.SO_PASSCRED)).fails()
	if code != 1 || !strings.Contains(text, at.socket+"2") {
		t.Errorf("it ends with %d: %s", code, text)
	}
}
