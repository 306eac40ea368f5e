//go:build linux

package ledger_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/ledger"
)

func TestNoFaultOfTheDiskMakesATokenGoodTwice(t *testing.T) {
	var path string
	var said *bytes.Buffer
	var after *ledger.Stats
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		path, said = memory(t), &bytes.Buffer{}
		after = nil
		dir, err := disk.OpenDir(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		l, err := ledger.Open(dir, ledger.Config{BootID: thisBoot})
		if err != nil {
			return err
		}
		defer l.Close()
		failed := day(t, l, said)
		x := l.Stats()
		after = &x
		return failed
	}, func(f *durabletest.Fault, err error) {
		if after != nil && f.Hit() && after.Failed == 0 && err != nil {
			t.Errorf("%v, and no failed commit is counted", err)
		}
		if after != nil && !f.Hit() && (after.Failed != 0 || after.InDoubt || after.LastError != nil) {
			t.Errorf("%+v", after)
		}
		all := accounts(t, said)
		l := open(t, path, ledger.Config{}) // always starts again
		if names := tempsIn(t, path); len(names) > 0 {
			t.Errorf("%q are left", names)
		}
		settle(t, l, all)
		stop(t, l)
		settleNothing(t, open(t, path, ledger.Config{}), all)
	})
	if steps < 50 {
		t.Errorf("only %d steps", steps)
	}
}

// settleNothing is the look at a ledger after all was spent.
func settleNothing(t testing.TB, l *ledger.Ledger, all map[int]*account) {
	t.Helper()
	for _, a := range all {
		for token, fate := range a.tokens {
			fate.asked, fate.spent = true, true
			a.tokens[token] = fate
		}
	}
	settle(t, l, all)
}

// day is some of everything. It returns the first failure that a fault of the
// disk excuses.
func day(t *testing.T, l *ledger.Ledger, said *bytes.Buffer) error {
	t.Helper()
	try := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	a, b := &customer{l: l, n: 1, out: said}, &customer{l: l, n: 2, out: said}
	try(a.register(0))
	try(b.register(7))
	spent, err := a.mint()
	try(err)
	revoked, err := a.mint()
	try(err)
	_, err = b.mint() // to be pruned
	try(err)
	try(a.consume(spent))
	was := a.session
	try(a.register(1))
	_, err = a.mint() // to be kept
	try(err)
	if !revoked.Empty() && a.session.Generation != was.Generation {
		if _, err := l.Consume(never, a.session.ID, a.session.Generation, revoked); err == nil {
			t.Error("a token outlived its generation")
		}
	}
	try(b.prune())
	try(b.register(9))
	last, err := b.mint()
	try(err)
	try(b.consume(last))
	return l.Stats().LastError
}

