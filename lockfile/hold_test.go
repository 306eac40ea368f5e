package lockfile_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/lockfile"
)

// sourceProgram is a program that knows only the source's three rules.
type sourceProgram struct{ path, nonce string }

// try breaks a lock file that is older than stale and tries once to get the
// lock.
func (s *sourceProgram) try(stale time.Duration) bool {
	if st, err := os.Stat(s.path); err == nil && time.Since(st.ModTime()) > stale {
		_ = os.Remove(s.path)
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	s.nonce = rand.Text()
	_, err = f.WriteString(s.nonce)
	return err == nil
}

func (s *sourceProgram) release() {
	if b, err := os.ReadFile(s.path); err == nil && string(b) == s.nonce {
		_ = os.Remove(s.path)
	}
}

func TestASourceProgramAndWeExcludeEachOther(t *testing.T) {
	dir := newDir(t)
	source := sourceProgram{path: dir.Join(name)}
	lock := acquire(t, dir, cfg)
	if source.try(time.Minute) {
		t.Error("a source program got the lock that we hold")
	}
	source.release()
	if err := lock.Check(); err != nil {
		t.Error(err)
	}
	release(t, lock)
	if !source.try(time.Minute) {
		t.Error("a source program does not get the free lock")
	}
	if lock, err := acquireAtOnce(dir, cfg); !errors.Is(err, lockfile.ErrStopped) {
		t.Errorf("while a source program holds it: %v, %v", lock, err)
	}
	source.release()
	mustBeFree(t, dir.Path())
}

// A source program breaks a slow holder after its stale time, and the holder
// must learn of it and not disturb the successor.
func TestATakeoverIsSeenByCheckAndSurvivesRelease(t *testing.T) {
	dir := newDir(t)
	source := sourceProgram{path: dir.Join(name)}
	lock := acquire(t, dir, cfg)
	touch(t, dir.Join(name), time.Now().Add(-2*time.Minute))
	if err := lock.Check(); err != nil {
		t.Errorf("before the takeover: %v", err)
	}
	if !source.try(time.Minute) {
		t.Fatal("no takeover")
	}
	if err := lock.Check(); !errors.Is(err, lockfile.ErrLost) {
		t.Errorf("after the takeover: %v, want ErrLost", err)
	}
	if !lock.Guarded() {
		t.Error("the guard is not held any more")
	}
	release(t, lock)
	if got := contentOf(t, dir.Join(name)); got != source.nonce {
		t.Errorf("the successor's lock file holds %q", got)
	}
	source.release()
	mustBeFree(t, dir.Path())
}

func TestALostLockCanBeHadAgainUnderTheKeptGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		source := sourceProgram{path: dir.Join(name)}
		lock := acquire(t, dir, cfg)
		mark := lockfile.Mark{State: lockfile.MarkSent, Fingerprint: fingerprint, At: time.Unix(1e9, 0).UTC()}
		if err := lock.SetMark(mark); err != nil {
			t.Fatal(err)
		}
		touch(t, dir.Join(name), time.Now().Add(-2*time.Minute))
		if !source.try(time.Minute) {
			t.Fatal("no takeover")
		}
		touch(t, dir.Join(name), time.Now())
		const busy = stale / 3
		go func() {
			time.Sleep(busy)
			source.release()
		}()
		began := time.Now()
		if err := lock.Again(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < busy || took > busy+slack {
			t.Errorf("had again after %s, the source program took %s", took, busy)
		}
		if err := lock.Check(); err != nil {
			t.Error(err)
		}
		if lock.Mark() != mark {
			t.Errorf("the mark is %+v, was %+v", lock.Mark(), mark)
		}
		release(t, lock)

		// One that crashed is broken by the same rule as for everybody.
		lock = acquire(t, dir, cfg)
		put(t, dir.Join(name), "crashed", time.Now().Add(-time.Hour))
		began = time.Now()
		if err := lock.Again(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < watch || took > watch+slack {
			t.Errorf("had again after %s, want %s", took, watch)
		}
		release(t, lock)

		// One that keeps it ends the wait, and the lock must still be released.
		lock = acquire(t, dir, cfg)
		put(t, dir.Join(name), "living", time.Now())
		done := make(chan struct{})
		go func() {
			for i := range 100 {
				select {
				case <-done:
					return
				case <-time.After(stale / 4):
					put(t, dir.Join(name), fmt.Sprint("living", i), time.Now())
				}
			}
		}()
		var held *lockfile.HeldError
		if err := lock.Again(t.Context()); !errors.As(err, &held) || held.Guarded {
			t.Errorf("%v, want a HeldError without guard", err)
		}
		close(done)
		release(t, lock)
		if got := contentOf(t, dir.Join(name)); !strings.HasPrefix(got, "living") {
			t.Errorf("the lock file holds %q", got)
		}
	})
}

