//go:build linux

package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// demoRun is one run of the demo, in a process group and a directory for
// temporary files of its own.
type demoRun struct {
	*exec.Cmd
	t    *testing.T
	temp string
}

func newDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	if testing.Short() && len(args) == 0 {
		t.Skip("plays the whole demo once more")
	}
	bin, err := binary()
	must(t, err)
	temp, err := os.MkdirTemp("", "demo") //nolint:usetesting // its name has to be short: sockets are in it
	must(t, err)
	d := &demoRun{exec.Command(bin, append([]string{"demo"}, args...)...), t, temp}
	// Whoever runs the demo may have a session of their own.
	d.Env = append(os.Environ(), "TMPDIR="+temp,
		"SPENDONCE_SOCKET=/nowhere/b.sock", "SPENDONCE_SESSION_ID=none", "SPENDONCE_GENERATION=9", "SPENDONCE_GENERATION_FILE=/nowhere/g",
		"SPENDONCE_STATE_DIR=/nowhere", "SPENDONCE_TOKEN_DEMO=none")
	d.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		if d.Process != nil {
			_ = unix.Kill(-d.Process.Pid, unix.SIGKILL)
		}
		_ = os.RemoveAll(temp)
	})
	return d
}

// endedAll says that no process of its group runs.
func (d *demoRun) endedAll() {
	d.t.Helper()
	// Who outlives its parent is reaped by init, in its own time.
	deadline := time.Now().Add(10 * time.Second)
	for !errors.Is(unix.Kill(-d.Process.Pid, 0), unix.ESRCH) {
		if time.Now().After(deadline) {
			d.t.Error("a process of the demo still runs")
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (d *demoRun) leftNoFile() {
	d.t.Helper()
	if left, err := os.ReadDir(d.temp); err != nil || len(left) != 0 {
		d.t.Errorf("%v is left, %v", left, err)
	}
}

// startUntil returns when a row begins with a text.
func (d *demoRun) startUntil(row string) {
	d.t.Helper()
	out, err := d.StdoutPipe()
	must(d.t, err)
	must(d.t, d.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), row) {
			return
		}
	}
	d.t.Fatalf("no row begins with %q", row)
}

func TestTheDemoShowsBothHalvesAndLeavesNothing(t *testing.T) {
	d := newDemo(t, "--json")
	out, err := d.Output()
	var got struct {
		OK     bool
		Scenes []struct {
			Asked, Happened string
			OK, Skipped     bool
		}
	}
	if jsonErr := json.Unmarshal(out, &got); err != nil || jsonErr != nil || !got.OK {
		t.Fatalf("%v, %v: %s", err, jsonErr, out)
	}
	var happened []string
	for _, s := range got.Scenes {
		if !s.OK || s.Skipped && !strings.Contains(s.Asked, "disk full") {
			t.Errorf("%s: %s", s.Asked, s.Happened)
		}
		happened = append(happened, s.Happened)
	}
	for _, want := range []string{
		"first: ok, same binding, second: TOKEN_REPLAY",
		"stranger: NOT_DESCENDANT, then a member: ok",
		"1 ok, 63 TOKEN_REPLAY",
		"spent token: TOKEN_REPLAY, pending: ok",
		"member: SESSION_UNKNOWN",
	} {
		if !slices.Contains(happened, want) {
			t.Errorf("it did not happen: %s", want)
		}
	}
	d.endedAll()
	d.leftNoFile()
}

func TestAnInterruptedDemoLeavesNothing(t *testing.T) {
	d := newDemo(t)
	d.startUntil("a stranger has") // the row before the crowd's
	must(t, d.Process.Signal(syscall.SIGTERM))
	_ = d.Wait()
	if code := d.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("it ended with %d", code)
	}
	d.endedAll()
	d.leftNoFile()
}

func TestAKilledDemoLeavesNoProcess(t *testing.T) {
	d := newDemo(t)
	d.startUntil("a member mints")
	must(t, d.Process.Kill())
	_ = d.Wait()
	d.endedAll()
}
