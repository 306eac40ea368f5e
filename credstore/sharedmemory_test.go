package credstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/lockfile"
)

// sharedMemory is a shared store that takes no time and fails as told. It
// keeps the promises of [credstore.Shared], and its locks are lost when a test
// says so.
type sharedMemory struct {
	mu       sync.Mutex
	revision int64
	values   map[string]credstore.SharedValue
	holders  map[string]*memoryLock
	marks    map[string]memoryMark
	moved    chan struct{} // closed, and replaced, at every change

	// get and put, when set, stand around each call.
	get func(do func() error) error
	put func(do func() error) error
	// checked and marked, when set, are called before a lock is checked or
	// its mark is set.
	checked, marked func() error
}

type memoryMark struct {
	lockfile.Mark

	by *memoryLock
}

func newSharedMemory() *sharedMemory {
	return &sharedMemory{
		values: map[string]credstore.SharedValue{}, holders: map[string]*memoryLock{},
		marks: map[string]memoryMark{}, moved: make(chan struct{}),
	}
}

var errUnreached = fmt.Errorf("the shared store is out of reach: %w", credstore.ErrShared)

func around(hook func(func() error) error, do func() error) error {
	if hook == nil {
		return do()
	}
	return hook(do)
}

// set changes the hooks while the store is used.
func (m *sharedMemory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *sharedMemory) hooks() (get, put func(func() error) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get, m.put
}

func (m *sharedMemory) change() {
	m.revision++
	close(m.moved)
	m.moved = make(chan struct{})
}

func (m *sharedMemory) Get(_ context.Context, target string) (v credstore.SharedValue, err error) {
	get, _ := m.hooks()
	err = around(get, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		v = m.values[target]
		return nil
	})
	return v, err
}

func (m *sharedMemory) Put(_ context.Context, target string, version int64, b []byte, under credstore.SharedLock) error {
	_, put := m.hooks()
	return around(put, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		held, _ := under.(*memoryLock)
		switch {
		case m.values[target].Version != version:
			return credstore.ErrMoved
		case held != nil && m.holders[target] != held && m.marks[target].by != held:
			return lockfile.ErrLost
		}
		m.change()
		delete(m.values, target)
		if len(b) > 0 {
			m.values[target] = credstore.SharedValue{Bytes: slices.Clone(b), Version: m.revision}
		}
		return nil
	})
}

func (m *sharedMemory) Name(target string) string { return "the value " + target + " in memory" }

func (m *sharedMemory) Lock(ctx context.Context, req credstore.SharedRequest) (credstore.SharedLock, error) {
	bound := time.NewTimer(2 * req.StaleAfter)
	defer bound.Stop()
	tick := time.NewTicker(req.StaleAfter / 60)
	defer tick.Stop()
	for {
		m.mu.Lock()
		moved := m.moved
		if m.holders[req.Target] == nil {
			l := &memoryLock{in: m, target: req.Target, nonce: rand.Text(), mark: m.marks[req.Target].Mark}
			m.holders[req.Target] = l
			m.mu.Unlock()
			return l, nil
		}
		m.mu.Unlock()
		select {
		case <-moved:
		case <-tick.C:
		case <-bound.C:
			return nil, &lockfile.HeldError{Path: "in memory", Watched: 2 * req.StaleAfter}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if req.Until != nil && req.Until() {
			return nil, lockfile.ErrStopped
		}
	}
}

// lose takes the target's lock from who has it.
func (m *sharedMemory) lose(target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.holders, target)
	m.change()
}

// memoryLock is a lock of it, held or lost.
type memoryLock struct {
	in     *sharedMemory
	target string
	nonce  string
	mark   lockfile.Mark
}

// ours is called with the store locked.
func (l *memoryLock) ours() error {
	if l.in.holders[l.target] != l {
		return lockfile.ErrLost
	}
	return nil
}

func (l *memoryLock) Nonce() string { return l.nonce }
func (l *memoryLock) Step() error   { return nil }

func (l *memoryLock) Check() error {
	l.in.mu.Lock()
	checked := l.in.checked
	l.in.mu.Unlock()
	if checked != nil {
		if err := checked(); err != nil {
			return err
		}
	}
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	return l.ours()
}

func (l *memoryLock) Mark() lockfile.Mark { return l.mark }

func (l *memoryLock) SetMark(mark lockfile.Mark) error {
	l.in.mu.Lock()
	marked := l.in.marked
	l.in.mu.Unlock()
	if marked != nil {
		if err := marked(); err != nil {
			return err
		}
	}
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	if err := l.ours(); err != nil {
		return err
	}
	l.mark = mark
	l.in.marks[l.target] = memoryMark{mark, l}
	l.in.change()
	return nil
}

func (l *memoryLock) Release() error {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	if l.ours() == nil {
		delete(l.in.holders, l.target)
		l.in.change()
	}
	return nil
}

// fleetOf returns how machines of one fleet open their stores: each has a
// directory of its own and reaches box in the one shared store.
func fleetOf(t *testing.T, in credstore.Shared) func(change ...func(*credstore.Config)) *credstore.Store {
	t.Helper()
	keys := &memoryKeys{kept: map[string]sealed.Key{}}
	return func(change ...func(*credstore.Config)) *credstore.Store {
		t.Helper()
		cfg := credstore.Config{Dir: stateDir(t), Shared: &credstore.SharedTargets{Names: []string{box}, In: in, Keys: keys}}
		for _, f := range change {
			f(&cfg)
		}
		return open(t, cfg)
	}
}

// expiredLogin is a login whose access token A has expired, with R to refresh it.
func expiredLogin() credstore.SignedIn {
	set, _ := pinned()
	return credstore.SignedIn{URL: set.URL, Pin: set.Pin, Tokens: credstore.Tokens{
		AccessToken: credstore.NewSecret("A"), RefreshToken: credstore.NewSecret("R"), ExpiresAt: in(-time.Minute), Lifetime: time.Hour,
	}}
}

func signIn(t *testing.T, s *credstore.Store) {
	t.Helper()
	if _, err := s.Login(t.Context(), box, expiredLogin()); err != nil {
		t.Fatal(err)
	}
}

// firstCalls makes the first n calls end in that way, and all others as they do.
func firstCalls(n int, first func(do func() error) error) func(func() error) error {
	var mu sync.Mutex
	return func(do func() error) error {
		mu.Lock()
		n--
		left := n
		mu.Unlock()
		if left >= 0 {
			return first(do)
		}
		return do()
	}
}

// unheard does what was asked and loses the answer.
func unheard(do func() error) error {
	_ = do()
	return errUnreached
}

// unreached does nothing.
func unreached(func() error) error { return errUnreached }
