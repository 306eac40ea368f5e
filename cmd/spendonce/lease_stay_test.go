//go:build linux

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSignalsArePassedOnOnce(t *testing.T) {
	r := newRealm(t)
	// Bash goes on reading behind a trap.
	i := r.inside(r.shell(`exec spendonce lease run --stay -- bash -c '
		for signal in TERM HUP INT QUIT USR2 ALRM CONT; do trap "echo $signal" $signal; done
		echo $$
		while read -r line; do echo "$line"; done
		exit 6'`))
	command, err := strconv.Atoi(i.next())
	must(t, err)
	for name, signal := range map[string]syscall.Signal{
		"TERM": unix.SIGTERM, "HUP": unix.SIGHUP, "INT": unix.SIGINT, "QUIT": unix.SIGQUIT, "USR2": unix.SIGUSR2, "ALRM": unix.SIGALRM, "CONT": unix.SIGCONT,
	} {
		r.reads(command)
		must(t, i.Process.Signal(signal))
		if got := i.next(); got != name {
			t.Fatalf("instead of %s came %q", name, got)
		}
		_, err := fmt.Fprintln(i.in, "after", name)
		must(t, err)
		if got := i.next(); got != "after "+name {
			t.Fatalf("after %s came %q", name, got)
		}
	}
	if code := i.leave(); code != 6 {
		t.Errorf("it ended with %d", code)
	}
}

func TestATerminatedCommandGivesItsStatus(t *testing.T) {
	for script, want := range map[string]int{
		// A shell that is about to read when the signal comes would heed it after
		// the reading only.
		`trap "exit 9" TERM; echo ready; while sleep 0.05; do :; done`: 9,
		`echo ready; exec cat`: 128 + 15,
	} {
		r := newRealm(t)
		i := r.inside(r.command("lease", "run", "--stay", "--", "sh", "-c", script))
		i.next()
		must(t, i.Process.Signal(unix.SIGTERM))
		if code, _ := i.rest(); code != want {
			t.Errorf("%s: it ended with %d, not %d", script, code, want)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(r.socket), "generation.*")); err != nil || len(left) > 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
}

func TestInPlaceTheCommandIsTheProcess(t *testing.T) {
	r := newRealm(t)
	i := r.inside(r.command("lease", "run", "--", "sh", "-c", "echo $$; read -r line"))
	if pid := i.next(); pid != strconv.Itoa(i.Process.Pid) {
		t.Errorf("the command is process %s, and was %d", pid, i.Process.Pid)
	}
	must(t, i.Process.Signal(unix.SIGTERM))
	if code := i.leave(); code != -int(unix.SIGTERM) {
		t.Errorf("it ended with %d", code)
	}
}

// anchored is a command that says its generation file when it runs, and what
// is in it for every line it reads.
const anchored = `echo "$SPENDONCE_GENERATION_FILE"; while read -r line; do cat "$SPENDONCE_GENERATION_FILE"; done`

func (i *inside) ask() string {
	i.h.t.Helper()
	_, err := fmt.Fprintln(i.in)
	must(i.h.t, err)
	return i.next()
}

