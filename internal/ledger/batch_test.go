//go:build linux

package ledger_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// gate is a disk on which commits can be held up, and fail. To be used in a
// bubble, so that synctest.Wait returns when all that can happen has happened.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // commits wait while it is open
	fail string        // the operation that fails
	skip int           // times that it does not yet
}

func (g *gate) disk() durable.Disk {
	return durable.Disk{Hook: func(s durable.Step, do func() error) error {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut != nil && s.Op == "create" {
			<-shut
		}
		g.mu.Lock()
		fail := s.Op == g.fail
		if fail && g.skip > 0 {
			fail = false
			g.skip--
		}
		g.mu.Unlock()
		if fail {
			return unix.EIO
		}
		return do()
	}}
}

// close holds up the next commit. What it returns lets it go on.
func (g *gate) close() (open func()) {
	shut := make(chan struct{})
	g.mu.Lock()
	g.shut = shut
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		g.shut = nil
		g.mu.Unlock()
		close(shut)
	}
}

// failing lets an operation fail, after it went well for some more times.
func (g *gate) failing(op string, skip int) {
	g.mu.Lock()
	g.fail, g.skip = op, skip
	g.mu.Unlock()
}

// pending are requests on their way, begun one after the other.
type pending struct{ wg sync.WaitGroup }

// ask starts a request and returns once nothing more happens by itself.
func (p *pending) ask(f func() error) *error {
	err := new(error)
	p.wg.Go(func() { *err = f() })
	synctest.Wait()
	return err
}

func TestRequestsThatArriveDuringACommitShareTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		l := openOn(t, g.disk(), t.TempDir(), ledger.Config{})
		s := register(t, l, 1, 0)
		before := l.Stats()
		open := g.close()
		p := pending{}
		minting := func() error { _, err := l.Mint(never, s.ID, 0, bound(1)); return err }
		all := []*error{p.ask(minting)}
		for range 5 {
			all = append(all, p.ask(minting))
		}
		open()
		p.wg.Wait()
		for _, err := range all {
			wantError(t, "minting", *err, nil)
		}
		got := l.Stats()
		if n := got.Commits - before.Commits; n != 2 || got.Largest != 5 || got.Pending != 6 {
			t.Errorf("%d commits, %+v", n, got)
		}
	})
}

// K32: success before the directory is synced would be a lie after a power
// cut.
func TestNoAnswerComesBeforeTheLastStep(t *testing.T) {
	for _, held := range []string{"create", "write", "fsync", "rename", "fsyncdir"} {
		synctest.Test(t, func(t *testing.T) {
			var hold chan struct{}
			var mu sync.Mutex
			disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
				mu.Lock()
				c := hold
				mu.Unlock()
				if c != nil && s.Op == held {
					<-c
				}
				return do()
			}}
			l := openOn(t, disk, t.TempDir(), ledger.Config{})
			s := register(t, l, 1, 0)
			token := mint(t, l, s, 1)
			mu.Lock()
			hold = make(chan struct{})
			mu.Unlock()
			answered, again := false, false
			p := pending{}
			err := p.ask(func() error { defer func() { answered = true }(); return consumed(l, s, token) })
			// The refusal depends on the same commit.
			replay := p.ask(func() error { defer func() { again = true }(); return consumed(l, s, token) })
			if answered || again {
				t.Errorf("%s: answered before it was done: %v, %v", held, answered, again)
			}
			if l.Stats().Pending != 1 {
				t.Errorf("%s: memory is ahead of the disk", held)
			}
			wantError(t, "authenticating meanwhile", l.Authenticate(s.ID, 0), nil)
			close(hold)
			p.wg.Wait()
			wantError(t, "consuming", *err, nil)
			wantError(t, "consuming again", *replay, ledger.ErrTokenReplay)
		})
	}
}

