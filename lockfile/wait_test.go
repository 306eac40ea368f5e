package lockfile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

// In these tests the clock is a bubble's. The files' times are not, unless a
// test writes them, so each does where an age matters.

// slack is what polling may add to a bound.
const slack = 20 * time.Millisecond

// A tenth of the times that hold in the program: a poll of 8 ms costs as much
// in a bubble as elsewhere.
const (
	stale    = lockfile.DefaultStaleAfter / 10
	watch    = stale / 30
	backstop = 2 * stale
)

var cfg = lockfile.Config{StaleAfter: stale}

// held runs f in a bubble with a lock that this process holds, made at the
// bubble's present.
func held(t *testing.T, f func(t *testing.T, dir *durable.Dir, holder *lockfile.Lock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		holder := acquire(t, dir, cfg)
		touch(t, dir.Join(name), time.Now())
		f(t, dir, holder)
		release(t, holder)
		mustBeFree(t, dir.Path())
	})
}

// wants runs an acquisition that must end with a HeldError, and asserts how
// long it took.
func wantHeld(t *testing.T, req lockfile.Request, want time.Duration) *lockfile.HeldError {
	t.Helper()
	began := time.Now()
	lock, err := lockfile.Acquire(t.Context(), cfg, req)
	var held *lockfile.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("%v, %v, want a HeldError", lock, err)
	}
	if !errors.Is(err, lockfile.ErrNotObtained) {
		t.Error("the error is not ErrNotObtained")
	}
	if took := time.Since(began); took < want || took > want+slack {
		t.Errorf("the wait took %s, want %s (%v)", took, want, err)
	}
	return held
}

