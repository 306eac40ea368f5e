//go:build linux

package lan_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/etcd/lan"
)

// everywhere runs the test on both kinds of hosts.
func everywhere(t *testing.T, hosts int, test func(*testing.T, *lan.LAN)) {
	t.Helper()
	t.Run("namespaces", func(t *testing.T) { test(t, lan.New(t, hosts)) })
	t.Run("loopback", func(t *testing.T) { test(t, lan.NewLoopback(t, hosts)) })
}

func TestAHostThatIsCutOffHearsNothing(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, l *lan.LAN) {
		a, b := l.Hosts[0], l.Hosts[1]
		echo(t, b)
		if got, err := ask(t, a, b, "one"); err != nil || got != "one" {
			t.Fatalf("before: %q, %v", got, err)
		}
		for _, h := range l.Hosts {
			h.Cut()
			if got, err := ask(t, a, b, "two"); err == nil {
				t.Fatalf("cut off, it heard %q", got)
			}
			h.Join()
			if got, err := ask(t, a, b, "three"); err != nil || got != "three" {
				t.Fatalf("joined again: %q, %v", got, err)
			}
		}
	})
}

func TestAProcessIsCutOffWithItsHost(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, l *lan.LAN) {
		a, b := l.Hosts[0], l.Hosts[1]
		echo(t, b)
		hears := func() bool {
			var out strings.Builder
			// A child of the process asks: descent counts too.
			cmd := exec.Command("timeout", "1", "bash", "-c", `exec 3<>/dev/tcp/$0/$1 && echo hello >&3 && read -r line <&3 && echo "$line"`, b.Addr.String(), strconv.Itoa(echoPort))
			cmd.Stdout = &out
			var exit *exec.ExitError
			if err := a.Run(cmd); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			return out.String() == "hello\n"
		}
		if !hears() {
			t.Fatal("before, it heard nothing")
		}
		a.Cut()
		if hears() {
			t.Fatal("cut off, it heard something")
		}
	})
}

func TestADeafHostIsHeardAndAMuteOneIsNot(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, l *lan.LAN) {
		a, b := l.Hosts[0], l.Hosts[1]
		heard := make(chan string, 1)
		serve(t, b, func(c net.Conn) {
			for lines := bufio.NewScanner(c); lines.Scan(); fmt.Fprintln(c, lines.Text()) {
				heard <- lines.Text()
			}
		})
		c, err := a.Dial(t.Context(), "tcp", b.At(echoPort))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const long, short = 10 * time.Second, 300 * time.Millisecond
		arrives := func(want string) {
			t.Helper()
			select {
			case got := <-heard:
				if got != want {
					t.Errorf("%q arrived, not %q", got, want)
				}
			case <-time.After(long):
				t.Errorf("%q did not arrive", want)
			}
		}
		if got, err := exchange(c, "one", long); err != nil || got != "one" {
			t.Fatalf("before: %q, %v", got, err)
		}
		arrives("one")
		a.Deafen()
		if got, err := exchange(c, "two", short); err == nil {
			t.Errorf("deaf, it heard %q", got)
		}
		arrives("two")
		a.Mute()
		if got, err := exchange(c, "three", short); err == nil {
			t.Errorf("deaf and mute, it heard %q", got)
		}
		select {
		case got := <-heard:
			t.Errorf("of a mute host, %q arrived", got)
		default:
		}
		a.Join()
		arrives("three")
	})
}

func TestWhatWaitedForACutLineArrives(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, l *lan.LAN) {
		a, b := l.Hosts[0], l.Hosts[1]
		echo(t, b)
		c, err := a.Dial(t.Context(), "tcp", b.At(echoPort))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := exchange(c, "first", time.Second); err != nil {
			t.Fatal(err)
		}
		b.Cut()
		if got, err := exchange(c, "second", 300*time.Millisecond); err == nil {
			t.Fatalf("cut off, it heard %q", got)
		}
		b.Join()
		if got, err := exchange(c, "third", 20*time.Second); err != nil || got != "second" {
			t.Fatalf("joined again: %q, %v", got, err)
		}
	})
}

// echoPort is one that needs no privilege.
const echoPort = 7007

func echo(t *testing.T, h *lan.Host) {
	t.Helper()
	serve(t, h, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

func serve(t *testing.T, h *lan.Host, each func(net.Conn)) {
	t.Helper()
	addr, err := h.Listen(echoPort)
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
			go func() { defer c.Close(); each(c) }()
		}
	}()
}

func ask(t *testing.T, from, to *lan.Host, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", to.At(echoPort))
	if err != nil {
		return "", err
	}
	defer c.Close()
	return exchange(c, text, time.Second)
}

func exchange(c net.Conn, text string, patience time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return "", err
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(got, "\n"), err
}

func TestAProcessIsInTheNamespaceOfItsHost(t *testing.T) {
	l := lan.New(t, 1)
	cmd := exec.Command("cat", "/proc/net/fib_trie")
	var out strings.Builder
	cmd.Stdout = &out
	if err := l.Hosts[0].Run(cmd); err != nil {
		t.Fatal(err)
	}
	if has := strings.Contains(out.String(), l.Hosts[0].Addr.String()); has != l.Isolated() {
		t.Errorf("%v is an address of the process: %v", l.Hosts[0].Addr, has)
	}
}

func TestBytesOnTheNetworkAreRecorded(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, l *lan.LAN) {
		l.Record(echoPort)
		echo(t, l.Hosts[1])
		text := strings.Repeat("a long line ", 4000)
		for range 2 {
			if _, err := ask(t, l.Hosts[0], l.Hosts[1], text); err != nil {
				t.Fatal(err)
			}
		}
		got := l.Recorded()
		if len(got) != 4 {
			t.Fatalf("%d directions were recorded", len(got))
		}
		for name, b := range got {
			if string(b) != text+"\n" {
				t.Errorf("%s: %d bytes, sent were %d", name, len(b), len(text)+1)
			}
		}
	})
}

func TestASlowLineDelaysButLosesNothing(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, l *lan.LAN) {
		echo(t, l.Hosts[1])
		for _, h := range l.Hosts {
			h.Delay(50 * time.Millisecond)
		}
		start := time.Now()
		if got, err := ask(t, l.Hosts[0], l.Hosts[1], "slow"); err != nil || got != "slow" {
			t.Fatalf("%q, %v", got, err)
		}
		if took := time.Since(start); took < 100*time.Millisecond {
			t.Errorf("there and back took %v, each way at least 50ms", took)
		}
	})
}