func TestAfterAFailedCommitOnlyAnswersThatNeededItAreTakenBack(t *testing.T) {
	for _, c := range []struct {
		fails string
		kept  error // what a session is told that registers again, as it is
	}{
		{"create", nil}, {"write", nil}, {"fsync", nil},
		// The file may hold the failed state now: nothing is granted on it.
		{"rename", ledger.ErrUnavailable}, {"fsyncdir", ledger.ErrUnavailable},
	} {
		t.Run(c.fails, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g gate
				path := t.TempDir()
				l := openOn(t, g.disk(), path, ledger.Config{MaxTokens: 2})
				a, b := register(t, l, 1, 5), register(t, l, 2, 5)
				token, other := mint(t, l, a, 1), mint(t, l, b, 2)
				open := g.close()
				p := pending{}
				p.ask(func() error { _, err := l.Register(never, anchor(3), 0, 0, 0); return err }) // all wait behind it
				type asked struct {
					what string
					got  *error
					want error
				}
				var all []asked
				ask := func(what string, want error, f func() error) {
					all = append(all, asked{what, p.ask(f), want})
				}
				ask("minting where there is no room", ledger.ErrTokenCapacity, func() error {
					_, err := l.Mint(never, b.ID, 5, bound(3))
					return err
				})
				ask("consuming", ledger.ErrUnavailable, func() error { return consumed(l, a, token) })
				ask("consuming again", ledger.ErrUnavailable, func() error { return consumed(l, a, token) })
				ask("consuming what never was", ledger.ErrTokenReplay, func() error {
					return consumed(l, a, secret.New(strings.Repeat("A", 43)))
				})
				ask("minting into the room that this makes", ledger.ErrUnavailable, func() error {
					_, err := l.Mint(never, b.ID, 5, bound(3))
					return err
				})
				ask("registering higher", ledger.ErrUnavailable, func() error {
					_, err := l.Register(never, anchor(1), 0, 0, 6)
					return err
				})
				ask("registering what is lower now", ledger.ErrUnavailable, func() error {
					_, err := l.Register(never, anchor(1), 0, 0, 5)
					return err
				})
				ask("registering what always was lower", ledger.ErrGenerationStale, func() error {
					_, err := l.Register(never, anchor(1), 0, 0, 4)
					return err
				})
				ask("consuming for the generation that is over now", ledger.ErrUnavailable, func() error {
					return consumed(l, a, token)
				})
				ask("consuming for a generation to come", ledger.ErrGenerationUnknown, func() error {
					_, err := l.Consume(never, b.ID, 7, other)
					return err
				})
				ask("registering the same", c.kept, func() error {
					_, err := l.Register(never, anchor(2), 0, 0, 5)
					return err
				})
				ask("a new anchor", ledger.ErrUnavailable, func() error {
					_, err := l.Register(never, anchor(4), 0, 0, 0)
					return err
				})
				g.failing(c.fails, 1)
				open()
				p.wg.Wait()
				for _, x := range all {
					wantError(t, x.what, *x.got, x.want)
					if errors.Is(x.want, ledger.ErrUnavailable) && !errors.Is(*x.got, unix.EIO) {
						t.Errorf("%s: %v does not name the reason", x.what, *x.got)
					}
				}
				g.failing("", 0)
				wantError(t, "consuming, when the disk works again", consumed(l, a, token), nil)
				wantError(t, "consuming again", consumed(l, a, token), ledger.ErrTokenReplay)
				l = reopened(t, l, path, ledger.Config{})
				wantError(t, "consuming after a restart", consumed(l, a, token), ledger.ErrTokenReplay)
				wantError(t, "what nobody touched", consumed(l, b, other), nil)
			})
		})
	}
}