func TestAWaitBehindOneStepOfALivingHolderEndsAfterStaleAfter(t *testing.T) {
	held(t, func(t *testing.T, dir *durable.Dir, holder *lockfile.Lock) {
		before := contentOf(t, dir.Join(name))
		made := time.Now()
		e := wantHeld(t, lockfile.Request{Dir: dir, Name: name}, stale)
		if !e.Guarded || !e.Since.Equal(made) || e.Watched < stale {
			t.Errorf("%+v, want guarded, held since %s", e, made)
		}
		if runtime.GOOS == "linux" && (e.PID != os.Getpid() || e.Stopped) {
			t.Errorf("%+v, want pid %d, not stopped", e, os.Getpid())
		}
		if got := contentOf(t, dir.Join(name)); got != before {
			t.Errorf("the lock file now holds %q", got)
		}
		if err := holder.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestAStepOfTheHolderStartsTheTimeAnew(t *testing.T) {
	for what, step := range map[string]func(*lockfile.Lock) error{
		"step": (*lockfile.Lock).Step,
		"mark": func(l *lockfile.Lock) error {
			return l.SetMark(lockfile.Mark{State: lockfile.MarkSent, Fingerprint: fingerprint, At: time.Now()})
		},
	} {
		t.Run(what, func(t *testing.T) {
			held(t, func(t *testing.T, dir *durable.Dir, holder *lockfile.Lock) {
				go func() {
					<-time.After(stale - time.Second)
					if err := step(holder); err != nil {
						t.Error(err)
					}
				}()
				wantHeld(t, lockfile.Request{Dir: dir, Name: name}, stale-time.Second+stale)
			})
		})
	}
}

func TestTheBackstopEndsAWaitBehindALivelyHolder(t *testing.T) {
	for _, patient := range []bool{false, true} {
		held(t, func(t *testing.T, dir *durable.Dir, holder *lockfile.Lock) {
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ctx.Err() == nil {
					<-time.After(stale / 6)
					if err := holder.Step(); err != nil {
						t.Error(err)
					}
				}
			}()
			wantHeld(t, lockfile.Request{Dir: dir, Name: name, Patient: patient}, backstop)
			stop()
			<-done
		})
	}
}

func TestAPatientWaitEndsOnlyAtTheBackstop(t *testing.T) {
	held(t, func(t *testing.T, dir *durable.Dir, _ *lockfile.Lock) {
		touch(t, dir.Join(name), time.Now().Add(-time.Hour))
		wantHeld(t, lockfile.Request{Dir: dir, Name: name, Patient: true}, backstop)
	})
}

// Source programs may break and make the lock file again and again: the
// stopped holder of the guard makes no step all the same.
func TestChangesOfTheLockFileAreNoStepsOfTheGuardsHolder(t *testing.T) {
	held(t, func(t *testing.T, dir *durable.Dir, _ *lockfile.Lock) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				put(t, dir.Join(name), fmt.Sprint("source", i), time.Now())
				<-time.After(stale / 12)
			}
		}()
		wantHeld(t, lockfile.Request{Dir: dir, Name: name}, stale)
		stop()
		<-done
		if err := os.Remove(dir.Join(name)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALateArriverWatchesAMarkedFileOnlyForTheWatchingTime(t *testing.T) {
	for _, c := range []struct {
		what    string
		age     time.Duration
		content string // of the lock file, "" for the holder's own
		meddle  func(dir *durable.Dir, holder *lockfile.Lock) error
		want    time.Duration
	}{
		{what: "older than StaleAfter", age: stale + watch, want: watch},
		{what: "hours old", age: 9 * time.Hour, want: watch},
		{what: "younger", age: stale - watch, want: stale},
		{what: "from the future", age: -4 * time.Hour, want: stale},
		{what: "old and unmarked", age: 9 * time.Hour, content: "source\n", want: stale},
		{what: "old, with another boot's mark", age: 9 * time.Hour, content: "n\nguarded 0d3c1b50-0000-4000-8000-000000000000\n", want: stale},
		{what: "old, and the holder steps", age: 9 * time.Hour, want: watch/2 + stale, meddle: func(_ *durable.Dir, holder *lockfile.Lock) error {
			return holder.Step()
		}},
		{what: "old, and changed meanwhile", age: 9 * time.Hour, want: stale, meddle: func(dir *durable.Dir, _ *lockfile.Lock) error {
			return os.WriteFile(dir.Join(name), []byte(marked("another")), 0o600)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := newDir(t)
				holder := acquire(t, dir, cfg)
				if c.content != "" {
					put(t, dir.Join(name), c.content, time.Now())
				}
				touch(t, dir.Join(name), time.Now().Add(-c.age))
				if c.meddle != nil {
					go func() {
						time.Sleep(watch / 2)
						if err := c.meddle(dir, holder); err != nil {
							t.Error(err)
						}
					}()
				}
				wantHeld(t, lockfile.Request{Dir: dir, Name: name}, c.want)
				release(t, holder)
			})
		})
	}
}

// unmarked are lock files that nobody vouches for, and what it costs to get
// past them: the age is not enough, they are watched too.
var unmarked = []struct {
	what    string
	content string
	age     time.Duration
	want    time.Duration
}{
	{"fresh", "source", 0, stale},
	{"almost old", "source", stale - 5*watch, 5 * watch},
	{"so young that the watch ends it", "source", stale - watch/2, watch},
	{"old, of a source program that crashed", "6b2f2f5e-7d0c-4a57-9f0e-0d5d3a8d2f11", stale + watch, watch},
	{"hours old", "source", 9 * time.Hour, watch},
	{"empty and fresh", "", 0, stale},
	{"empty and old", "", 9 * time.Hour, watch},
	{"with another boot's mark", "n\nguarded 0d3c1b50-0000-4000-8000-000000000000\n", 9 * time.Hour, watch},
	{"with half a mark", "n\nguarded ", 9 * time.Hour, watch},
	{"of a megabyte", strings.Repeat("x", 1<<20), 9 * time.Hour, watch},
	{"of a megabyte, fresh", strings.Repeat("x", 1<<20), 0, stale},
	{"four hours ahead", "source", -4 * time.Hour, stale},
	{"a little ahead", "source", -stale / 2, stale},
}

func TestAnUnmarkedLockFileIsBrokenByAgeAndWatching(t *testing.T) {
	for _, disk := range []struct {
		what string
		durable.Disk
	}{{"with kernel locks", durable.Disk{}}, {"without kernel locks", noKernelLocks()}} {
		cases := unmarked
		if disk.Hook != nil {
			// A mark vouches for nothing to whom the kernel grants no lock.
			cases = append(cases, struct {
				what    string
				content string
				age     time.Duration
				want    time.Duration
			}{"marked", marked("n"), 9 * time.Hour, watch})
		}
		for _, c := range cases {
			t.Run(disk.what+"/"+c.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dir := openDir(t, disk.Disk, t.TempDir())
					put(t, dir.Join(name), c.content, time.Now().Add(-c.age))
					began := time.Now()
					lock := acquire(t, dir, cfg)
					if took := time.Since(began); took < c.want || took > c.want+slack {
						t.Errorf("recovery took %s, want %s", took, c.want)
					}
					if got := contentOf(t, dir.Join(name)); got == c.content {
						t.Error("the old file still stands")
					}
					if err := lock.Check(); err != nil {
						t.Error(err)
					}
					release(t, lock)
				})
			})
		}
	}
}

