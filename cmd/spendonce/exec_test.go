//go:build linux

package main_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
)

// Whoever presses Ctrl-C while the token is fetched means the command too.
func TestAnInterruptDuringTheRefreshKeepsExecFromRunningItsCommand(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	must(t, h.server.Hold(spendoncetest.After))
	ran := filepath.Join(h.dir, "ran")
	p := h.start("exec", "work", "--", "touch", ran)
	h.held(spendoncetest.After, 1)
	must(t, p.Process.Signal(syscall.SIGINT))
	h.awaitTalk(p, "finishing the refresh")
	must(t, h.server.Release(spendoncetest.After))
	if code, _ := p.end(); code != 128+int(syscall.SIGINT) {
		t.Errorf("ended with %d: %s", code, p.err.String())
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
	if code, token, _ := h.run("token", "work"); code != 0 || !h.server.Live(token) {
		t.Error("the token that was fetched is lost")
	}
	if n := h.server.Counters().Exchanges; n != 1 {
		t.Errorf("%d exchanges", n)
	}
}

// A signal after that is the command's.
func TestASignalEndsTheCommandOfExecAsItWouldWithoutUs(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE} {
		p := h.start("exec", "work", "--", "sh", "-c", "echo running >&2; exec sleep 60")
		h.awaitTalk(p, "running")
		must(t, p.Process.Signal(sig))
		if code, _ := p.end(); code != -int(sig) {
			t.Errorf("%v: ended with %d", sig, code)
		}
	}
}
