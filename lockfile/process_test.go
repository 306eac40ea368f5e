package lockfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// rounds of a storm: the race detector and a short run take fewer.
func rounds(t *testing.T) int {
	t.Helper()
	switch {
	case os.Getenv("SPENDONCE_SOAK") != "":
		return 5000
	case testing.Short():
		return 20
	}
	return 100
}

func TestStormOfProcessesLosesNoUpdate(t *testing.T) {
	for _, kind := range []string{"with kernel locks", "without kernel locks"} {
		t.Run(kind, func(t *testing.T) {
			const processes = 8
			path, rounds := t.TempDir(), rounds(t)
			counter := filepath.Join(path, "counter")
			if err := os.WriteFile(counter, fmt.Appendf(nil, "%0*d", counterLength, 0), 0o600); err != nil {
				t.Fatal(err)
			}
			var all []*child
			for range processes {
				all = append(all, start(t, command("count", path, strconv.Itoa(rounds), kind)))
			}
			for _, c := range all {
				c.in.Close()
			}
			for _, c := range all {
				if err := c.cmd.Wait(); err != nil {
					t.Errorf("a process: %v", err)
				}
			}
			n, err := strconv.Atoi(contentOf(t, counter))
			if err != nil || n != processes*rounds {
				t.Errorf("the counter says %d, %v, after %d processes with %d rounds each", n, err, processes, rounds)
			}
			mustBeFree(t, path)
		})
	}
}

// Real processes are served by luck too, and by what else the machine does:
// one run of three must come near to what TestPollingStarvesNobody asserts.
func TestStormStarvesNobody(t *testing.T) {
	for _, kind := range []string{"brief", "not brief"} {
		t.Run(kind, func(t *testing.T) {
			var got []int
			for range 3 {
				got = compete(t, kind)
				t.Logf("served %v", got)
				if 3*slices.Min(got) >= slices.Max(got) {
					return
				}
			}
			if 10*slices.Min(got) < slices.Max(got) {
				t.Errorf("served %v: the least has less than a tenth of the best", got)
			}
		})
	}
}