func TestALockFileThatIsGoneOrAnotherIsLost(t *testing.T) {
	for what, meddle := range map[string]func(path string) error{
		"removed":         os.Remove,
		"empty":           func(p string) error { return os.Truncate(p, 0) },
		"of a megabyte":   func(p string) error { return os.WriteFile(p, make([]byte, 1<<20), 0o600) },
		"another's":       func(p string) error { return os.WriteFile(p, []byte(marked("another")), 0o600) },
		"ours and a line": func(p string) error { return appendTo(p, "more\n") },
	} {
		dir := newDir(t)
		lock := acquire(t, dir, cfg)
		if err := meddle(dir.Join(name)); err != nil {
			t.Fatal(err)
		}
		before, beforeErr := os.Stat(dir.Join(name))
		if err := lock.Check(); !errors.Is(err, lockfile.ErrLost) {
			t.Errorf("%s: %v, want ErrLost", what, err)
		}
		if err := lock.Release(); err != nil {
			t.Errorf("%s: releasing: %v", what, err)
		}
		if after, err := os.Stat(dir.Join(name)); beforeErr == nil && (err != nil || !os.SameFile(before, after)) {
			t.Errorf("%s: the file was removed", what)
		}
	}
}

func appendTo(path, s string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(s)
	return errors.Join(err, f.Close())
}

// Nobody of ours deletes a guard. If somebody does, the rules give this: the
// kernel lock of the old one stops nobody any more, the next one finds a
// marked lock file and breaks it, and the old holder learns it from Check.
func TestAGuardDeletedUnderItsHolderCostsItTheLock(t *testing.T) {
	dir := newDir(t)
	first := acquire(t, dir, cfg)
	if err := os.Remove(dir.Join(name + ".guard")); err != nil {
		t.Fatal(err)
	}
	if err := first.Check(); err != nil {
		t.Errorf("before anybody else came: %v", err)
	}
	second, err := acquireAtOnce(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Check(); !errors.Is(err, lockfile.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	if err := second.Check(); err != nil {
		t.Error(err)
	}
	release(t, first)
	if err := second.Check(); err != nil {
		t.Errorf("after the first one's release: %v", err)
	}
	if lock, err := acquireAtOnce(dir, cfg); !errors.Is(err, lockfile.ErrStopped) {
		t.Errorf("a third one: %v, %v", lock, err)
	}
	release(t, second)
	mustBeFree(t, dir.Path())
}

// A kernel lock on a guard that was deleted between its opening and its
// locking counts for nothing: nobody else will find that file.
func TestALockOnADeletedGuardIsNotTaken(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		path := t.TempDir()
		locks := 0
		dir := openDir(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
			if s.Op == "flock" {
				if locks++; locks == 1 {
					if err := os.Remove(s.Path); err != nil {
						t.Error(err)
					}
					if replaced {
						put(t, s.Path, "", time.Now())
					}
				}
			}
			return do()
		}}, path)
		lock := acquire(t, dir, cfg)
		if locks != 2 {
			t.Errorf("%d kernel locks were taken, want 2", locks)
		}
		other, err := openDir(t, durable.Disk{}, path).OpenKept(name + ".guard")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := other.TryLock(); err != nil || got {
			t.Errorf("the guard at the path can be locked beside ours: %v, %v", got, err)
		}
		other.Close()
		release(t, lock)
		mustBeFree(t, path)
	}
}

func TestAWaiterLooksForANewGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		first := acquire(t, dir, cfg)
		polls := 0
		second, err := lockfile.Acquire(t.Context(), cfg, lockfile.Request{Dir: dir, Name: name, Until: func() bool {
			if polls++; polls == 10 {
				if err := os.Remove(dir.Join(name + ".guard")); err != nil {
					t.Error(err)
				}
			}
			return polls > 20
		}})
		if err != nil {
			t.Fatalf("behind a guard that is gone: %v", err)
		}
		if err := first.Check(); !errors.Is(err, lockfile.ErrLost) {
			t.Errorf("the old holder: %v, want ErrLost", err)
		}
		release(t, first)
		release(t, second)
		mustBeFree(t, dir.Path())
	})
}

func TestReleasingTwiceHarmsNobody(t *testing.T) {
	dir := newDir(t)
	lock := acquire(t, dir, cfg)
	release(t, lock)
	second := acquire(t, dir, cfg)
	release(t, lock)
	if err := second.Check(); err != nil {
		t.Error(err)
	}
	release(t, second)
}

func TestTheLockAndItsGuardArePrivateAndTheGuardStays(t *testing.T) {
	dir := newDir(t)
	old := unix.Umask(0)
	defer unix.Umask(old)
	lock := acquire(t, dir, cfg)
	for _, n := range []string{name, name + ".guard"} {
		if st, err := os.Lstat(dir.Join(n)); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", n, st, err)
		}
	}
	before, err := os.Stat(dir.Join(name + ".guard"))
	if err != nil {
		t.Fatal(err)
	}
	release(t, lock)
	release(t, acquire(t, dir, cfg))
	if after, err := os.Stat(dir.Join(name + ".guard")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the guard: %v, %v", after, err)
	}
	if _, err := os.Lstat(dir.Join(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock file after the release: %v", err)
	}
}

func TestTheLockFileHoldsANonceAndWhoVouchesForIt(t *testing.T) {
	seen := map[string]bool{}
	for _, disk := range []durable.Disk{{}, noKernelLocks()} {
		dir := openDir(t, disk, t.TempDir())
		for range 3 {
			lock := acquire(t, dir, cfg)
			got := contentOf(t, dir.Join(name))
			nonce, _, _ := strings.Cut(got, "\n")
			want := marked(nonce)
			if disk.Hook != nil {
				want = nonce + "\n"
			}
			if got != want || len(nonce) < 20 || seen[nonce] {
				t.Errorf("the lock file holds %q, want %q and a new nonce", got, want)
			}
			if lock.Guarded() != (disk.Hook == nil) {
				t.Errorf("guarded: %v", lock.Guarded())
			}
			seen[nonce] = true
			if record := contentOf(t, dir.Join(name+".guard")); !strings.Contains(record, nonce) {
				t.Errorf("the guard's record %q is of another acquisition", record)
			}
			release(t, lock)
		}
	}
}

func TestTheGuardIsGivenUpOnlyAfterTheLockFileIsGone(t *testing.T) {
	path := t.TempDir()
	unlinked := false
	dir := openDir(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op == "unlink" {
			unlinked = true
			other, err := openDir(t, durable.Disk{}, path).OpenKept(name + ".guard")
			if err != nil {
				t.Error(err)
			}
			if got, err := other.TryLock(); err != nil || got {
				t.Errorf("at the unlink the guard is free: %v, %v", got, err)
			}
			other.Close()
		}
		return do()
	}}, path)
	release(t, acquire(t, dir, cfg))
	if !unlinked {
		t.Error("nothing was unlinked")
	}
}