func TestAMarkedLockFileBehindAFreeGuardIsBrokenAtOnce(t *testing.T) {
	for _, age := range []time.Duration{0, 9 * time.Hour, -4 * time.Hour} {
		dir := newDir(t)
		put(t, dir.Join(name), marked("its maker is dead"), time.Now().Add(-age))
		mustBeFree(t, dir.Path())
	}
}

func TestAChangeStartsTheWatchAnew(t *testing.T) {
	for what, meddle := range map[string]func(t *testing.T, path string){
		"other content": func(t *testing.T, path string) { put(t, path, "another", time.Now().Add(-time.Hour)) },
		"another file of the same content": func(t *testing.T, path string) {
			if err := os.Rename(path, path+".away"); err != nil {
				t.Error(err)
			}
			put(t, path, "source", time.Now().Add(-time.Hour))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := newDir(t)
				put(t, dir.Join(name), "source", time.Now().Add(-time.Hour))
				go func() {
					time.Sleep(watch / 2)
					meddle(t, dir.Join(name))
				}()
				began := time.Now()
				lock := acquire(t, dir, cfg)
				if took, want := time.Since(began), watch/2+watch; took < want || took > want+slack {
					t.Errorf("recovery took %s, want %s", took, want)
				}
				release(t, lock)
			})
		})
	}
}

// The file may change between the last look and the unlink; the second look
// leaves that window as small as can be.
func TestAFileThatChangedRightBeforeTheBreakIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir()
		dir := openDir(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
			err := do()
			if s.Op == "read" && filepath.Base(s.Path) == name {
				if contentOf(t, s.Path) == "source" && time.Since(epoch()) >= watch {
					// A living program takes over, right after the look that would do.
					if e := os.Remove(s.Path); e != nil {
						t.Error(e)
					}
					put(t, s.Path, "living", time.Now())
				}
			}
			return err
		}}, path)
		put(t, dir.Join(name), "source", time.Now().Add(-time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), stale/2)
		defer cancel()
		if lock, err := lockfile.Acquire(ctx, cfg, lockfile.Request{Dir: dir, Name: name}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, %v", lock, err)
		}
		if got := contentOf(t, dir.Join(name)); got != "living" {
			t.Errorf("the living program's file holds %q", got)
		}
	})
}

// epoch is when every bubble's clock begins.
func epoch() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestALockFileThatMayNotBeReadIsBrokenByAge(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{0: stale, time.Hour: watch} {
		synctest.Test(t, func(t *testing.T) {
			denied := true
			dir := openDir(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
				if denied && s.Op == "open" && filepath.Base(s.Path) == name {
					return unix.EACCES
				}
				if s.Op == "unlink" {
					denied = false
				}
				return do()
			}}, t.TempDir())
			put(t, dir.Join(name), "", time.Now().Add(-age))
			began := time.Now()
			lock := acquire(t, dir, cfg)
			if took := time.Since(began); took < want || took > want+slack {
				t.Errorf("recovery took %s, want %s", took, want)
			}
			release(t, lock)
		})
	}
}

// Who has the guard and waits out somebody else's file is awake and says so:
// those behind it time one step, not a queue.
func TestAHolderOfTheGuardThatWaitsForAFileShowsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		put(t, dir.Join(name), "source", time.Now())
		first := make(chan *lockfile.Lock, 1)
		go func() { first <- acquire(t, dir, cfg) }()
		synctest.Wait() // it has the guard
		second := make(chan *lockfile.Lock, 1)
		go func() { second <- acquire(t, dir, cfg) }()
		lock := <-first
		time.Sleep(stale / 2)
		release(t, lock)
		release(t, <-second)
	})
}