// K31, with a disk that works again afterwards.
func TestAfterAFailedSyncOfTheDirectoryNothingIsLostAndNothingIsGoodTwice(t *testing.T) {
	for _, c := range []struct {
		name  string
		op    string
		done  bool // the step is done and reported as failed
		times int  // so often
	}{
		{"directory not synced", "fsyncdir", false, 1},
		{"directory synced, reported failed", "fsyncdir", true, 1},
		{"directory not synced, nor after the write-back", "fsyncdir", false, 2},
		{"rename not done", "rename", false, 1},
		{"rename done, reported failed", "rename", true, 1},
		{"rename not done, nor for the write-back", "rename", false, 2},
		{"rename done, reported failed twice", "rename", true, 2},
	} {
		for _, restart := range []bool{false, true} {
			name := c.name
			if restart {
				name += ", then a restart"
			}
			t.Run(name, func(t *testing.T) {
				path := t.TempDir()
				s := &sickDisk{}
				l := openOn(t, s.disk(), path, ledger.Config{})
				session := register(t, l, 1, 0)
				token := mint(t, l, session, 1)
				prior := contentOf(t, stateFile(path))
				s.ail(c.op, c.done, c.times)
				wantError(t, "consuming", consumed(l, session, token), ledger.ErrUnavailable)
				s.heal()
				if !l.Stats().InDoubt {
					t.Error("no doubt about the file")
				}
				writtenBack := contentOf(t, stateFile(path)) == prior
				if c.times == 1 && !writtenBack {
					t.Error("the prior state was not written back")
				}
				wantError(t, "authenticating", l.Authenticate(session.ID, 0), nil)
				if restart {
					// Both reloads are legal, and it is the file that says which.
					l = reopened(t, l, path, ledger.Config{})
					err := consumed(l, session, token)
					if want := map[bool]error{true: nil, false: ledger.ErrTokenReplay}[writtenBack]; !errors.Is(err, want) || want == nil && err != nil {
						t.Errorf("consuming: %v, want %v", err, want)
					}
				} else {
					commits := l.Stats().Commits
					wantError(t, "consuming when the disk works", consumed(l, session, token), nil)
					if n := l.Stats().Commits - commits; n != 2 {
						t.Errorf("%d commits, want the prior state and the new one", n)
					}
					if l.Stats().InDoubt {
						t.Error("still in doubt")
					}
				}
				wantError(t, "consuming again", consumed(l, session, token), ledger.ErrTokenReplay)
				l = reopened(t, l, path, ledger.Config{})
				wantError(t, "consuming after a restart", consumed(l, session, token), ledger.ErrTokenReplay)
			})
		}
	}
}

func TestWhileInDoubtNothingIsGrantedThatIsNotMadeSure(t *testing.T) {
	path := t.TempDir()
	s := &sickDisk{}
	l := openOn(t, s.disk(), path, ledger.Config{MaxSessions: 2})
	session, other := register(t, l, 1, 5), register(t, l, 2, 5)
	token, bystander := mint(t, l, session, 1), mint(t, l, other, 2)
	s.ail("fsyncdir", false, 1<<30)
	wantError(t, "the first", consumed(l, session, token), ledger.ErrUnavailable)
	for range 3 {
		wantError(t, "consuming", consumed(l, other, bystander), ledger.ErrUnavailable)
		wantError(t, "minting", onlyError(l.Mint(never, other.ID, 5, bound(3))), ledger.ErrUnavailable)
		wantError(t, "registering higher", onlyError(l.Register(never, anchor(2), 0, 0, 6)), ledger.ErrUnavailable)
		wantError(t, "registering the same", onlyError(l.Register(never, anchor(2), 0, 0, 5)), ledger.ErrUnavailable)
		wantError(t, "pruning", l.Prune(other.ID), ledger.ErrUnavailable)
		// What would be refused in any case is.
		wantError(t, "registering lower", onlyError(l.Register(never, anchor(2), 0, 0, 4)), ledger.ErrGenerationStale)
		wantError(t, "another session's token", consumed(l, other, token), ledger.ErrTokenReplay)
		wantError(t, "no room", onlyError(l.Register(never, anchor(3), 0, 0, 0)), ledger.ErrSessionCapacity)
		wantError(t, "authenticating", l.Authenticate(other.ID, 5), nil)
	}
	s.heal()
	register(t, l, 2, 5)
	if l.Stats().InDoubt {
		t.Error("granted while in doubt")
	}
	wantError(t, "consuming", consumed(l, other, bystander), nil)
	wantError(t, "consuming", consumed(l, session, token), nil)
}

// A restore that works and a commit that then fails before its rename leave
// the prior state, and no doubt.
func TestDoubtEndsWithTheRestore(t *testing.T) {
	s := &sickDisk{}
	l := openOn(t, s.disk(), t.TempDir(), ledger.Config{})
	session := register(t, l, 1, 0)
	token := mint(t, l, session, 1)
	s.ail("fsyncdir", false, 2)
	wantError(t, "the first", consumed(l, session, token), ledger.ErrUnavailable)
	s.heal()
	s.later("write", 1)
	wantError(t, "the second", consumed(l, session, token), ledger.ErrUnavailable)
	if l.Stats().InDoubt {
		t.Error("in doubt after the prior state was committed")
	}
	s.heal()
	commits := l.Stats().Commits
	wantError(t, "the third", consumed(l, session, token), nil)
	if n := l.Stats().Commits - commits; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
}