func TestAMarkOutlivesItsHolderUntilItIsReplaced(t *testing.T) {
	dir := newDir(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("east", 3600))
	want := lockfile.Mark{}
	for _, m := range []lockfile.Mark{
		{State: lockfile.MarkSent, Fingerprint: fingerprint, At: at},
		{State: lockfile.MarkSpent, Fingerprint: "0123456789abcdef", At: at.Add(time.Hour)},
		{},
	} {
		lock := acquire(t, dir, cfg)
		if got := lock.Mark(); got != want {
			t.Errorf("the mark is %+v, want %+v", got, want)
		}
		if err := lock.SetMark(m); err != nil {
			t.Fatal(err)
		}
		if err := lock.Step(); err != nil {
			t.Fatal(err)
		}
		release(t, lock)
		want = m
		if m.State != lockfile.MarkNone {
			want.At = m.At.UTC().Truncate(time.Second)
		}
		// Holders that have nothing to say.
		release(t, acquire(t, dir, cfg))
		lock = acquire(t, dir, cfg)
		if err := lock.Again(t.Context()); err != nil {
			t.Fatal(err)
		}
		release(t, lock)
	}
	lock := acquire(t, dir, cfg)
	defer release(t, lock)
	if got := lock.Mark(); got != (lockfile.Mark{}) {
		t.Errorf("the mark is %+v, want none", got)
	}
}

func TestAMarkThatARecordCannotHoldIsRefused(t *testing.T) {
	dir := newDir(t)
	lock := acquire(t, dir, cfg)
	defer release(t, lock)
	good := lockfile.Mark{State: lockfile.MarkSpent, Fingerprint: fingerprint, At: time.Unix(1e9, 0).UTC()}
	if err := lock.SetMark(good); err != nil {
		t.Fatal(err)
	}
	before := contentOf(t, dir.Join(name+".guard"))
	for _, m := range []lockfile.Mark{
		{State: "lost", Fingerprint: fingerprint},
		{State: "none", Fingerprint: fingerprint},
		{State: lockfile.MarkSent},
		{State: lockfile.MarkSent, Fingerprint: "ba7816bf8f01cfe"},
		{State: lockfile.MarkSent, Fingerprint: "ba7816bf8f01cfeaa"},
		{State: lockfile.MarkSent, Fingerprint: "BA7816BF8F01CFEA"},
		{State: lockfile.MarkSent, Fingerprint: "ba7816bf 8f01cfe"},
		{State: lockfile.MarkSent, Fingerprint: strings.Repeat("a", 200)},
		{State: lockfile.MarkSent, Fingerprint: fingerprint, At: time.Date(12026, 1, 2, 3, 4, 5, 0, time.UTC)},
	} {
		if err := lock.SetMark(m); err == nil {
			t.Errorf("%+v was taken", m)
		}
	}
	if got := contentOf(t, dir.Join(name+".guard")); got != before || lock.Mark() != good {
		t.Errorf("the record is now %q, the mark %+v", got, lock.Mark())
	}
}

func TestADamagedRecordIsAnEmptyOneAndARecordThatCannotBeReadIsKept(t *testing.T) {
	path := t.TempDir()
	broken := false
	dir := openDir(t, durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if broken && s.Op == "read" && strings.HasSuffix(s.Path, ".guard") {
			return unix.EIO
		}
		return do()
	}}, path)
	lock := acquire(t, dir, cfg)
	mark := lockfile.Mark{State: lockfile.MarkSpent, Fingerprint: fingerprint, At: time.Unix(1e9, 0).UTC()}
	if err := lock.SetMark(mark); err != nil {
		t.Fatal(err)
	}
	release(t, lock)
	before := contentOf(t, dir.Join(name+".guard"))

	broken = true
	if lock, err := acquireAtOnce(dir, cfg); !errors.Is(err, unix.EIO) {
		t.Errorf("the record cannot be read: %v, %v", lock, err)
	}
	if got := contentOf(t, dir.Join(name+".guard")); got != before {
		t.Errorf("it was written over with %q", got)
	}
	broken = false
	lock = acquire(t, dir, cfg)
	if lock.Mark() != mark {
		t.Errorf("the mark is %+v, want %+v", lock.Mark(), mark)
	}
	release(t, lock)

	for _, damaged := range []string{"", "x", before[:80], before[:159], strings.Replace(before, "spent", "spend", 1), strings.Repeat("\x00", 192)} {
		put(t, dir.Join(name+".guard"), damaged, time.Now())
		lock := acquire(t, dir, cfg)
		if lock.Mark() != (lockfile.Mark{}) {
			t.Errorf("of a damaged record: %+v", lock.Mark())
		}
		if got := contentOf(t, dir.Join(name+".guard")); len(got) != 192 {
			t.Errorf("the new record has %d bytes", len(got))
		}
		release(t, lock)
	}
}