func TestTimeThatWasNotWatchedCountsOnlyInPart(t *testing.T) {
	t.Run("behind a guard", func(t *testing.T) {
		held(t, func(t *testing.T, dir *durable.Dir, _ *lockfile.Lock) {
			polls := 0
			_, err := lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name, Until: func() bool {
				polls++
				<-time.After(time.Hour) // stopped, or the machine slept
				return false
			}})
			var held *lockfile.HeldError
			if !errors.As(err, &held) {
				t.Fatal(err)
			}
			if want := int(stale / (watch / 2)); polls < want {
				t.Errorf("given up after %d looks an hour apart, want %d", polls, want)
			}
		})
	})
	t.Run("behind a file", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := newDir(t)
			put(t, dir.Join(name), "source", time.Now().Add(-time.Second))
			polls := 0
			lock, err := lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name, Until: func() bool {
				polls++
				time.Sleep(time.Hour)
				return false
			}})
			if err != nil {
				t.Fatal(err)
			}
			if polls < 2 {
				t.Errorf("broken after %d looks: a holder that slept with us had no chance", polls+1)
			}
			release(t, lock)
		})
	})
}

func TestAWaitEndsWithItsContextAndWithItsCondition(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		what   string
		want   error
		behind func(t *testing.T, dir *durable.Dir)
	}{
		{"guard", nil, func(t *testing.T, dir *durable.Dir) {
			holder := acquire(t, dir, cfg)
			t.Cleanup(func() { release(t, holder) })
		}},
		{"file", nil, func(t *testing.T, dir *durable.Dir) { put(t, dir.Join(name), "source", time.Now()) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := newDir(t)
				c.behind(t, dir)
				before := contentOf(t, dir.Join(name))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				began := time.Now()
				_, err := lockfile.Acquire(ctx, cfg, lockfile.Request{Dir: dir, Name: name, Patient: true})
				if !errors.Is(err, cause) || errors.Is(err, lockfile.ErrNotObtained) {
					t.Errorf("%v, want the context's cause", err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("the wait took %s after it was cancelled at 1s", took)
				}
				began = time.Now()
				_, err = lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name, Until: func() bool {
					return time.Since(began) > time.Second
				}})
				if !errors.Is(err, lockfile.ErrStopped) {
					t.Errorf("%v, want ErrStopped", err)
				}
				if took := time.Since(began); took > time.Second+slack {
					t.Errorf("the wait took %s", took)
				}
				if got := contentOf(t, dir.Join(name)); got != before {
					t.Errorf("the lock file now holds %q", got)
				}
			})
		})
	}
}

func TestPollsAreShortAtFirstAndNeverLong(t *testing.T) {
	for _, brief := range []bool{false, true} {
		held(t, func(t *testing.T, dir *durable.Dir, holder *lockfile.Lock) {
			began, last, late := time.Now(), time.Now(), 0
			_, _ = lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name, Brief: brief, Until: func() bool {
				waited, pause := time.Since(began), time.Since(last)
				last = time.Now()
				if waited == 0 {
					return false
				}
				longest := 8 * time.Millisecond
				if brief && waited < time.Second || waited < 8*time.Millisecond {
					longest = 2 * time.Millisecond
				}
				if pause < time.Millisecond || pause > longest {
					t.Errorf("brief %v: a pause of %s after %s, want 1ms to %s", brief, pause, waited, longest)
				}
				if waited > 2*time.Second {
					late++
				}
				return waited > 3*time.Second
			}})
			if late > 400 {
				t.Errorf("brief %v: %d polls in a second long after the last change", brief, late)
			}
			// A brief lock that moves again is polled fast again.
			if brief {
				polls := 0
				from := time.Now()
				_, _ = lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name, Brief: brief, Until: func() bool {
					if polls++; polls%100 == 0 {
						if err := holder.Step(); err != nil {
							t.Error(err)
						}
					}
					return time.Since(from) > 3*time.Second
				}})
				if polls < 1500 {
					t.Errorf("%d polls in 3s behind a brief lock that moves", polls)
				}
			}
		})
	}
}

