//go:build linux

package main_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
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
		`trap "exit 9" TERM; echo ready; read -r line; read -r line`: 9,
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
	must(t, unix.Kill(broker, unix.SIGSTOP))
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

// terminal is a person at an interactive shell with job control.
type terminal struct {
	*process
	r      *realm
	master *os.File
	seen   buffer
}

func (r *realm) terminal() *terminal {
	r.t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(r.t, err)
	master := os.NewFile(uintptr(fd), "terminal")
	must(r.t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(r.t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(r.t, err)
	p := r.command()
	bash, err := exec.LookPath("bash")
	must(r.t, err)
	p.Path, p.Args = bash, []string{"bash", "--norc", "--noprofile", "-i"}
	p.Env = append(p.Env, "PS1=$ ", "TERM=dumb", "HISTFILE=")
	p.Stdin, p.Stdout, p.Stderr = slave, slave, slave
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	r.begin(p)
	must(r.t, slave.Close())
	term := &terminal{process: p, r: r, master: master}
	go func() { _, _ = io.Copy(&term.seen, master) }()
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("on the terminal:\n%s", term.seen.String())
		}
		_ = p.Process.Kill()
		_ = master.Close()
	})
	return term
}

func (term *terminal) keys(text string) {
	term.r.t.Helper()
	_, err := io.WriteString(term.master, text)
	must(term.r.t, err)
}

// says waits until a file in the realm's directory has the text.
func (term *terminal) says(name, text string) {
	term.r.t.Helper()
	term.r.eventually(fmt.Sprintf("%s says %q", name, text), func() bool {
		b, _ := os.ReadFile(filepath.Join(term.r.dir, name))
		return string(b) == text
	})
}

// trapping notes the signals it gets until it reads a line that says end. Bash
// goes on reading behind a trap.
const trapping = `for signal in INT QUIT; do trap "echo $signal >>got" $signal; done
echo $$ >pid
while read -r line; do [ "$line" != end ] || exit 7; done
exit 5
`

// Ctrl-C goes to the whole foreground group: the wrapper must not send a second
// one, which many programs take for an order to drop everything, wherever
// standard input comes from. Two that come together look like one to a shell:
// strace counts them.
func TestAnInterruptFromTheTerminalComesOnce(t *testing.T) {
	const traced = "strace -ff -qq -o trace -e trace=none -e signal=INT,QUIT spendonce lease run"
	for name, line := range map[string]string{
		"in place":            traced + " -- bash trap.sh; echo $? >code",
		"beside":              traced + " --stay -- bash trap.sh; echo $? >code",
		"beside, with a pipe": `(trap "" INT QUIT; exec cat keys) | ` + traced + " --stay -- bash trap.sh; echo $? >code",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRealm(t)
			r.write("trap.sh", trapping)
			r.ok(r.shell("mkfifo keys; spendonce -q lease serve --detach"))
			term := r.terminal()
			term.keys(line + "\n")
			pid := r.noted()
			term.keys("\x03")
			term.says("got", "INT\n")
			r.reads(pid)
			term.keys("\x1c")
			term.says("got", "INT\nQUIT\n")
			if name == "beside, with a pipe" {
				r.ok(r.shell("echo end >keys"))
			} else {
				term.keys("end\n")
			}
			term.says("code", "7\n")
			b, err := os.ReadFile(filepath.Join(r.dir, "trace."+strconv.Itoa(pid)))
			must(t, err)
			if got := string(b); strings.Count(got, "SIGINT {") != 1 || strings.Count(got, "SIGQUIT {") != 1 || strings.Contains(got, "SI_USER") {
				t.Errorf("it got\n%s", got)
			}
		})
	}
}

// A command that has left the terminal's group gets what is sent to us.
func TestAnInterruptReachesACommandInAGroupOfItsOwn(t *testing.T) {
	r := newRealm(t)
	r.write("trap.sh", trapping)
	r.ok(r.shell("mkfifo keys"))
	term := r.terminal()
	term.keys("spendonce lease run --stay -- setsid bash trap.sh <>keys; echo $? >code\n")
	r.noted()
	term.keys("\x03")
	term.says("got", "INT\n")
	r.ok(r.shell("echo end >keys"))
	term.says("code", "7\n")
}

func TestAJobCanBeStoppedAndContinued(t *testing.T) {
	for how, wrapper := range wrappers {
		t.Run(how, func(t *testing.T) {
			r := newRealm(t)
			r.write("job.sh", "echo $$ >pid; read -r line; echo \"$line\" >got; exit 7\n")
			term := r.terminal()
			term.keys(wrapper + " sh job.sh; echo $? >code\n")
			pid := r.noted()
			term.keys("\x1a")
			r.eventually("the command is stopped", func() bool { return fields(t, pid)[0] == "T" })
			term.says("code", "148\n") // 128 + SIGTSTP, from the shell
			term.keys("jobs >jobs; fg; echo $? >code2\n")
			r.eventually("the command goes on", func() bool { return fields(t, pid)[0] == "S" })
			term.keys("hello\n")
			term.says("got", "hello\n")
			term.says("code2", "7\n")
			if jobs, _ := os.ReadFile(filepath.Join(r.dir, "jobs")); !strings.Contains(string(jobs), "Stopped") {
				t.Errorf("jobs said %q", jobs)
			}
		})
	}
}

// An interactive shell takes the terminal for itself, and gives it back.
func TestAnInteractiveShellUnderUsHasJobControl(t *testing.T) {
	for how, wrapper := range wrappers {
		t.Run(how, func(t *testing.T) {
			r := newRealm(t)
			term := r.terminal()
			term.keys(wrapper + " bash --norc --noprofile -i\n")
			term.keys("echo $SPENDONCE_GENERATION >inner\n")
			term.says("inner", "0\n")
			term.keys("sh -c 'echo $$ >pid; exec sleep 60'\n")
			sleeper := r.noted()
			term.keys("\x03")
			r.eventually("the sleeper has ended", func() bool { return unix.Kill(sleeper, 0) != nil })
			term.keys("echo $? >slept\n")
			term.says("slept", "130\n")
			term.keys("spendonce lease auth | cut -c 1-10 >auth\n")
			term.says("auth", "{\"ok\":true\n")
			term.keys("exit 5\n")
			term.keys("echo $? $SPENDONCE_GENERATION >outer\n")
			term.says("outer", "5\n")
		})
	}
}
