//go:build linux

package procfs_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/procfs"
)

const roleVariable = "PROCFS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "renamed":
		renamed()
	case "open":
		fmt.Print(openHere())
	case "first":
		first()
	case "both":
		both()
	}
}

// command runs this binary again in another role.
func command(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

func openProc(t testing.TB) *procfs.FS {
	t.Helper()
	fs, err := procfs.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fs.Close)
	return fs
}

func TestStatKnowsThisProcess(t *testing.T) {
	got, err := openProc(t).Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if got.PID != os.Getpid() || got.PPID != os.Getppid() || got.Comm+"\n" != string(comm) || got.StartTime == 0 {
		t.Errorf("%+v", got)
	}
}

func TestStatOfNobodyIsErrNoProcess(t *testing.T) {
	fs := openProc(t)
	for _, pid := range []int{-1, 0, 1 << 22, 1<<31 - 1} {
		if got, err := fs.Stat(pid); !errors.Is(err, procfs.ErrNoProcess) || got != (procfs.Stat{}) {
			t.Errorf("%d: %+v, %v", pid, got, err)
		}
	}
}

// An entry stays with its process: while it is a zombie there is something to
// read, and once it was reaped there is nothing.
func TestAnEntryEndsWithItsProcess(t *testing.T) {
	fs := openProc(t)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	entry, err := fs.Entry(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer entry.Close()
	alive, err := entry.Stat()
	if err != nil || alive.PPID != os.Getpid() {
		t.Errorf("alive: %+v, %v", alive, err)
	}
	in.Close()
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	dead, err := entry.Again()
	if err != nil || dead.State != 'Z' || dead.StartTime != alive.StartTime || dead.Comm != "" {
		t.Errorf("a zombie: %+v, %v", dead, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() (procfs.Stat, error){"Stat": entry.Stat, "Again": entry.Again} {
		if got, err := read(); !errors.Is(err, procfs.ErrNoProcess) {
			t.Errorf("reaped: %s gives %+v, %v", name, got, err)
		}
	}
}

// K06: what a process calls itself is the only part of its stat that it
// chooses.
func TestStatIsNotFooledByACommandName(t *testing.T) {
	fs := openProc(t)
	for _, name := range []string{"a b", ") S 1 1 1", "x) Z 1 (", "two\nlines", "))))((((", "\xff\xfe"} {
		cmd := command("renamed", name)
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
		before, err := fs.Stat(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		got, err := fs.Stat(cmd.Process.Pid)
		// How the kernel shows line breaks is its own affair.
		shown := strings.NewReplacer("\\n", "\n").Replace(got.Comm)
		if err != nil || shown != name || got.PPID != os.Getpid() || got.StartTime != before.StartTime || got.State == 'Z' {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// renamed takes a name, says so, and waits.
func renamed() {
	if err := os.WriteFile("/proc/self/comm", []byte(os.Args[1]), 0); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("x")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// openHere says what Open makes of the place it runs in.
func openHere() string {
	fs, err := procfs.Open()
	if err != nil {
		return err.Error()
	}
	fs.Close()
	return "opened"
}

// first is the first process of a namespace that sees /proc from outside. It
// starts a process with each pid that it reads.
func first() {
	for pids := bufio.NewScanner(os.Stdin); pids.Scan(); {
		pid, err := strconv.Atoi(pids.Text())
		if err == nil {
			err = os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0)
		}
		if err != nil {
			panic(err)
		}
		cmd := command("both")
		cmd.Stdout = os.Stdout
		if err := cmd.Run(); err != nil {
			panic(err)
		}
	}
}

// both says its pid here and there, and what Open makes of it.
func both() {
	there, err := os.Readlink("/proc/self")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d %s %q\n", os.Getpid(), there, openHere())
}

func TestOpenRefusesWhatIsNotProcfs(t *testing.T) {
	for _, path := range []string{t.TempDir(), "/sys"} {
		if _, err := procfs.OpenAt(path); !errors.Is(err, procfs.ErrNotProcfs) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := procfs.OpenAt("/proc/version"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
}

// A directory inside /proc is procfs too, and shows no processes.
func TestOpenRefusesAPartOfProcfs(t *testing.T) {
	if _, err := procfs.OpenAt("/proc/sys"); err == nil {
		t.Error("opened")
	}
}

func TestBootIDIsThatOfTheKernel(t *testing.T) {
	want, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	got, err := openProc(t).BootID()
	if err != nil || got+"\n" != string(want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestTheOverflowUIDIsTheKernels(t *testing.T) {
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := openProc(t).OverflowUID()
	if err != nil || fmt.Sprint(uid) != strings.TrimSpace(string(b)) {
		t.Errorf("%d, %v; want %s", uid, err, b)
	}
}
