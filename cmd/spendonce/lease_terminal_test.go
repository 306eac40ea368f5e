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

	"golang.org/x/sys/unix"
)

// terminal is a person at an interactive shell with job control.
type terminal struct {
	*process
	r      *realm
	master *os.File
	seen   buffer
}

// openTerminal returns both ends of a new one: where the person is, and where
// the program is.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(t, err)
	master = os.NewFile(uintptr(fd), "terminal")
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	return master, slave
}

func (r *realm) terminal() *terminal {
	r.t.Helper()
	master, slave := openTerminal(r.t)
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