// Whoever closes it then knows that the file may grant what was not answered.
func TestClosingInDoubtSaysSo(t *testing.T) {
	s := &sickDisk{}
	l := openOn(t, s.disk(), t.TempDir(), ledger.Config{})
	session := register(t, l, 1, 0)
	token := mint(t, l, session, 1)
	s.ail("fsyncdir", false, 2)
	wantError(t, "consuming", consumed(l, session, token), ledger.ErrUnavailable)
	wantError(t, "closing", l.Close(), ledger.ErrUnavailable)
	wantError(t, "closing again", l.Close(), ledger.ErrUnavailable)
}

func TestAFailureBeforeTheRenameLeavesNoTrace(t *testing.T) {
	for _, op := range []string{"create", "write", "fsync"} {
		path := t.TempDir()
		s := &sickDisk{}
		l := openOn(t, s.disk(), path, ledger.Config{})
		session := register(t, l, 1, 0)
		token := mint(t, l, session, 1)
		before, err := durable.LookAt(stateFile(path))
		must(t, err)
		s.ail(op, false, 3)
		for range 3 {
			wantError(t, op, consumed(l, session, token), ledger.ErrUnavailable)
			// The disk was asked once: there was nothing to write back.
		}
		if after, err := durable.LookAt(stateFile(path)); err != nil || after != before {
			t.Errorf("%s: %+v, then %+v, %v", op, before, after, err)
		}
		if names := tempsIn(t, path); len(names) > 0 {
			t.Errorf("%s: %q are left", op, names)
		}
		if got := l.Stats(); got.InDoubt || got.Failed != 3 || !errors.Is(got.LastError, unix.EIO) {
			t.Errorf("%s: %+v", op, got)
		}
		wantError(t, op+", afterwards", consumed(l, session, token), nil)
	}
}

func TestAForeignerInThePlaceOfTheFileIsNotReplaced(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	session := register(t, l, 1, 0)
	token := mint(t, l, session, 1)
	must(t, unix.Rename(stateFile(path), stateFile(path)+".away"))
	must(t, unix.Mkfifo(stateFile(path), 0o600))
	for range 2 {
		err := consumed(l, session, token)
		wantError(t, "consuming", err, ledger.ErrUnavailable)
		if !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%v", err)
		}
	}
	must(t, unix.Unlink(stateFile(path)))
	wantError(t, "consuming afterwards", consumed(l, session, token), nil)
	l = reopened(t, l, path, ledger.Config{})
	wantError(t, "consuming again", consumed(l, session, token), ledger.ErrTokenReplay)
}

// sickDisk fails one operation for some times.
type sickDisk struct {
	mu   sync.Mutex
	op   string
	done bool
	skip int
	left int
}

func (s *sickDisk) ail(op string, done bool, times int) {
	s.mu.Lock()
	s.op, s.done, s.skip, s.left = op, done, 0, times
	s.mu.Unlock()
}

// later fails an operation once, after it went well for some times.
func (s *sickDisk) later(op string, skip int) {
	s.ail(op, false, 1)
	s.mu.Lock()
	s.skip = skip
	s.mu.Unlock()
}

func (s *sickDisk) heal() { s.ail("", false, 0) }

func (s *sickDisk) disk() durable.Disk {
	return durable.Disk{Hook: func(step durable.Step, do func() error) error {
		s.mu.Lock()
		hit := step.Op == s.op && s.left > 0
		if hit && s.skip > 0 {
			s.skip--
			hit = false
		}
		if hit {
			s.left--
		}
		done := s.done
		s.mu.Unlock()
		if !hit {
			return do()
		}
		if done {
			_ = do()
		}
		return unix.EIO
	}}
}
