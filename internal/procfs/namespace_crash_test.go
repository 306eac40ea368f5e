//go:build crash && linux

package procfs_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spendonce/spendonce/internal/procfs"
)

const lastPID = "/proc/sys/kernel/ns_last_pid"

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a pid namespace")
	}
}

// K03: the numbers of a /proc from outside mean other processes.
func TestOpenRefusesTheProcOfAnotherNamespace(t *testing.T) {
	needRoot(t)
	cmd := command("open")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	said, err := cmd.Output()
	if err != nil || !strings.Contains(string(said), procfs.ErrOtherNamespace.Error()) || !strings.Contains(string(said), "1 here") {
		t.Errorf("%q, %v", said, err)
	}
}

// The other way round: a /proc in which we do not appear.
func TestOpenRefusesTheProcOfAChildNamespace(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	mounted := exec.Command("unshare", "-pf", "sh", "-c", `mount -t proc proc "$0" && echo ready && read x; umount "$0"`, dir)
	in, err := mounted.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := mounted.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mounted.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	if _, err := procfs.OpenAt(dir); !errors.Is(err, procfs.ErrOtherNamespace) {
		t.Error(err)
	}
	in.Close()
	if err := mounted.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOpenTakesTheProcOfItsOwnNamespace(t *testing.T) {
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command("open")
	cmd.Path, cmd.Args = "/usr/bin/unshare", []string{"unshare", "-pf", "--mount-proc", self}
	said, err := cmd.Output()
	if err != nil || string(said) != "opened" {
		t.Errorf("%q, %v", said, err)
	}
}

// A process may have the same number inside and outside by chance.
func TestOpenIsNotFooledByACoincidenceOfPids(t *testing.T) {
	needRoot(t)
	cmd := command("first")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	answers := bufio.NewReader(out)
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		t.Fatal(err)
	}
	highest, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	const tries = 500
	for i := range tries {
		pid := highest - 10*(i+1)
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			continue
		}
		// Somebody else may start a process in between: then the next one.
		if err := os.WriteFile(lastPID, []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(in, pid)
		answer, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var here, there int
		var verdict string
		if _, err := fmt.Sscanf(answer, "%d %d %q", &here, &there, &verdict); err != nil {
			t.Fatal(answer, err)
		}
		if here != there {
			continue
		}
		if !strings.Contains(verdict, procfs.ErrOtherNamespace.Error()) {
			t.Errorf("process %d both here and there: %s", here, verdict)
		}
		return
	}
	t.Errorf("no coincidence in %d tries", tries)
}
