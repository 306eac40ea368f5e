package credstore_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/lockfile"
)

// twoPlaces is a machine's file, and what it shares with others.
type twoPlaces struct {
	t    *testing.T
	dir  string
	in   *sharedMemory
	keys *memoryKeys
	as   *strict
	told *warnings
}

func newTwoPlaces(t *testing.T) *twoPlaces {
	t.Helper()
	return &twoPlaces{
		t: t, dir: sweepGround(t), in: newSharedMemory(), keys: &memoryKeys{kept: map[string]sealed.Key{}},
		as: newStrict(t, map[string]string{oldRefresh: oldServer}), told: &warnings{},
	}
}

// open is what a program sees whose configuration keeps the target there.
func (p *twoPlaces) open(shared bool, disk durable.Disk) *credstore.Store {
	p.t.Helper()
	cfg := credstore.Config{Dir: p.dir, StaleAfter: sweepStale, Disk: disk, Warn: p.told.warn, Keys: formKeys()}
	if shared {
		p.in.get, p.in.put = faulty(disk, "get"), faulty(disk, "put")
		p.in.checked = func() error { return faulty(disk, "check")(func() error { return nil }) }
		cfg.Shared = &credstore.SharedTargets{Names: []string{box}, In: p.in, Keys: p.keys}
	}
	s, err := credstore.Open(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// faulty makes a call of the shared store one that a sweep fails, too.
func faulty(disk durable.Disk, op string) func(func() error) error {
	if disk.Hook == nil {
		return func(do func() error) error { return do() }
	}
	return func(do func() error) error {
		var own error
		err := disk.Hook(durable.Step{Op: op, Path: "the shared store"}, func() error {
			own = do()
			return own
		})
		if err != nil && own == nil {
			return errors.Join(credstore.ErrShared, err)
		}
		return err
	}
}

func (p *twoPlaces) move(toShared bool, disk durable.Disk) (bool, error) {
	p.t.Helper()
	s := p.open(true, disk)
	defer closed(p.t, s)
	return s.Move(context.Background(), box, toShared, credstore.Settings{})
}

// refresh refreshes the session where the configuration says that it is.
func (p *twoPlaces) refresh(shared bool) error {
	p.t.Helper()
	s := p.open(shared, durable.Disk{})
	defer closed(p.t, s)
	return onlyError(get(sourceWith(p.t, s, credstore.SourceConfig{Target: box, Exchange: p.as.exchange}), credstore.Request{Refresh: true}))
}

// power is what is found after everything that ran is dead.
func (p *twoPlaces) power() { p.in.lose(box) }

func TestNoFaultOfAMoveLetsTwoPlacesRefresh(t *testing.T) {
	for name, toShared := range map[string]bool{"to the shared store": true, "to the file": false} {
		for then, back := range map[string]bool{"then again": false, "then back": true} {
			t.Run(name+", "+then, func(t *testing.T) {
				t.Parallel()
				var p *twoPlaces
				steps := durabletest.Sweep(t, func(disk durable.Disk) error {
					p = newTwoPlaces(t)
					if !toShared {
						if _, err := p.move(true, durable.Disk{}); err != nil {
							t.Fatal(err)
						}
					}
					_, err := p.move(toShared, disk)
					return err
				}, func(f *durabletest.Fault, err error) {
					defer func() { _ = os.RemoveAll(p.dir) }()
					p.power()
					// Old and new programs go on with what is there.
					first, second := p.refresh(!toShared), p.refresh(toShared)
					if first == nil && second == nil {
						t.Error("both places refreshed")
					}
					if f.Hit() && err == nil && first == nil {
						t.Error("a success left the session where it was")
					}
					home := toShared != back
					if _, err := p.move(home, durable.Disk{}); err != nil {
						t.Errorf("the next move: %v", err)
					}
					if err := p.refresh(home); err != nil {
						t.Errorf("there: %v", err)
					}
					if err := p.refresh(!home); !errors.Is(err, credstore.ErrNoCredential) {
						t.Errorf("where it was: %v", err)
					}
					if n := p.as.most(); n != 1 {
						t.Errorf("a refresh token was sent %d times", n)
					}
					if raw := rawStore(t, p.dir); !strings.Contains(string(raw[other]), "static-neighbour") {
						t.Error("a neighbour was lost")
					}
					if r := boxIn(t, p.dir); !home && compacted(t, rawStore(t, p.dir)[box]) == "" || !home && r["x-note"] == nil {
						t.Error("a member that we do not know was lost")
					}
				})
				t.Logf("%d steps", steps)
			})
		}
	}
}

func TestAMoveLeavesTwoSessionsAlone(t *testing.T) {
	p := newTwoPlaces(t)
	s := p.open(true, durable.Disk{})
	defer closed(t, s)
	if err := onlyError(s.Login(t.Context(), box, loginNamed("another"))); err != nil {
		t.Fatal(err)
	}
	for _, toShared := range []bool{true, false} {
		if _, err := p.move(toShared, durable.Disk{}); !errors.Is(err, credstore.ErrTaken) {
			t.Errorf("%v", err)
		}
	}
	if entries, err := s.List(); err != nil || entries[0].LoginID != "another" || boxIn(t, p.dir)["refreshToken"] != oldRefresh {
		t.Errorf("now there are %v, %v", entries, err)
	}
}

func TestAMoveOfWhatIsThereAlreadyDoesNothing(t *testing.T) {
	p := newTwoPlaces(t)
	for _, want := range []bool{true, false} {
		if moved, err := p.move(true, durable.Disk{}); moved != want || err != nil {
			t.Errorf("moved: %t, %v", moved, err)
		}
	}
	s := p.open(true, durable.Disk{})
	defer closed(t, s)
	if err := onlyError(s.Remove(t.Context(), box)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.move(true, durable.Disk{}); !errors.Is(err, credstore.ErrNoCredential) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestASessionWhoseLastRefreshHasNoAnswerIsNotMoved(t *testing.T) {
	p := newTwoPlaces(t)
	if _, err := p.move(true, durable.Disk{}); err != nil {
		t.Fatal(err)
	}
	p.in.marks[box] = memoryMark{Mark: lockfile.Mark{State: lockfile.MarkSent, Fingerprint: credstore.NewSecret(oldRefresh).Fingerprint(), Login: credstore.NewSecret("L-old").Fingerprint(), At: time.Now()}}
	if _, err := p.move(false, durable.Disk{}); !errors.Is(err, credstore.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	if err := p.refresh(true); err != nil {
		t.Errorf("where it stayed: %v", err)
	}
}

func TestAValueIsRekeyed(t *testing.T) {
	p := newTwoPlaces(t)
	if _, err := p.move(true, durable.Disk{}); err != nil {
		t.Fatal(err)
	}
	before := p.keys.items()
	for range 2 {
		s := p.open(true, durable.Disk{})
		defer closed(t, s)
		if there, err := s.Rekey(t.Context(), box); !there || err != nil {
			t.Fatalf("there: %t, %v", there, err)
		}
	}
	for _, id := range before {
		delete(p.keys.kept, id)
	}
	if err := p.refresh(true); err != nil {
		t.Errorf("with the new key alone: %v", err)
	}
}
