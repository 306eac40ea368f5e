//go:build linux

package peercred_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spendonce/spendonce/peercred"
)

// listen listens on a socket of the test's own.
func listen(t testing.TB) *peercred.Listener {
	t.Helper()
	l, err := peercred.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func newProver(t testing.TB) *peercred.Prover {
	t.Helper()
	pr, err := peercred.OpenProver()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pr.Close)
	return pr
}

// accept takes the next connection, with a bound so that no test hangs.
func accept(t testing.TB, l *peercred.Listener) *peercred.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// calls makes m connect to l and returns the accepted connection.
func (m *member) calls(l *peercred.Listener) *peercred.Conn {
	m.t.Helper()
	m.tell("dial %s", l.Addr())
	return accept(m.t, l)
}

// callsWell is calls by a peer that must be served.
func (m *member) callsWell(l *peercred.Listener) *peercred.Conn {
	m.t.Helper()
	c := m.calls(l)
	if err := c.Refusal(); err != nil {
		m.t.Fatal(err)
	}
	return c
}

// anchored identifies the peer of c and makes it an anchor.
func anchored(t testing.TB, pr *peercred.Prover, c *peercred.Conn) *peercred.Anchor {
	t.Helper()
	p, err := pr.Identify(c)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Anchor(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func wantError(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// hop returns the process that err blames.
func hop(t testing.TB, err error) int {
	t.Helper()
	var at *peercred.HopError
	if !errors.As(err, &at) {
		t.Fatalf("%v names no process", err)
	}
	return at.PID
}

// gate is a listener in a process of its own: it says where it listens, then
// what it makes of each peer that comes.
func gate() error {
	go func() { // under whatever commands: it does not outlive the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	pr, err := peercred.OpenProver()
	if err != nil {
		fmt.Println("prover:", err)
		return nil
	}
	l, err := peercred.Listen(os.Args[1])
	if err != nil {
		return err
	}
	fmt.Println("listening")
	served := map[int]peercred.Process{}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		fmt.Println(judgement(pr, c, served))
		if p, ok := served[c.Peer().PID]; ok { // as it would be after a restart
			a, err := pr.OpenAnchor(p)
			if err == nil {
				a.Close()
			}
			fmt.Printf("anchor %d: %v, exited %t\n", p.PID, err, errors.Is(err, peercred.ErrNoProcess))
		}
		c.Close()
	}
}

func judgement(pr *peercred.Prover, c *peercred.Conn, served map[int]peercred.Process) string {
	if err := c.Refusal(); err != nil {
		return fmt.Sprintf("refused %d: %v", c.Peer().PID, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err.Error()
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return fmt.Sprintf("unread %d: %v", c.Peer().PID, err)
	}
	if err := c.Verify(); err != nil {
		return fmt.Sprintf("unverified %d: %v", c.Peer().PID, err)
	}
	p, err := pr.Identify(c)
	if err != nil {
		return fmt.Sprintf("unidentified %d: %v", c.Peer().PID, err)
	}
	served[p.PID] = p
	return fmt.Sprintf("served %d", c.Peer().PID)
}