// balance counts a program's preparations for holding and their ends.
type balance struct{ now, most int }

func (b *balance) hold() func() {
	b.now++
	b.most = max(b.most, b.now)
	ended := false
	return func() {
		if ended {
			b.now = -1000 // called twice
		}
		ended = true
		b.now--
	}
}

func TestWhatHoldReturnsIsCalledOnceInEveryPath(t *testing.T) {
	var b balance
	cfg := lockfile.Config{StaleAfter: stale, Hold: b.hold}
	dir := newDir(t)
	lock := acquire(t, dir, cfg)
	if b.now != 1 {
		t.Errorf("while it is held: %d", b.now)
	}
	// Who waits is no holder.
	var other balance
	_, err := lockfile.Acquire(t.Context(), lockfile.Config{StaleAfter: stale, Hold: other.hold}, lockfile.Request{Dir: dir, Name: name, Until: func() bool {
		if other.now != 0 {
			t.Errorf("between two polls: %d", other.now)
		}
		return other.most > 0
	}})
	if !errors.Is(err, lockfile.ErrStopped) || other.now != 0 || other.most != 1 {
		t.Errorf("after a wait in vain: %+v, %v", other, err)
	}
	if err := lock.Again(t.Context()); err != nil || b.now != 1 {
		t.Errorf("had again: %d, %v", b.now, err)
	}
	release(t, lock)
	release(t, lock)
	if b.now != 0 {
		t.Errorf("after the release: %d", b.now)
	}
	// The guard is taken; a file of unknown origin stands in the way.
	put(t, dir.Join(name), "source", time.Now())
	if _, err := acquireAtOnce(dir, cfg); !errors.Is(err, lockfile.ErrStopped) || b.now != 0 {
		t.Errorf("behind a file: %d, %v", b.now, err)
	}
	if b.most != 1 {
		t.Errorf("%d at once", b.most)
	}
	// A program may have nothing to prepare.
	if err := os.Remove(dir.Join(name)); err != nil {
		t.Fatal(err)
	}
	release(t, acquire(t, dir, lockfile.Config{Hold: func() func() { return nil }}))
}

