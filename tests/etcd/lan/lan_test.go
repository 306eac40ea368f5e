//go:build linux

package lan_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/etcd/lan"
)

func TestAHostThatIsCutOffCannotReachAnother(t *testing.T) {
	l := lan.New(t, 2)
	a, b := l.Hosts[0], l.Hosts[1]
	echo(t, b)
	if got, err := ask(t, a, b, "one"); err != nil || got != "one" {
		t.Fatalf("before: %q, %v", got, err)
	}
	a.Cut()
	if got, err := ask(t, a, b, "two"); err == nil {
		t.Fatalf("cut off, it heard %q", got)
	}
	a.Join()
	if got, err := ask(t, a, b, "three"); err != nil || got != "three" {
		t.Fatalf("joined again: %q, %v", got, err)
	}
}

func echo(t *testing.T, h *lan.Host) {
	t.Helper()
	addr, err := h.Listen(7)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := h.Serve(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
}

func ask(t *testing.T, from, to *lan.Host, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", to.At(7))
	if err != nil {
		return "", err
	}
	defer c.Close()
	return exchange(c, text)
}

func exchange(c net.Conn, text string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return "", err
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(got, "\n"), err
}

func TestAProcessRunsOnItsHost(t *testing.T) {
	h := lan.New(t, 1).Hosts[0]
	cmd := exec.Command("cat", "/proc/net/fib_trie")
	var out strings.Builder
	cmd.Stdout = &out
	if err := h.Run(cmd); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), h.Addr.String()) {
		t.Errorf("%v is no address of the process:\n%s", h.Addr, out.String())
	}
}

func TestBytesOnTheNetworkAreRecorded(t *testing.T) {
	l := lan.New(t, 2)
	l.Record(7)
	echo(t, l.Hosts[1])
	text := strings.Repeat("a long line ", 4000)
	if _, err := ask(t, l.Hosts[0], l.Hosts[1], text); err != nil {
		t.Fatal(err)
	}
	got := l.Recorded()
	if len(got) != 2 {
		t.Fatalf("%d directions were recorded", len(got))
	}
	for name, b := range got {
		if string(b) != text+"\n" {
			t.Errorf("%s: %d bytes, sent were %d", name, len(b), len(text)+1)
		}
	}
}

func TestASlowLineDelaysButLosesNothing(t *testing.T) {
	l := lan.New(t, 2)
	echo(t, l.Hosts[1])
	l.Hosts[0].Delay(50 * time.Millisecond)
	start := time.Now()
	if got, err := ask(t, l.Hosts[0], l.Hosts[1], "slow"); err != nil || got != "slow" {
		t.Fatalf("%q, %v", got, err)
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("connecting and asking took %v, two trips of at least 50ms each", took)
	}
}
