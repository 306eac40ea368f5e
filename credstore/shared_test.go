package credstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/lockfile"
)

func TestASharedTargetIsRefreshedOnceForAllMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSharedMemory()
		machine := fleetOf(t, m)
		signIn(t, machine())
		answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
			return (&authority{}).rotated(n), nil
		})
		a := &authority{answer: answer}
		results := make(chan error, 8)
		for range cap(results) {
			src := sourceOf(t, machine(), box, a)
			go func() {
				got, err := get(src, credstore.Request{})
				if err == nil && got != "A-new-1" {
					err = errors.New("got " + got)
				}
				results <- err
			}()
		}
		<-arrived
		synctest.Wait()
		close(proceed)
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		mustHaveSent(t, a, "R")
	})
}

func TestAChangeOfASharedTargetIsMadeAnewWhenItsGroundMoves(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	first, second := machine(), machine()
	signIn(t, first)
	if err := second.SetStatic(t.Context(), box, credstore.NewSecret("S")); err != nil {
		t.Fatal(err)
	}
	m.set(func() {
		m.put = firstCalls(1, func(do func() error) error {
			m.set(func() { m.put = nil })
			if err := first.SetStatic(t.Context(), box, credstore.NewSecret("first")); err != nil {
				return err
			}
			return do()
		})
	})
	if err := second.SetStatic(t.Context(), box, credstore.NewSecret("second")); err != nil {
		t.Fatal(err)
	}
	mustGive(t, sourceOf(t, first, box, &authority{}), credstore.Request{}, "second")
}

// What came back was paid for: the commit goes on until it is known to be
// done, whichever of its answers were lost.
func TestACommitToASharedStoreOutlivesAnswersThatAreLost(t *testing.T) {
	for name, first := range map[string]func(func() error) error{"done": unheard, "not done": unreached} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newSharedMemory()
				machine := fleetOf(t, m)
				signIn(t, machine())
				a := &authority{}
				a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
					m.set(func() { m.put = firstCalls(30, first) })
					return a.rotated(n), nil
				}
				mustGive(t, sourceOf(t, machine(), box, a), credstore.Request{}, "A-new-1")
				mustHaveSent(t, a, "R")
				mustGive(t, sourceOf(t, machine(), box, a), credstore.Request{}, "A-new-1")
				mustHaveSent(t, a, "R")
			})
		})
	}
}

// The bound: once twice StaleAfter, not for each of the attempts.
func TestACommitToASharedStoreThatStaysAwayEndsInTime(t *testing.T) {
	for name, cut := range map[string]func(m *sharedMemory){
		"nothing answers":   func(m *sharedMemory) { m.get, m.put = unreached, unreached },
		"no write is taken": func(m *sharedMemory) { m.put = unreached },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const staleAfter = time.Minute
				m := newSharedMemory()
				machine := fleetOf(t, m)
				signIn(t, machine())
				a := &authority{}
				a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
					m.set(func() { cut(m) })
					return a.rotated(n), nil
				}
				src := sourceOf(t, machine(func(c *credstore.Config) { c.StaleAfter = staleAfter }), box, a)
				start := time.Now()
				got, err := src.Get(t.Context(), credstore.Request{})
				took := time.Since(start)
				if got.AccessToken.Reveal() != "A-new-1" || !errors.Is(err, credstore.ErrNotSaved) {
					t.Errorf("got %q, %v", got.AccessToken.Reveal(), err)
				}
				if err != nil && !strings.Contains(err.Error(), "out of reach") {
					t.Errorf("it does not say why: %v", err)
				}
				if took < 2*staleAfter || took > 3*staleAfter {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// Whoever lost its lock keeps what it was given, and what its successor did
// stays; nothing is sent again for it.
func TestAHolderOfASharedLockThatWasOvertakenStillHandsOutItsToken(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	signIn(t, machine())
	after := &authority{lifetime: 2 * time.Hour, answer: func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		return credstore.Tokens{}, &credstore.Failure{Class: credstore.ClassRefused, Code: "invalid_grant"}
	}}
	a := &authority{}
	a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		if n == 1 {
			m.lose(box)
			mustRefuse(t, sourceOf(t, machine(), box, after), credstore.Request{}, credstore.ErrOutcomeUnknown)
		}
		return a.rotated(n), nil
	}
	src := sourceOf(t, machine(), box, a)
	got, err := src.Get(t.Context(), credstore.Request{})
	if got.AccessToken.Reveal() != "A-new-1" || !errors.Is(err, credstore.ErrNotSaved) {
		t.Errorf("got %q, %v", got.AccessToken.Reveal(), err)
	}
	mustHaveSent(t, a, "R")
	mustHaveSent(t, after, "R")
}