// compete lets 8 processes take and release the lock for two seconds and
// returns how often each got it.
func compete(t *testing.T, kind string) []int {
	t.Helper()
	path := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var all []*child
	for range 8 {
		cmd := command("serve", path, kind)
		cmd.ExtraFiles = []*os.File{r}
		c := start(t, cmd)
		if a := c.answer(t); a != "ready" {
			t.Fatal(a)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.in.Close()
	}
	<-time.After(2 * time.Second)
	w.Close()
	var got []int
	for _, c := range all {
		n, err := strconv.Atoi(c.answer(t))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	return got
}

func TestTheLockOfAKilledProcessIsHadAtOnce(t *testing.T) {
	path := t.TempDir()
	c := obedient(t, path, lockfile.DefaultStaleAfter)
	if a := c.tell(t, "acquire"); a != "ok" {
		t.Fatal(a)
	}
	dir := openDir(t, durable.Disk{}, path)
	if lock, err := acquireAtOnce(dir, lockfile.Config{}); !errors.Is(err, lockfile.ErrStopped) {
		t.Fatalf("while it lives: %v, %v", lock, err)
	}
	c.kill()
	lock, err := acquireAtOnce(dir, lockfile.Config{})
	if err != nil {
		t.Fatalf("after its death: %v", err)
	}
	if !lock.Guarded() {
		t.Error("the lock is not guarded")
	}
	release(t, lock)
}

func TestAWaiterGetsTheLockOfAProcessThatIsKilledMeanwhile(t *testing.T) {
	path := t.TempDir()
	c := obedient(t, path, lockfile.DefaultStaleAfter)
	if a := c.tell(t, "acquire"); a != "ok" {
		t.Fatal(a)
	}
	polls := 0
	began := time.Now()
	lock, err := lockfile.Acquire(t.Context(), lockfile.Config{}, lockfile.Request{
		Dir: openDir(t, durable.Disk{}, path), Name: name,
		Until: func() bool {
			if polls++; polls == 10 {
				_ = c.cmd.Process.Kill()
			}
			return false
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer release(t, lock)
	if d := time.Since(began); d > lockfile.DefaultStaleAfter/2 {
		t.Errorf("the wait took %s", d)
	}
	if polls < 10 {
		t.Errorf("had after %d polls, before the holder was dead", polls)
	}
}

func TestKilledAtAnyStepAProcessLeavesALockThatIsHadAtOnce(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		waited := 0
		for i := 0; ; i++ {
			path := t.TempDir()
			c := start(t, command("die", path, strconv.Itoa(i), when))
			step, _ := c.out.ReadString('\n')
			step = strings.TrimSpace(step)
			if err := c.cmd.Wait(); err == nil {
				if i < 12 {
					t.Errorf("%s: the process met only %d steps", when, i)
				}
				mustBeFree(t, path)
				break
			}
			// The one instant that leaves an empty file, and no early break.
			empty := when == "before" && step == "write "+name || when == "after" && step == "create "+name
			dir := openDir(t, durable.Disk{}, path)
			lock, err := acquireAtOnce(dir, lockfile.Config{})
			if empty {
				waited++
				if !errors.Is(err, lockfile.ErrStopped) {
					t.Errorf("an empty file was broken early, or: %v", err)
				}
				// It costs StaleAfter, which is shorter here.
				lock, err = lockfile.Acquire(t.Context(), lockfile.Config{StaleAfter: 50 * time.Millisecond}, lockfile.Request{Dir: dir, Name: name})
			}
			if err != nil {
				t.Errorf("killed %s step %d (%s): %v", when, i, step, err)
				continue
			}
			if m := lock.Mark(); m.State != lockfile.MarkNone && m.Fingerprint != fingerprint {
				t.Errorf("killed %s step %d (%s): the mark is %+v", when, i, step, m)
			}
			release(t, lock)
			mustBeFree(t, path)
		}
		if waited != 1 {
			t.Errorf("%s: %d steps cost a wait, want the one between create and write", when, waited)
		}
	}
}

func TestAStoppedHolderKeepsItsLockAndIsNamed(t *testing.T) {
	const stale = 600 * time.Millisecond
	path := t.TempDir()
	dir := openDir(t, durable.Disk{}, path)
	c := obedient(t, path, stale)
	if a := c.tell(t, "acquire"); a != "ok" {
		t.Fatal(a)
	}
	c.signal(t, syscall.SIGSTOP)
	before, err := dir.Read(name, 1000)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(cfg lockfile.Config) (*lockfile.HeldError, time.Duration) {
		t.Helper()
		began := time.Now()
		lock, err := lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name})
		var held *lockfile.HeldError
		if !errors.As(err, &held) || !errors.Is(err, lockfile.ErrNotObtained) {
			t.Fatalf("%v, %v, want a HeldError", lock, err)
		}
		if !held.Guarded || held.Path != dir.Join(name) {
			t.Errorf("%+v: want guarded, and the path", held)
		}
		if runtime.GOOS == "linux" {
			pid := strconv.Itoa(c.cmd.Process.Pid)
			if held.PID != c.cmd.Process.Pid || !held.Stopped || !strings.Contains(err.Error(), "process "+pid+", which is stopped") {
				t.Errorf("%v (%+v): want process %s, stopped", err, held, pid)
			}
		}
		return held, time.Since(began)
	}
	held, took := wait(lockfile.Config{StaleAfter: stale})
	if took < stale || held.Watched < stale {
		t.Errorf("ended after %s, %s of it watched: want %s", took, held.Watched, stale)
	}
	if since := time.Since(held.Since); since < 0 || since > time.Minute {
		t.Errorf("held since %s", held.Since)
	}
	// Who comes when the file is old already need not watch so long.
	touch(t, dir.Join(name), time.Now().Add(-2*time.Hour))
	const long = 30 * time.Second
	if _, took := wait(lockfile.Config{StaleAfter: long}); took >= long {
		t.Errorf("a late arriver waited %s, want a thirtieth of %s", took, long)
	}
	after, err := dir.Read(name, 1000)
	if err != nil || string(after.Bytes) != string(before.Bytes) || after.ID.Ino != before.ID.Ino {
		t.Errorf("the lock file was changed: %+v, %v", after, err)
	}
	c.signal(t, syscall.SIGCONT)
	for _, order := range []string{"check", "step", "release", "acquire", "check", "release"} {
		if a := c.tell(t, order); a != "ok" {
			t.Errorf("continued, told to %s: %s", order, a)
		}
	}
	mustBeFree(t, path)
}

func TestALivingHolderIsNamedToo(t *testing.T) {
	const stale = 100 * time.Millisecond
	path := t.TempDir()
	c := obedient(t, path, stale)
	if a := c.tell(t, "acquire"); a != "ok" {
		t.Fatal(a)
	}
	_, err := lockfile.Acquire(t.Context(), lockfile.Config{StaleAfter: stale}, lockfile.Request{Dir: openDir(t, durable.Disk{}, path), Name: name})
	var held *lockfile.HeldError
	if !errors.As(err, &held) || held.Stopped {
		t.Fatalf("%v, want a HeldError, not stopped", err)
	}
	if runtime.GOOS == "linux" && held.PID != c.cmd.Process.Pid {
		t.Errorf("pid %d, want %d", held.PID, c.cmd.Process.Pid)
	}
	if a := c.tell(t, "check"); a != "ok" {
		t.Error(a)
	}
}

func TestAProcessThatGaveUpLeavesNothing(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, durable.Disk{}, path)
	lock := acquire(t, dir, lockfile.Config{})
	c := obedient(t, path, 50*time.Millisecond)
	if a := c.tell(t, "acquire"); !strings.Contains(a, "is held") {
		t.Errorf("told to acquire: %s", a)
	}
	if err := lock.Check(); err != nil {
		t.Error(err)
	}
	release(t, lock)
	if _, err := os.Lstat(dir.Join(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock file: %v", err)
	}
	if a := c.tell(t, "acquire"); a != "ok" {
		t.Errorf("told to acquire again: %s", a)
	}
	if a := c.tell(t, "release"); a != "ok" {
		t.Error(a)
	}
	mustBeFree(t, path)
}