func TestOnlyWhatDoesNotFitIsRefusedInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := t.TempDir()
		l := open(t, full, ledger.Config{})
		s := register(t, l, 1, 0)
		for n := range 3 {
			mint(t, l, s, 1+n)
		}

		var g gate
		l = openOn(t, g.disk(), t.TempDir(), ledger.Config{MaxBytes: len(contentOf(t, stateFile(full)))})
		s = register(t, l, 1, 0)
		before := l.Stats().Commits
		open := g.close()
		p := pending{}
		large := bound(1)
		large.HSource, large.HPayload = strings.Repeat("x", 256), strings.Repeat("x", 256)
		minting := func(b ledger.Binding) func() error {
			return func() error { _, err := l.Mint(never, s.ID, 0, b); return err }
		}
		p.ask(minting(bound(1)))
		first, second, third := p.ask(minting(bound(2))), p.ask(minting(large)), p.ask(minting(bound(3)))
		fourth := p.ask(minting(bound(4)))
		open()
		p.wg.Wait()
		wantError(t, "the first", *first, nil)
		wantError(t, "the large one", *second, ledger.ErrTooLarge)
		wantError(t, "the one after it, which just fits", *third, nil)
		wantError(t, "one more", *fourth, ledger.ErrTooLarge)
		if n := l.Stats().Commits - before; n != 2 {
			t.Errorf("%d commits, want 2", n)
		}
	})
}

func TestABatchThatFitsInTheEndIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := t.TempDir()
		l := open(t, full, ledger.Config{})
		s := register(t, l, 1, 0)
		mint(t, l, s, 1)
		mint(t, l, s, 2)

		var g gate
		l = openOn(t, g.disk(), t.TempDir(), ledger.Config{MaxBytes: len(contentOf(t, stateFile(full)))})
		s = register(t, l, 1, 0)
		token, other := mint(t, l, s, 1), mint(t, l, s, 2)
		minting := func() error { _, err := l.Mint(never, s.ID, 0, bound(3)); return err }
		wantError(t, "minting alone", minting(), ledger.ErrTooLarge)
		wantError(t, "consuming", consumed(l, s, other), nil)
		open := g.close()
		p := pending{}
		first, second, third := p.ask(minting), p.ask(minting), p.ask(func() error { return consumed(l, s, token) })
		open()
		p.wg.Wait()
		wantError(t, "the one that all wait behind", *first, nil)
		wantError(t, "minting", *second, nil)
		wantError(t, "consuming, which makes the room", *third, nil)
	})
}

func TestADeadlineEndsTheWaitAndNotTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		l := openOn(t, g.disk(), t.TempDir(), ledger.Config{})
		s := register(t, l, 1, 0)
		begun, waiting := mint(t, l, s, 1), mint(t, l, s, 2)
		open := g.close()
		p := pending{}
		start := time.Now()
		consuming := func(token secret.Secret, took *time.Duration) func() error {
			return func() error {
				_, err := l.Consume(start.Add(time.Second), s.ID, 0, token)
				*took = time.Since(start)
				return err
			}
		}
		var first, second time.Duration
		one, two := p.ask(consuming(begun, &first)), p.ask(consuming(waiting, &second))
		time.Sleep(time.Minute)
		synctest.Wait()
		if second != time.Second || first != 0 {
			t.Errorf("answered after %v and %v, want nothing and 1s", first, second)
		}
		wantError(t, "the one that waited", *two, ledger.ErrDeadline)
		open()
		p.wg.Wait()
		wantError(t, "the one that was begun", *one, nil)
		wantError(t, "then the one that waited", consumed(l, s, waiting), nil)
		wantError(t, "then the one that was begun", consumed(l, s, begun), ledger.ErrTokenReplay)
	})
}

func TestALateRequestIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		l := openOn(t, g.disk(), t.TempDir(), ledger.Config{})
		s := register(t, l, 1, 0)
		token := mint(t, l, s, 1)
		now := time.Now()
		for what, f := range map[string]func() error{
			"registering": func() error { _, err := l.Register(now, anchor(2), 0, 0, 0); return err },
			"minting":     func() error { _, err := l.Mint(now, s.ID, 0, bound(2)); return err },
			"consuming":   func() error { _, err := l.Consume(now, s.ID, 0, token); return err },
		} {
			wantError(t, what, f(), ledger.ErrDeadline)
		}
		if got := l.Stats(); got.Pending != 1 || got.Sessions != 1 || got.Batched != 2 {
			t.Errorf("%+v", got)
		}
		wantError(t, "consuming in time", consumed(l, s, token), nil)
	})
}

