package durable_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// long is a wait that only a missed ring lasts out.
const long = 20 * time.Second

func bellDir(t *testing.T) *durable.Dir {
	t.Helper()
	dir, err := durable.Disk{}.MakeDir(filepath.Join(t.TempDir(), "locks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	return dir
}

func hear(t *testing.T, dir *durable.Dir) *durable.Bell {
	t.Helper()
	b, err := dir.HearBell("x.bell")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Ring)
	return b
}

// mustWake fails if the wait was ended by its time.
func mustWake(ctx context.Context, t *testing.T, b *durable.Bell) {
	t.Helper()
	began := time.Now()
	if err := b.Wait(ctx, long); err != nil {
		t.Fatal(err)
	}
	if time.Since(began) >= long {
		t.Error("nothing woke the waiter")
	}
}

func TestARingWakesAllWhoHearIt(t *testing.T) {
	dir := bellDir(t)
	early := hear(t, dir) // before the bell hangs
	holder, err := dir.HangBell("x.bell")
	if err != nil {
		t.Fatal(err)
	}
	late := hear(t, dir)
	woken := make(chan error, 2)
	for _, b := range []*durable.Bell{early, late} {
		go func() { woken <- b.Wait(t.Context(), long) }()
	}
	began := time.Now()
	holder.Ring()
	holder.Ring()
	for range 2 {
		if err := <-woken; err != nil {
			t.Error(err)
		}
	}
	if time.Since(began) >= long {
		t.Error("nobody was woken")
	}
}

func TestTheDeathOfAHolderRings(t *testing.T) {
	dir := bellDir(t)
	b := hear(t, dir)
	// A process of its own that holds the other end, until it is killed.
	holder := exec.Command("sh", "-c", `exec 9<>"$0"; echo; read -r _`, dir.Join("x.bell"))
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{})
	go func() { defer close(woken); mustWake(t.Context(), t, b) }()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-woken
	_ = holder.Wait()
}

func TestAWaitForABellEndsWithItsContextAndItsTime(t *testing.T) {
	dir := bellDir(t)
	holder, err := dir.HangBell("x.bell")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Ring()
	b := hear(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	mustWake(ctx, t, b)
	if err := b.Wait(t.Context(), time.Millisecond); err != nil {
		t.Error(err)
	}
}

// A bell that has rung would ring on: who goes on waiting must not spin.
func TestAfterARingAWaiterLooksNowAndThen(t *testing.T) {
	dir := bellDir(t)
	holder, err := dir.HangBell("x.bell")
	if err != nil {
		t.Fatal(err)
	}
	b := hear(t, dir)
	holder.Ring()
	mustWake(t.Context(), t, b)
	began := time.Now()
	for range 10 {
		if err := b.Wait(t.Context(), long); err != nil {
			t.Fatal(err)
		}
	}
	if time.Since(began) < 10*time.Millisecond {
		t.Error("ten waits returned at once")
	}
	// The next one who hangs it is heard again.
	next, err := dir.HangBell("x.bell")
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{})
	go func() { defer close(woken); mustWake(t.Context(), t, b) }()
	next.Ring()
	<-woken
}

func TestWhatIsNoBellIsNotHeard(t *testing.T) {
	dir := bellDir(t)
	for name, place := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/dev/null", path) },
	} {
		if err := place(dir.Join(name)); err != nil {
			t.Fatal(err)
		}
		if b, err := dir.HearBell(name); err == nil {
			b.Ring()
			t.Errorf("a %s is heard", name)
		}
		if b, err := dir.HangBell(name); err == nil {
			b.Ring()
			t.Errorf("a %s is hung", name)
		}
	}
	info, err := os.Lstat(hearPath(t, dir))
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("%v, %v", info, err)
	}
}

func hearPath(t *testing.T, dir *durable.Dir) string {
	t.Helper()
	hear(t, dir)
	return dir.Join("x.bell")
}
