package lockfile_test

import (
	"bufio"
	"context"
	"errors"
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

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// A test that needs another process runs this binary again, as one of these.
var roles = map[string]func(args []string) error{
	"obey":  obey,
	"count": count,
	"serve": serve,
	"die":   die,
}

const roleVariable = "LOCKFILE_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// name is that of the lock in all tests.
const name = "x.lock"

// noKernelLocks is a disk whose file system offers no flock(2).
func noKernelLocks() durable.Disk {
	return durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op == "flock" {
			return unix.ENOLCK
		}
		return do()
	}}
}

func openDir(t *testing.T, disk durable.Disk, path string) *durable.Dir {
	t.Helper()
	dir, err := disk.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	return dir
}

func newDir(t *testing.T) *durable.Dir {
	t.Helper()
	return openDir(t, durable.Disk{}, t.TempDir())
}

// acquire fails the test if the lock is not had.
func acquire(t *testing.T, dir *durable.Dir, cfg lockfile.Config) *lockfile.Lock {
	t.Helper()
	lock, err := lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// acquireAtOnce returns ErrStopped if the lock can only be had by waiting.
func acquireAtOnce(dir *durable.Dir, cfg lockfile.Config) (*lockfile.Lock, error) {
	return lockfile.Acquire(context.Background(), cfg, lockfile.Request{Dir: dir, Name: name, Until: func() bool { return true }})
}

func release(t *testing.T, lock *lockfile.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// mustBeFree asserts that the next one gets the lock without waiting, and that
// nothing stays behind but the guard.
func mustBeFree(t *testing.T, path string) {
	t.Helper()
	lock, err := acquireAtOnce(openDir(t, durable.Disk{}, path), lockfile.Config{})
	if err != nil {
		t.Errorf("the next acquisition: %v", err)
		return
	}
	release(t, lock)
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name) && e.Name() != name+".guard" {
			t.Errorf("%s stays behind", e.Name())
		}
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// put makes a file with the given time of last change.
func put(t *testing.T, path, content string, mtime time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	touch(t, path, mtime)
}

func touch(t *testing.T, path string, mtime time.Time) {
	t.Helper()
	if err := os.Chtimes(path, mtime, mtime); err != nil {
		t.Fatal(err)
	}
}

// marked is the content of a lock file made under a guard of this boot.
func marked(nonce string) string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nonce + "\n" // a system that tells no boot marks nothing
	}
	return nonce + "\nguarded " + strings.TrimSpace(string(b)) + "\n"
}

// child is another process that uses the lock.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// command returns this binary in another role. Without a shorter sleep the
// race detector would wait for a second at the end of each process.
func command(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

func start(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
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
	c := &child{cmd, in, bufio.NewReader(out)}
	t.Cleanup(c.kill)
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if s == syscall.SIGSTOP {
		var status unix.WaitStatus
		if _, err := unix.Wait4(c.cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("stopping the child: %v, %v", status, err)
		}
	}
}

// tell gives an order to a child that obeys and returns its answer.
func (c *child) tell(t *testing.T, order string) string {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, order); err != nil {
		t.Fatal(err)
	}
	return c.answer(t)
}

func (c *child) answer(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// obey does with the lock what it reads, and answers each order with a line.
func obey(args []string) error {
	dir, err := durable.Disk{}.OpenDir(args[0])
	if err != nil {
		return err
	}
	stale, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	var lock *lockfile.Lock
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		err := errors.New("no such order")
		switch orders.Text() {
		case "acquire":
			lock, err = lockfile.Acquire(context.Background(), lockfile.Config{StaleAfter: stale}, lockfile.Request{Dir: dir, Name: name})
		case "step":
			err = lock.Step()
		case "check":
			err = lock.Check()
		case "release":
			err = lock.Release()
		}
		if err == nil {
			fmt.Println("ok")
		} else {
			fmt.Println(err)
		}
	}
	return nil
}

func obedient(t *testing.T, path string, stale time.Duration) *child {
	t.Helper()
	return start(t, command("obey", path, stale.String()))
}

// count waits for the end of its standard input and then raises the number in
// the file "counter" so often, each time under the lock, in place.
func count(args []string) error {
	var disk durable.Disk
	if args[2] == "without kernel locks" {
		disk = noKernelLocks()
	}
	dir, err := disk.OpenDir(args[0])
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	counter, err := os.OpenFile(filepath.Join(args[0], "counter"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for range rounds {
		lock, err := lockfile.Acquire(context.Background(), lockfile.Config{}, lockfile.Request{Dir: dir, Name: name, Brief: true})
		if err != nil {
			return err
		}
		b := make([]byte, counterLength)
		if _, err := counter.ReadAt(b, 0); err != nil {
			return err
		}
		n, err := strconv.Atoi(string(b))
		if err != nil {
			return err
		}
		if _, err := counter.WriteAt(fmt.Appendf(nil, "%0*d", counterLength, n+1), 0); err != nil {
			return err
		}
		if err := errors.Join(lock.Check(), lock.Release()); err != nil {
			return err
		}
	}
	return nil
}

const counterLength = 10

// serve takes and releases the lock from the end of its standard input until
// the end of descriptor 3, and says how often it got it.
func serve(args []string) error {
	dir, err := durable.Disk{}.OpenDir(args[0])
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(3, "stop"))
		close(stop)
	}()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	n := 0
	for {
		lock, err := lockfile.Acquire(context.Background(), lockfile.Config{}, lockfile.Request{
			Dir: dir, Name: name, Brief: args[1] == "brief",
			Until: func() bool {
				select {
				case <-stop:
					return true
				default:
					return false
				}
			},
		})
		if errors.Is(err, lockfile.ErrStopped) {
			break
		}
		if err != nil {
			return err
		}
		n++
		if err := lock.Release(); err != nil {
			return err
		}
		select {
		case <-stop:
			fmt.Println(n)
			return nil
		default:
		}
	}
	fmt.Println(n)
	return nil
}

// die kills itself before or after the given step of an acquisition, a mark
// and a release; it ends well if there are fewer steps.
func die(args []string) error {
	at, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	step := 0
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		now := step == at
		step++
		if !now {
			return do()
		}
		// The parent learns which step it was.
		fmt.Println(s.Op, filepath.Base(s.Path))
		if args[2] == "after" {
			_ = do()
		}
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}}
	dir, err := disk.OpenDir(args[0])
	if err != nil {
		return err
	}
	lock, err := lockfile.Acquire(context.Background(), lockfile.Config{}, lockfile.Request{Dir: dir, Name: name})
	if err != nil {
		return err
	}
	mark := lockfile.Mark{State: lockfile.MarkSent, Fingerprint: fingerprint, At: time.Now()}
	return errors.Join(lock.SetMark(mark), lock.Check(), lock.Step(), lock.Release())
}

const fingerprint = "ba7816bf8f01cfea"