// Its own timer may be late: the committer looks at the clock too. Who comes
// first is chance, so there are many tries.
func TestADeadlineIsJudgedAgainWhenABatchIsMade(t *testing.T) {
	for range chosen(2_000, 200, 50) {
		synctest.Test(t, func(t *testing.T) {
			slow := false
			disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
				if slow && s.Op == "fsyncdir" {
					slow = false
					time.Sleep(time.Second)
					return nil
				}
				return do()
			}}
			l := openOn(t, disk, memory(t), ledger.Config{})
			s := register(t, l, 1, 0)
			token := mint(t, l, s, 1)
			slow = true
			p := pending{}
			start := time.Now()
			p.ask(func() error { _, err := l.Mint(never, s.ID, 0, bound(2)); return err })
			var all []*error
			for range 20 {
				all = append(all, p.ask(func() error {
					_, err := l.Consume(start.Add(time.Second), s.ID, 0, token)
					return err
				}))
			}
			p.wg.Wait()
			for _, err := range all {
				wantError(t, "consuming", *err, ledger.ErrDeadline)
			}
			wantError(t, "consuming afterwards", consumed(l, s, token), nil)
		})
	}
}

func TestClosingFinishesWhatWasBegunAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		path := t.TempDir()
		l := openOn(t, g.disk(), path, ledger.Config{})
		s := register(t, l, 1, 0)
		begun, waiting := mint(t, l, s, 1), mint(t, l, s, 2)
		open := g.close()
		p := pending{}
		closed := false
		one := p.ask(func() error { return consumed(l, s, begun) })
		two := p.ask(func() error { return consumed(l, s, waiting) })
		p.ask(func() error { defer func() { closed = true }(); return l.Close() })
		wantError(t, "the one that waited", *two, ledger.ErrClosed)
		wantError(t, "one that comes later", consumed(l, s, waiting), ledger.ErrClosed)
		if closed {
			t.Error("closed in the middle of a commit")
		}
		dir := openDir(t, durable.Disk{}, path)
		_, err := ledger.Open(dir, ledger.Config{BootID: thisBoot})
		wantError(t, "opening meanwhile", err, ledger.ErrHeld)
		open()
		p.wg.Wait()
		wantError(t, "the one that was begun", *one, nil)
		wantError(t, "closing again", l.Close(), nil)
		for what, err := range map[string]error{
			"registering": onlyError(l.Register(never, anchor(2), 0, 0, 0)),
			"minting":     onlyError(l.Mint(never, s.ID, 0, bound(3))),
			"pruning":     l.Prune(s.ID),
		} {
			wantError(t, what, err, ledger.ErrClosed)
		}
		l = opened(t, path)
		wantError(t, "what was begun", consumed(l, s, begun), ledger.ErrTokenReplay)
		wantError(t, "what waited", consumed(l, s, waiting), nil)
	})
}

func opened(t *testing.T, path string) *ledger.Ledger { return open(t, path, ledger.Config{}) }

// onlyError drops what a call returns beside its error.
func onlyError[T any](_ T, err error) error { return err }

func TestClosingFromManySides(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	s := register(t, l, 1, 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				token, err := l.Mint(never, s.ID, 0, bound(1))
				if err == nil {
					err = consumed(l, s, token)
				}
				if err != nil {
					wantError(t, "at the end", err, ledger.ErrClosed)
					return
				}
			}
		})
		wg.Go(func() { wantError(t, "closing", l.Close(), nil) })
	}
	wg.Wait()
}