func TestAFaultAtAnyStepLeavesALockThatIsHadAtOnce(t *testing.T) {
	for _, kernel := range []bool{true, false} {
		var path string
		var b balance
		durabletest.Sweep(t, func(disk durable.Disk) error {
			if !kernel {
				faults := disk.Hook
				disk.Hook = func(s durable.Step, do func() error) error {
					if s.Op == "flock" {
						do = func() error { return unix.ENOLCK }
					}
					return faults(s, do)
				}
			}
			b = balance{}
			path = t.TempDir()
			dir, err := disk.OpenDir(path)
			if err != nil {
				return err
			}
			defer dir.Close()
			lock, err := lockfile.Acquire(t.Context(), lockfile.Config{Hold: b.hold}, lockfile.Request{Dir: dir, Name: name, Until: func() bool { return true }})
			if err != nil {
				return err
			}
			if lock.Guarded() != kernel {
				t.Errorf("guarded: %v", lock.Guarded())
			}
			mark := lockfile.Mark{State: lockfile.MarkSpent, Fingerprint: fingerprint, At: time.Unix(1e9, 0)}
			err = lock.SetMark(mark)
			if err == nil {
				err = lock.Check()
			}
			if err == nil {
				err = lock.Step()
			}
			if b.now != 1 {
				t.Errorf("holding: %d", b.now)
			}
			return errors.Join(err, lock.Release())
		}, func(f *durabletest.Fault, err error) {
			if f.Hit() != errors.Is(err, durabletest.ErrInjected) {
				t.Errorf("returned %v", err)
			}
			if b.now != 0 {
				t.Errorf("holding after the end: %d", b.now)
			}
			dir := openDir(t, durable.Disk{}, path)
			content, readErr := os.ReadFile(dir.Join(name))
			op := f.Step().Op
			switch {
			case f.Mode == durabletest.Crash, op == "unlink", errors.Is(err, durabletest.ErrInjected) && (op == "read" || op == "open") && f.Mode != "":
				// A lock file may stay; a release that cannot read it does not
				// know whose it is.
			case !errors.Is(readErr, fs.ErrNotExist):
				t.Errorf("the lock file %q stays (%v)", content, readErr)
			}
			if readErr == nil && (!kernel || len(content) == 0) {
				// Unmarked: only age breaks it.
				if _, err := acquireAtOnce(dir, lockfile.Config{}); !errors.Is(err, lockfile.ErrStopped) {
					t.Errorf("an unmarked file was broken early, or: %v", err)
				}
				touch(t, dir.Join(name), time.Now().Add(-time.Hour))
				release(t, acquire(t, dir, lockfile.Config{StaleAfter: 100 * time.Millisecond}))
			}
			mustBeFree(t, path)
			lock := acquire(t, dir, lockfile.Config{})
			if m := lock.Mark(); !f.Hit() && m.State != lockfile.MarkSpent || m.State != lockfile.MarkNone && m.Fingerprint != fingerprint {
				t.Errorf("the mark is %+v", m)
			}
			release(t, lock)
		})
	}
}

func TestNoPathLeaksADescriptor(t *testing.T) {
	dir := newDir(t)
	count := func() int {
		entries, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	release(t, acquire(t, dir, cfg)) // what is opened once and kept
	before := count()
	for range 20 {
		lock := acquire(t, dir, cfg)
		_, _ = acquireAtOnce(dir, cfg)
		if err := os.Remove(dir.Join(name + ".guard")); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, dir, cfg)
		release(t, second)
		release(t, lock)
		put(t, dir.Join(name), "source", time.Now())
		_, _ = acquireAtOnce(dir, cfg)
		if err := os.Remove(dir.Join(name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir.Join(name), 0o700); err != nil {
			t.Fatal(err)
		}
		_, _ = acquireAtOnce(dir, cfg)
		if err := os.Remove(dir.Join(name)); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d afterwards", before, after)
	}
}

// Whatever stands in a lock file, who has the guard breaks it at once if it
// bears this boot's mark, and else waits and leaves it as it is.
func TestOnlyTheWholeMarkOfThisBootIsBrokenAtOnce(t *testing.T) {
	m := marked("nonce")
	for content, isMarked := range map[string]bool{
		m: true, marked(""): true,
		"": false, "nonce": false, "nonce\n": false, m + "\n": false, m[:len(m)-1]: false, "\n" + m: false,
		strings.ToUpper(m): false, "n\nguarded \n": false, "\nguarded": false, m + m: false, "n\r\n" + m: false,
		strings.Repeat("n", 1<<20) + m: false,
	} {
		dir := newDir(t)
		put(t, dir.Join(name), content, time.Now())
		lock, err := acquireAtOnce(dir, cfg)
		switch {
		case isMarked && err == nil:
			if err := lock.Check(); err != nil {
				t.Error(err)
			}
			release(t, lock)
		case !isMarked && errors.Is(err, lockfile.ErrStopped):
			if contentOf(t, dir.Join(name)) != content {
				t.Errorf("%.100q was changed", content)
			}
		default:
			t.Errorf("%.100q: %v", content, err)
		}
	}
}
