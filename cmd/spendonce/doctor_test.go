//go:build linux

package main_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/spendoncetest"
)

// Commands that only look are given a second by whoever calls them, often
// while something else hangs.
func TestWhatOnlyLooksSendsNothingAndWaitsForNobody(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{})
	must(t, h.server.Hold(spendoncetest.After))
	holder := h.start("token", "work")
	h.held(spendoncetest.After, 1)
	must(t, holder.Process.Signal(syscall.SIGSTOP))
	h.eventually("the process has stopped", func() bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, holder.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		return err == nil && info.Signo == int32(unix.SIGCHLD)
	})
	before, posts := h.everything(), h.server.Counters().Requests
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"doctor"}, 1, fmt.Sprintf("process %d (spendonce), which is stopped: until it goes on or ends, every refresh that needs it fails -> continue it (kill -CONT %d) or kill it", holder.Process.Pid, holder.Process.Pid)},
		{[]string{"doctor", "--json"}, 1, `"id":"target.lock","level":"error","target":"work"`},
		{[]string{"status"}, 0, fmt.Sprintf("of work, held by process %d (spendonce), which is stopped, since", holder.Process.Pid)},
		{[]string{"status", "--json"}, 0, fmt.Sprintf(`"pid":%d,"process":"spendonce","stopped":true`, holder.Process.Pid)},
		{[]string{"list"}, 0, "expired, refreshed on use"},
	} {
		p := h.start(c.args...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		stop := context.AfterFunc(ctx, func() { _ = p.Process.Kill() })
		code, out := p.end()
		stop()
		cancel()
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%q ended with %d within a second and said\n%s\n%s", c.args, code, out, p.err.String())
		}
	}
	if after := h.everything(); after != before {
		t.Errorf("something was changed:\n%s\nbefore:\n%s", after, before)
	}
	if n := h.server.Counters().Requests - posts; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	must(t, h.server.Release(spendoncetest.After))
	must(t, holder.Process.Signal(syscall.SIGCONT))
	if code, token := holder.end(); code != 0 || !h.server.Live(token) {
		t.Errorf("the holder, continued, ended with %d: %s", code, holder.err.String())
	}
	if code, out, _ := h.run("doctor"); code != 0 || strings.Contains(out, "target work") {
		t.Errorf("after it the doctor ended with %d and said\n%s", code, out)
	}
}

// What a killed process leaves is told until the next one has recovered it.
func TestALockThatAKilledProcessLeftIsTold(t *testing.T) {
	h := newHome(t, spendoncetest.TokenServerConfig{ReuseGrace: time.Minute})
	must(t, h.server.Hold(spendoncetest.After))
	holder := h.start("token", "work")
	h.held(spendoncetest.After, 1)
	must(t, holder.Process.Kill())
	holder.end()
	must(t, h.server.Release(spendoncetest.After))
	code, out, _ := h.run("doctor")
	for _, says := range []string{
		"note     the file of the lock of work, made ", "was left behind by a process that is dead -> nothing to do: the next refresh breaks it at once",
		"note     a refresh was begun ", "its end is not known",
	} {
		if code != 0 || !strings.Contains(out, says) {
			t.Errorf("the doctor ended with %d and did not say %q:\n%s", code, says, out)
		}
	}
	if code, token, talk := h.run("token", "work"); code != 0 || !h.server.Live(token) {
		t.Fatalf("the next one ended with %d: %s", code, talk)
	}
	if code, out, _ := h.run("doctor"); code != 0 || strings.Contains(out, "target work") {
		t.Errorf("after it the doctor ended with %d and said\n%s", code, out)
	}
}

// everything is all that can be told of the files of this home, but for when
// they were last read.
func (h *home) everything() string {
	var all strings.Builder
	must(h.t, filepath.WalkDir(h.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintln(&all, path, st.Ino, st.Mode, st.Nlink, st.Size, st.Mtim, st.Ctim)
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all.Write(b)
		}
		return nil
	}))
	return all.String()
}