func TestAHolderThatLostItsSharedLockSavesWhatNobodyElseCanHaveSent(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	signIn(t, machine())
	a := &authority{}
	a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		m.lose(box)
		return a.rotated(n), nil
	}
	mustGive(t, sourceOf(t, machine(), box, a), credstore.Request{}, "A-new-1")
	mustGive(t, sourceOf(t, machine(), box, a), credstore.Request{}, "A-new-1")
	mustHaveSent(t, a, "R")
}

func TestNothingIsSentOnceASharedLockIsLost(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	signIn(t, machine())
	a := &authority{}
	m.set(func() { m.checked = func() error { m.lose(box); return nil } })
	err := mustRefuse(t, sourceOf(t, machine(), box, a), credstore.Request{}, credstore.ErrLocked)
	if !errors.Is(err, lockfile.ErrLost) {
		t.Error(err)
	}
	mustHaveSent(t, a)
	m.set(func() { m.checked = nil })
	mustGive(t, sourceOf(t, machine(), box, a), credstore.Request{}, "A-new-1")
}

func TestASharedLockOutOfReachIsTemporaryAndNothingIsSent(t *testing.T) {
	for name, break_ := range map[string]func(m *sharedMemory){
		"when it is marked":  func(m *sharedMemory) { m.marked = func() error { return errUnreached } },
		"when it is checked": func(m *sharedMemory) { m.checked = func() error { return errUnreached } },
	} {
		t.Run(name, func(t *testing.T) {
			m := newSharedMemory()
			machine := fleetOf(t, m)
			signIn(t, machine())
			a := &authority{}
			m.set(func() { break_(m) })
			mustRefuse(t, sourceOf(t, machine(), box, a), credstore.Request{}, credstore.ErrTemporary)
			mustHaveSent(t, a)
			m.set(func() { m.marked, m.checked = nil, nil })
			mustGive(t, sourceOf(t, machine(), box, a), credstore.Request{}, "A-new-1")
		})
	}
}

// A login is one change: it is not made a second time over what came after
// the first.
func TestALoginWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	one, other := machine(), machine()
	signIn(t, one) // for the keys

	next := expiredLogin()
	next.Tokens.RefreshToken, next.Tokens.AccessToken = credstore.NewSecret("R2"), credstore.NewSecret("A2")
	m.set(func() { m.put = firstCalls(1, unheard) })
	replaced, err := one.Login(t.Context(), box, next)
	if err != nil || replaced.RefreshToken.Reveal() != "R" {
		t.Errorf("the login ended with %v, and what it replaced was %q", err, replaced.RefreshToken.Reveal())
	}

	if _, err := other.Remove(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	next.OnlyNew = true
	m.set(func() { m.put = firstCalls(1, unheard) })
	if _, err := one.Login(t.Context(), box, next); err != nil {
		t.Errorf("a login of a new target: %v", err)
	}

	m.set(func() {
		m.put = firstCalls(1, func(do func() error) error {
			_ = do()
			m.set(func() { m.put = nil })
			if _, err := other.Remove(t.Context(), box); err != nil {
				t.Error(err)
			}
			return errUnreached
		})
	})
	next.OnlyNew = false
	if _, err := one.Login(t.Context(), box, next); !errors.Is(err, credstore.ErrNotWritable) || !strings.Contains(err.Error(), "not known") {
		t.Errorf("it was removed meanwhile, and the login ended with %v", err)
	}
	mustRefuse(t, sourceOf(t, other, box, &authority{}), credstore.Request{}, credstore.ErrNoCredential)
}

// The old holder saves between the look of the new one and its mark: that is
// why the new one looks again.
func TestASuccessorThatMarksAfterTheSaveSendsNothing(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	signIn(t, machine())
	answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		return (&authority{}).rotated(n), nil
	})
	a, after := &authority{answer: answer}, &authority{}
	ended := make(chan struct{})
	src := sourceOf(t, machine(), box, a)
	go func() {
		defer close(ended)
		mustGive(t, src, credstore.Request{}, "A-new-1")
	}()
	<-arrived
	m.lose(box)
	m.set(func() {
		m.marked = func() error { // the successor is about to
			m.set(func() { m.marked = nil })
			close(proceed)
			<-ended
			return nil
		}
	})
	mustGive(t, sourceOf(t, machine(), box, after), credstore.Request{}, "A-new-1")
	mustHaveSent(t, after)
}