// A plain poll of 25 ms left contenders without the lock for whole runs. Here
// each of 8 wants it again almost as soon as it has released it, so that the
// lock is free for a twentieth of the time, and only polling decides who is
// next.
func TestPollingStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir()
		until := time.Now().Add(4 * time.Second)
		served := make([]int, 8)
		var all sync.WaitGroup
		for i := range served {
			dir := openDir(t, durable.Disk{}, path)
			all.Go(func() {
				for time.Now().Before(until) {
					lock, err := lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					served[i]++
					release(t, lock)
					time.Sleep(60 * time.Microsecond)
				}
			})
		}
		all.Wait()
		t.Logf("served %v", served)
		if 3*slices.Min(served) < slices.Max(served) {
			t.Errorf("served %v: the least has less than a third of the best", served)
		}
	})
}

func TestWhatIsNoRegularFileEndsTheWaitAtOnceAndStays(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"link":          func(p string) error { return os.Symlink("target", p) },
		"dangling link": func(p string) error { return os.Symlink("nowhere", p) },
		"fifo":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory":     func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		for _, place := range []string{name, name + ".guard"} {
			for _, living := range []bool{false, true} {
				if living && place != name {
					continue
				}
				dir := newDir(t)
				if err := os.WriteFile(dir.Join("target"), []byte("content"), 0o600); err != nil {
					t.Fatal(err)
				}
				var holder *lockfile.Lock
				if living {
					holder = acquire(t, dir, cfg)
					if err := os.Remove(dir.Join(name)); err != nil {
						t.Fatal(err)
					}
				}
				if err := put(dir.Join(place)); err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(dir.Join(place))
				if err != nil {
					t.Fatal(err)
				}
				lock, err := acquireAtOnce(dir, cfg)
				if !errors.Is(err, lockfile.ErrNotObtained) || !errors.Is(err, durable.ErrNotRegular) || !strings.Contains(err.Error(), dir.Join(place)) {
					t.Errorf("%s as %s (living holder: %v): %v, %v", what, place, living, lock, err)
				}
				if living {
					if err := holder.Check(); !errors.Is(err, lockfile.ErrNotObtained) {
						t.Errorf("the holder's check of a %s: %v", what, err)
					}
					if err := holder.Release(); !errors.Is(err, lockfile.ErrNotObtained) {
						t.Errorf("the holder's release of a %s: %v", what, err)
					}
				}
				after, err := os.Lstat(dir.Join(place))
				if err != nil || !os.SameFile(before, after) {
					t.Errorf("%s as %s: %v", what, place, err)
				}
				if got := contentOf(t, dir.Join("target")); got != "content" {
					t.Errorf("the link's target holds %q", got)
				}
				if _, err := os.Lstat(dir.Join("nowhere")); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the dangling link's target: %v", err)
				}
			}
		}
	}
}

func TestALockOrGuardOfAnotherUserIsRefusedAtOnceAndStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for _, place := range []string{name, name + ".guard"} {
		dir := newDir(t)
		put(t, dir.Join(place), "", time.Now().Add(-time.Hour))
		if err := os.Chown(dir.Join(place), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if lock, err := acquireAtOnce(dir, cfg); !errors.Is(err, durable.ErrUnsafe) {
			t.Errorf("%s: %v, %v, want ErrUnsafe", place, lock, err)
		}
		if _, err := os.Lstat(dir.Join(place)); err != nil {
			t.Error(err)
		}
	}
}

func TestAHeldErrorSaysWhatToDo(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		e    lockfile.HeldError
		want []string
	}{
		{lockfile.HeldError{Path: "/p", Since: since, PID: 12, Stopped: true, Guarded: true}, []string{"/p", "since 2026-01-02T03:04:05Z", "process 12", "stopped", "kill -CONT 12"}},
		{lockfile.HeldError{Path: "/p", PID: 12, Watched: time.Minute, Guarded: true}, []string{"/p", "process 12", "1m0s"}},
		{lockfile.HeldError{Path: "/p", Watched: time.Minute, Guarded: true}, []string{"/p", "living process", "1m0s"}},
		{lockfile.HeldError{Path: "/p", Since: since, Watched: time.Minute}, []string{"/p", "since 2026-01-02T03:04:05Z", "1m0s"}},
		{lockfile.HeldError{Path: "/p", Since: time.Now().Add(time.Hour)}, []string{"future", "clock"}},
	} {
		for _, want := range c.want {
			if got := c.e.Error(); !strings.Contains(got, want) {
				t.Errorf("%q does not say %q", got, want)
			}
		}
	}
}