func TestEachRaiseIsRegisteredBeforeItIsWrittenDown(t *testing.T) {
	r := newRealm(t)
	i := r.inside(r.command("lease", "run", "--stay", "--generation", "7", "--", "sh", "-c", anchored))
	file := i.next()
	for want := 8; want < 12; want++ {
		must(t, i.Process.Signal(unix.SIGUSR1))
		r.eventually(fmt.Sprintf("the file says %d", want), func() bool { return i.ask() == strconv.Itoa(want) })
		if st := r.status(); len(st.Sessions) != 1 || st.Sessions[0].Generation != uint64(want) || st.Sessions[0].AnchorPID != i.Process.Pid {
			t.Fatalf("the file says %d, and the broker %+v", want, st.Sessions)
		}
	}
	var st unix.Stat_t
	must(t, unix.Lstat(file, &st))
	if st.Mode != unix.S_IFREG|0o600 {
		t.Errorf("the file's mode is %o", st.Mode)
	}
	i.leave()
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestStormOfRaisesEndsWhereTheBrokerIs(t *testing.T) {
	r := newRealm(t)
	i := r.inside(r.command("lease", "run", "--stay", "--", "sh", "-c", anchored))
	i.next()
	for range rounds(t, 200, 5000) {
		must(t, i.Process.Signal(unix.SIGUSR1))
	}
	must(t, i.Process.Signal(unix.SIGUSR1))
	r.eventually("the file says what the broker does, twice", func() bool {
		for range 2 {
			st := r.status()
			if got := i.ask(); got == "0" || got != strconv.FormatUint(st.Sessions[0].Generation, 10) {
				return false
			}
		}
		return true
	})
	if code := i.leave(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// A broker that is stopped answers late; signals must not wait for that.
func TestARaiseThatHangsKeepsNoSignalFromTheCommand(t *testing.T) {
	r := newRealm(t)
	i := r.inside(r.command("lease", "run", "--stay", "--", "sh", "-c", `trap "exit 9" TERM; echo ready; read -r line`))
	i.next()
	broker := r.status().PID
	stop(t, broker)
	defer func() { _ = unix.Kill(broker, unix.SIGCONT) }()
	must(t, i.Process.Signal(unix.SIGUSR1))
	r.eventually("the wrapper asks the broker", func() bool {
		for _, to := range descriptors(t, i.Process.Pid) {
			if strings.HasPrefix(to, "socket:") {
				return true
			}
		}
		return false
	})
	started := time.Now()
	must(t, i.Process.Signal(unix.SIGTERM))
	if code, _ := i.rest(); code != 9 || time.Since(started) > 5*time.Second {
		t.Errorf("it ended with %d after %s: %s", code, time.Since(started), i.err.String())
	}
}

func TestARaiseThatFailsSaysSoAndChangesNothing(t *testing.T) {
	r := newRealm(t)
	i := r.inside(r.command("lease", "run", "--stay", "--", "sh", "-c", anchored))
	i.next()
	must(t, stopBroker(r.socket))
	must(t, i.Process.Signal(unix.SIGUSR1))
	r.awaitTalk(i.process, "warning: the generation stays at 0: no broker is running")
	if got := i.ask(); got != "0" {
		t.Errorf("the file says %s", got)
	}
	// The next broker knows the session.
	r.ok(r.command("lease", "serve", "--detach"))
	must(t, i.Process.Signal(unix.SIGUSR1))
	r.eventually("the file says 1", func() bool { return i.ask() == "1" })
	// One that has lost its state does not.
	must(t, stopBroker(r.socket))
	must(t, os.Remove(filepath.Join(r.state, "broker-state.json")))
	r.ok(r.command("lease", "serve", "--detach"))
	must(t, i.Process.Signal(unix.SIGUSR1))
	r.awaitTalk(i.process, "warning: the broker had lost the session and made another one")
	i.leave()
}

func TestWhenTheWrapperIsKilledTheSessionEnds(t *testing.T) {
	r := newRealm(t)
	i := r.inside(r.command("lease", "run", "--stay", "--", "sh", "-c", "spendonce lease auth | cut -c 1-10; read -r line; spendonce lease auth; echo $?"))
	if got := i.next(); got != `{"ok":true` {
		t.Fatal(got)
	}
	must(t, i.Process.Kill())
	_, _ = i.Process.Wait()
	_, err := fmt.Fprintln(i.in)
	must(t, err)
	if got := i.next(); got != "9" || !strings.Contains(i.err.String(), "SESSION_UNKNOWN") {
		t.Errorf("it ended with %s: %s", got, i.err.String())
	}
}

// reads waits until a shell, which does nothing else that takes time, waits for
// its input: a signal that came right before would be noticed only behind that.
func (r *realm) reads(pid int) {
	r.t.Helper()
	r.eventually("the shell waits for its input", func() bool { return fields(r.t, pid)[0] == "S" })
}

// noted waits for the pid that a shell writes down before it reads.
func (r *realm) noted() int {
	r.t.Helper()
	var pid int
	r.eventually("the command runs", func() bool {
		b, err := os.ReadFile(filepath.Join(r.dir, "pid"))
		if err == nil && strings.HasSuffix(string(b), "\n") {
			pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
			return err == nil
		}
		return false
	})
	r.reads(pid)
	return pid
}
