//go:build linux

package main_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withBrowser is a user who has not signed in yet. Each address that a browser
// is to show comes on the channel.
func withBrowser(t *testing.T) (*mcpHome, <-chan string) {
	t.Helper()
	h := withMCP(t, http.HandlerFunc(echo), lasting)
	h.write("state/remote-credentials.json", "{}")
	h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\nissuer = %q\nclient_id = %q\n", h.url, h.server.Issuer(), h.server.ClientID()))
	opened := filepath.Join(h.dir, "opened")
	must(t, os.WriteFile(filepath.Join(h.dir, "browser"), []byte("#!/bin/sh\nprintf '%s\\n' \"$1\" >> \""+opened+"\"\n"), 0o700))
	must(t, syscall.Mkfifo(opened, 0o600))
	fifo, err := os.OpenFile(opened, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = fifo.Close() })
	t.Setenv("BROWSER", filepath.Join(h.dir, "browser"))
	t.Setenv("DISPLAY", ":99")
	for _, name := range []string{"SSH_CONNECTION", "SSH_TTY", "WSL_DISTRO_NAME", "container"} {
		t.Setenv(name, "")
	}
	addresses := make(chan string, 100)
	go func() {
		lines := bufio.NewScanner(fifo)
		for lines.Scan() {
			addresses <- lines.Text()
		}
	}()
	return h, addresses
}

func next(t *testing.T, addresses <-chan string) string {
	t.Helper()
	select {
	case a := <-addresses:
		return a
	case <-time.After(30 * time.Second):
		t.Fatal("no browser was opened")
	}
	return ""
}

// noOther fails if a browser was opened that nobody has looked at.
func noOther(t *testing.T, addresses <-chan string) {
	t.Helper()
	select {
	case <-addresses:
		t.Error("another browser was opened")
	default:
	}
}

// refuse answers as a server does whose user has said no.
func refuse(t *testing.T, address string) {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	back, err := url.Parse(u.Query().Get("redirect_uri"))
	must(t, err)
	back.RawQuery = url.Values{"error": {"access_denied"}, "state": {u.Query().Get("state")}, "iss": {u.Scheme + "://" + u.Host}}.Encode()
	comeBack(t, back)
}

// leave ends a proxy as its client does.
func (p *pipes) leave() {
	p.h.t.Helper()
	_ = p.in.Close()
	if code, rest := p.over(); code != 0 || rest != "" {
		p.h.t.Errorf("exit code %d, %q", code, rest)
	}
}

func TestOfTenProxiesThatMayAskAPersonOneDoes(t *testing.T) {
	h, addresses := withBrowser(t)
	var all []*pipes
	for range 10 {
		p := h.pipes("--login")
		p.say(`{"id":1,"method":"m"}`)
		p.say(`{"id":2,"method":"m"}`)
		all = append(all, p)
	}
	address := next(t, addresses)
	for _, p := range all { // each has come to the point where it would ask
		h.eventually("a proxy asks, or waits for one that does", func() bool {
			return strings.Contains(p.err.String(), "waiting for it") || strings.Contains(p.err.String(), address)
		})
	}
	comeBack(t, authorize(t, address))
	for _, p := range all {
		got := []string{p.hear(), p.hear()}
		slices.Sort(got)
		if got[0] != `{"id":1,"result":0}` || got[1] != `{"id":2,"result":0}` {
			t.Errorf("got %q; %s", got, p.err.String())
		}
		p.leave()
	}
	noOther(t, addresses)
	if c := h.server.Counters(); c.Logins != 1 {
		t.Errorf("%d logins", c.Logins)
	}
}

func TestAfterASignInThatHasFailedNoProxyAsksForAWhile(t *testing.T) {
	h, addresses := withBrowser(t)
	wantLogin := func(p *pipes, id int, reason string) {
		t.Helper()
		if got := p.ask(id); !strings.Contains(got, fmt.Sprintf(`"id":%d,"error":{"code":-32001`, id)) || !strings.Contains(got, "spendonce login work") || !strings.Contains(got, reason) {
			t.Errorf("got %s", got)
		}
	}
	first, second := h.pipes("--login"), h.pipes("--login")
	first.say(`{"id":1,"method":"m"}`)
	address := next(t, addresses)
	second.say(`{"id":1,"method":"m"}`)
	h.awaitTalk(second.process, "waiting for it")
	refuse(t, address)
	if got := first.hear(); !strings.Contains(got, `"code":-32001`) || !strings.Contains(got, "access_denied") {
		t.Errorf("who asked was told %s", got)
	}
	if got := second.hear(); !strings.Contains(got, `"code":-32001`) || !strings.Contains(got, "nobody is asked again") {
		t.Errorf("who waited was told %s", got)
	}
	third := h.pipes("--login") // began later
	for _, p := range []*pipes{first, second, third} {
		wantLogin(p, 2, "nobody is asked again")
		wantLogin(p, 3, "nobody is asked again")
		p.leave()
	}
	noOther(t, addresses)

	// A minute later:
	h.write("state/locks/work.login", strconv.FormatInt(time.Now().Add(-61*time.Second).UnixMilli(), 10))
	p := h.pipes("--login")
	p.say(`{"id":1,"method":"m"}`)
	comeBack(t, authorize(t, next(t, addresses)))
	if got := p.hear(); got != `{"id":1,"result":0}` {
		t.Errorf("got %s", got)
	}
	p.leave()
}

func TestAProxyThatIsToldToEndWhileItAsksLeavesTheTurnToAnother(t *testing.T) {
	for how, end := range map[string]func(p *pipes) error{
		"SIGTERM":        func(p *pipes) error { return p.Process.Signal(syscall.SIGTERM) },
		"SIGKILL":        func(p *pipes) error { return p.Process.Kill() },
		"the input ends": func(p *pipes) error { return p.in.Close() },
	} {
		t.Run(how, func(t *testing.T) {
			h, addresses := withBrowser(t)
			first, second := h.pipes("--login"), h.pipes("--login")
			first.say(`{"id":1,"method":"m"}`)
			next(t, addresses)
			second.say(`{"id":1,"method":"m"}`)
			h.awaitTalk(second.process, "waiting for it")
			must(t, end(first))
			if code, took := mustEnd(t, first.process); how != "SIGKILL" && code != 0 || took > 5*time.Second {
				t.Errorf("exit code %d after %s; %s", code, took, first.err.String())
			}
			comeBack(t, authorize(t, next(t, addresses)))
			if got := second.hear(); got != `{"id":1,"result":0}` {
				t.Errorf("got %s", got)
			}
			second.leave()
			if c := h.server.Counters(); c.Logins != 1 {
				t.Errorf("%d logins", c.Logins)
			}
		})
	}
}
