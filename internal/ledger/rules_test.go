//go:build linux

package ledger_test

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

func TestATokenIsGoodForOneUse(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	s := register(t, l, 1, 3)
	token := mint(t, l, s, 7)
	got, err := l.Consume(never, s.ID, 3, token)
	if err != nil || got != bound(7) {
		t.Errorf("consuming: %+v, %v", got, err)
	}
	wantError(t, "consuming again", consumed(l, s, token), ledger.ErrTokenReplay)
	l = reopened(t, l, path, ledger.Config{})
	wantError(t, "consuming after a restart", consumed(l, s, token), ledger.ErrTokenReplay)
}

func TestATokenOutlivesARestart(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	s := register(t, l, 1, 3)
	token := mint(t, l, s, 7)
	l = reopened(t, l, path, ledger.Config{})
	if got, ok := l.Session(s.ID); !ok || got.Anchor != s.Anchor || got.UID != 1000 || got.GID != 1001 || got.Generation != 3 || !got.ID.Equal(s.ID) {
		t.Errorf("the session came back as %+v, %v", got, ok)
	}
	if got, err := l.Consume(never, s.ID, 3, token); err != nil || got != bound(7) {
		t.Errorf("consuming: %+v, %v", got, err)
	}
}

func TestATokenIsNoGoodToAnother(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	s, other := register(t, l, 1, 3), register(t, l, 2, 3)
	token := mint(t, l, s, 7)
	wantError(t, "another session", consumed(l, other, token), ledger.ErrTokenReplay)
	wantError(t, "a token never minted", consumed(l, s, secret.New(strings.Repeat("A", 43))), ledger.ErrTokenReplay)
	wantError(t, "then its own session", consumed(l, s, token), nil)
}

func TestASessionAndItsGenerationAreJudgedFirst(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	s := register(t, l, 1, 3)
	token := mint(t, l, s, 7)
	for _, c := range []struct {
		name       string
		id         secret.Secret
		generation uint64
		want       error
	}{
		{"unknown session", secret.New(strings.Repeat("A", 43)), 3, ledger.ErrSessionUnknown},
		{"no session", secret.Secret{}, 3, ledger.ErrSessionUnknown},
		{"lower generation", s.ID, 2, ledger.ErrGenerationStale},
		{"higher generation", s.ID, 4, ledger.ErrGenerationUnknown},
	} {
		wantError(t, "authenticating, "+c.name, l.Authenticate(c.id, c.generation), c.want)
		_, err := l.Mint(never, c.id, c.generation, bound(1))
		wantError(t, "minting, "+c.name, err, c.want)
		_, err = l.Consume(never, c.id, c.generation, token)
		wantError(t, "consuming, "+c.name, err, c.want)
		_, err = l.Consume(never, c.id, c.generation, secret.New("no token"))
		wantError(t, "consuming what is none, "+c.name, err, c.want)
	}
	wantError(t, "consuming what is none", consumed(l, s, secret.New("no token")), ledger.ErrTokenMalformed)
	wantError(t, "authenticating", l.Authenticate(s.ID, 3), nil)
	wantError(t, "consuming after all that", consumed(l, s, token), nil)
}

func TestRegisteringAgainChangesNothingAndCommitsNothing(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	s := register(t, l, 1, 3)
	token := mint(t, l, s, 7)
	before := l.Stats().Commits
	again := register(t, l, 1, 3)
	if !again.ID.Equal(s.ID) || again.Generation != 3 {
		t.Errorf("another session: %+v", again)
	}
	if now := l.Stats().Commits; now != before {
		t.Errorf("%d commits", now-before)
	}
	wantError(t, "consuming", consumed(l, s, token), nil)
}

func TestALowerGenerationIsStale(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	s := register(t, l, 1, 3)
	token := mint(t, l, s, 7)
	_, err := l.Register(never, anchor(1), 1000, 1001, 2)
	wantError(t, "registering", err, ledger.ErrGenerationStale)
	wantError(t, "consuming", consumed(l, s, token), nil)
}

func TestAHigherGenerationEndsTheTokensAndKeepsTheSession(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	s, other := register(t, l, 1, 3), register(t, l, 2, 3)
	token, others := mint(t, l, s, 7), mint(t, l, other, 8)
	before := l.Stats().Commits
	now := register(t, l, 1, 4)
	if n := l.Stats().Commits - before; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	if !now.ID.Equal(s.ID) || now.Generation != 4 {
		t.Errorf("the session became %+v", now)
	}
	for range 2 {
		wantError(t, "the old generation", consumed(l, s, token), ledger.ErrGenerationStale)
		wantError(t, "the old token", consumed(l, now, token), ledger.ErrTokenReplay)
		l = reopened(t, l, path, ledger.Config{})
	}
	wantError(t, "another session's token", consumed(l, other, others), nil)
	if got := l.Stats(); got.Pending != 0 || got.Sessions != 2 {
		t.Errorf("%+v", got)
	}
}

// The pid went to another process within one tick of the clock.
func TestARecycledAnchorGetsASessionOfItsOwn(t *testing.T) {
	path := t.TempDir()
	var first secret.Secret
	cfg := ledger.Config{Alive: func(s ledger.Session) bool { return !s.ID.Equal(first) }}
	l := open(t, path, cfg)
	s := register(t, l, 1, 3)
	token := mint(t, l, s, 7)
	first = s.ID
	before := l.Stats().Commits
	now := register(t, l, 1, 0)
	if n := l.Stats().Commits - before; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	if now.ID.Equal(s.ID) || now.Generation != 0 {
		t.Errorf("the session is %+v", now)
	}
	for range 2 {
		wantError(t, "the dead one's session", l.Authenticate(s.ID, 3), ledger.ErrSessionUnknown)
		wantError(t, "its token", consumed(l, now, token), ledger.ErrTokenReplay)
		l = reopened(t, l, path, cfg)
	}
	if got := l.Stats(); got.Sessions != 1 || got.Pending != 0 {
		t.Errorf("%+v", got)
	}
}

func TestPrunedSessionsTakeTheirTokensAlong(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	a, b, c := register(t, l, 1, 0), register(t, l, 2, 0), register(t, l, 3, 0)
	mint(t, l, a, 1)
	mint(t, l, b, 2)
	last := mint(t, l, c, 3)
	before := l.Stats().Commits
	wantError(t, "pruning", l.Prune(a.ID, b.ID, secret.New(strings.Repeat("A", 43))), nil)
	if n := l.Stats().Commits - before; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	wantError(t, "pruning what is gone", l.Prune(a.ID), nil)
	if n := l.Stats().Commits - before; n != 1 {
		t.Errorf("pruning what is gone is committed: %d", n)
	}
	for range 2 {
		wantError(t, "authenticating", l.Authenticate(a.ID, 0), ledger.ErrSessionUnknown)
		if got := l.Stats(); got.Sessions != 1 || got.Pending != 1 {
			t.Errorf("%+v", got)
		}
		l = reopened(t, l, path, ledger.Config{})
	}
	wantError(t, "consuming what stayed", consumed(l, c, last), nil)
}

func TestThereIsRoomForSoManyTokensInAll(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{MaxTokens: 3})
	s, other := register(t, l, 1, 0), register(t, l, 2, 0)
	token := mint(t, l, s, 1)
	mint(t, l, other, 2)
	mint(t, l, s, 3)
	was := contentOf(t, stateFile(path))
	_, err := l.Mint(never, other.ID, 0, bound(4))
	wantError(t, "minting", err, ledger.ErrTokenCapacity)
	if contentOf(t, stateFile(path)) != was {
		t.Error("a refusal changed the file")
	}
	wantError(t, "consuming", consumed(l, s, token), nil)
	mint(t, l, other, 4)
}

func TestTheDefaultIs256Tokens(t *testing.T) {
	l := openOn(t, quick(), memory(t), ledger.Config{})
	s := register(t, l, 1, 0)
	for n := range 256 {
		mint(t, l, s, n)
	}
	_, err := l.Mint(never, s.ID, 0, bound(1))
	wantError(t, "the 257th", err, ledger.ErrTokenCapacity)
}

func TestThereIsRoomForSoManySessions(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{MaxSessions: 2})
	register(t, l, 1, 0)
	register(t, l, 2, 0)
	_, err := l.Register(never, anchor(3), 0, 0, 0)
	wantError(t, "registering", err, ledger.ErrSessionCapacity)
	register(t, l, 2, 1) // stands already
}

func TestTheDefaultIs1024Sessions(t *testing.T) {
	l := openOn(t, quick(), memory(t), ledger.Config{})
	for n := range 1024 {
		register(t, l, n, 0)
	}
	_, err := l.Register(never, anchor(1024), 0, 0, 0)
	wantError(t, "the 1025th", err, ledger.ErrSessionCapacity)
}

func TestTheDeadMakeRoomForATokenInOneCommit(t *testing.T) {
	gone := dead{}
	l := open(t, t.TempDir(), ledger.Config{MaxTokens: 2, Alive: gone.alive})
	a, b, c := register(t, l, 1, 0), register(t, l, 2, 0), register(t, l, 3, 0)
	mint(t, l, a, 1)
	mint(t, l, b, 2)
	gone[anchor(1)], gone[anchor(3)] = true, true
	before := l.Stats().Commits
	mint(t, l, b, 3)
	if n := l.Stats().Commits - before; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	wantError(t, "the one that held a token", l.Authenticate(a.ID, 0), ledger.ErrSessionUnknown)
	wantError(t, "the one that stood in nobody's way", l.Authenticate(c.ID, 0), nil)
	if got := l.Stats(); got.Revoked != 1 || got.Pending != 2 {
		t.Errorf("%+v", got)
	}
}

func TestTheDeadMakeRoomForASessionInOneCommit(t *testing.T) {
	gone := dead{}
	l := open(t, t.TempDir(), ledger.Config{MaxSessions: 2, Alive: gone.alive})
	a := register(t, l, 1, 0)
	register(t, l, 2, 0)
	gone[anchor(1)] = true
	before := l.Stats().Commits
	register(t, l, 3, 0)
	if n := l.Stats().Commits - before; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	wantError(t, "the dead one", l.Authenticate(a.ID, 0), ledger.ErrSessionUnknown)
}

func TestTheDeadDoNotMintInTheirOwnPlace(t *testing.T) {
	gone := dead{}
	l := open(t, t.TempDir(), ledger.Config{MaxTokens: 1, Alive: gone.alive})
	s := register(t, l, 1, 0)
	mint(t, l, s, 1)
	gone[anchor(1)] = true
	_, err := l.Mint(never, s.ID, 0, bound(2))
	wantError(t, "minting", err, ledger.ErrSessionUnknown)
}

func TestNobodyIsAskedForWhereThereIsRoom(t *testing.T) {
	asked := 0
	l := open(t, t.TempDir(), ledger.Config{Alive: func(ledger.Session) bool { asked++; return true }})
	s := register(t, l, 1, 0)
	wantError(t, "consuming", consumed(l, s, mint(t, l, s, 1)), nil)
	if asked != 0 {
		t.Errorf("asked for %d times", asked)
	}
}

func TestAStateThatWouldNotFitIsRefusedBeforeAFileIsOpened(t *testing.T) {
	f := &durabletest.Fault{}
	path := t.TempDir()
	l := openOn(t, f.Disk(), path, ledger.Config{MaxBytes: 700})
	s := register(t, l, 1, 0)
	token := mint(t, l, s, 1)
	before := len(f.Steps())
	large := bound(2)
	large.HSource = strings.Repeat("x", 256)
	_, err := l.Mint(never, s.ID, 0, large)
	wantError(t, "minting", err, ledger.ErrTooLarge)
	if steps := f.Steps()[before:]; len(steps) > 0 {
		t.Errorf("the disk was asked: %v", steps)
	}
	wantError(t, "consuming", consumed(l, s, token), nil)
}

func TestExactlyAsMuchAsFitsIsTaken(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	register(t, l, 1, 0)
	size := len(contentOf(t, stateFile(path)))
	for _, c := range []struct {
		room int
		want error
	}{{size, nil}, {size - 1, ledger.ErrTooLarge}} {
		l := open(t, t.TempDir(), ledger.Config{MaxBytes: c.room})
		_, err := l.Register(never, anchor(1), 1000, 1001, 0)
		wantError(t, "registering", err, c.want)
	}
}

func TestWhatTheFileCannotHoldIsRefused(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	s := register(t, l, 1, 0)
	for name, change := range map[string]func(b *ledger.Binding){
		"compaction epoch":      func(b *ledger.Binding) { b.CompactionEpoch = 1 << 53 },
		"request epoch":         func(b *ledger.Binding) { b.RequestEpoch = 1 << 53 },
		"schema version 0":      func(b *ledger.Binding) { b.SchemaVersion = 0 },
		"schema version":        func(b *ledger.Binding) { b.SchemaVersion = 1 << 53 },
		"empty source":          func(b *ledger.Binding) { b.HSource = "" },
		"space in the source":   func(b *ledger.Binding) { b.HSource = "a b" },
		"long source":           func(b *ledger.Binding) { b.HSource = strings.Repeat("a", 257) },
		"empty payload":         func(b *ledger.Binding) { b.HPayload = "" },
		"NUL in the payload":    func(b *ledger.Binding) { b.HPayload = "a\x00" },
		"beyond ASCII":          func(b *ledger.Binding) { b.HPayload = "\u017f" },
		"DEL in the payload":    func(b *ledger.Binding) { b.HPayload = "a\x7f" },
		"no UTF-8 in a payload": func(b *ledger.Binding) { b.HPayload = "a\xff" },
	} {
		b := bound(1)
		change(&b)
		_, err := l.Mint(never, s.ID, 0, b)
		wantError(t, name, err, ledger.ErrInvalid)
	}
	for name, a := range map[string]ledger.Anchor{
		"no pid": {StartTime: 1}, "a pid below": {PID: -1, StartTime: 1},
		"a pid above": {PID: math.MaxInt32 + 1}, "a late start": {PID: 1, StartTime: 1 << 53},
	} {
		_, err := l.Register(never, a, 0, 0, 0)
		wantError(t, name, err, ledger.ErrInvalid)
	}
	_, err := l.Register(never, anchor(2), 0, 0, 1<<53)
	wantError(t, "generation", err, ledger.ErrInvalid)
}

func TestARandomSourceThatRepeatsItselfMintsNothing(t *testing.T) {
	next := secret.New(strings.Repeat("A", 43))
	l := open(t, t.TempDir(), ledger.Config{NewID: func() secret.Secret { return next }})
	s := register(t, l, 1, 0)
	if _, err := l.Register(never, anchor(2), 0, 0, 0); err == nil {
		t.Error("two sessions have one id")
	}
	token := mint(t, l, s, 1)
	if _, err := l.Mint(never, s.ID, 0, bound(2)); err == nil {
		t.Error("a token was minted twice")
	}
	wantError(t, "consuming", consumed(l, s, token), nil)
	next = secret.New("short")
	_, err := l.Mint(never, s.ID, 0, bound(2))
	wantError(t, "a short token", err, ledger.ErrInvalid)
	_, err = l.Register(never, anchor(3), 0, 0, 0)
	wantError(t, "a short id", err, ledger.ErrInvalid)
}

func TestIDsAndTokensAre256RandomBits(t *testing.T) {
	l := openOn(t, quick(), memory(t), ledger.Config{})
	s := register(t, l, 1, 0)
	seen := map[string]bool{s.ID.Reveal(): true}
	for range 200 {
		token := mint(t, l, s, 1)
		seen[token.Reveal()] = true
		if len(token.Reveal()) != 43 || strings.Trim(token.Reveal(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("a token is spelt in another way")
		}
		wantError(t, "consuming", consumed(l, s, token), nil)
	}
	if len(seen) != 201 {
		t.Errorf("%d different ones, want 201", len(seen))
	}
}

func TestTheFileHoldsHashesOfTokens(t *testing.T) {
	path := t.TempDir()
	l := open(t, path, ledger.Config{})
	token := mint(t, l, register(t, l, 1, 0), 1)
	if strings.Contains(contentOf(t, stateFile(path)), token.Reveal()) {
		t.Error("the file holds the token")
	}
	st, err := os.Stat(stateFile(path))
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

func TestSessionsAreFound(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	if got := l.Sessions(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	a, b := register(t, l, 1, 4), register(t, l, 2, 5)
	mint(t, l, b, 1)
	mint(t, l, b, 2)
	all := l.Sessions()
	slices.SortFunc(all, func(x, y ledger.Session) int { return x.Anchor.PID - y.Anchor.PID })
	if len(all) != 2 || !all[0].ID.Equal(a.ID) || !all[1].ID.Equal(b.ID) || all[0].Generation != 4 || all[1].Generation != 5 {
		t.Errorf("%+v", all)
	}
	if got, ok := l.SessionOf(anchor(2)); !ok || !got.ID.Equal(b.ID) {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := l.SessionOf(anchor(3)); ok {
		t.Error("an anchor that never registered has a session")
	}
	if n, m := l.PendingOf(a.ID), l.PendingOf(b.ID); n != 0 || m != 2 {
		t.Errorf("%d and %d tokens wait", n, m)
	}
	if _, ok := l.Session(secret.New(strings.Repeat("A", 43))); ok {
		t.Error("an id that was never given has a session")
	}
}

func TestFiguresAreKept(t *testing.T) {
	l := open(t, t.TempDir(), ledger.Config{})
	s := register(t, l, 1, 0)
	wantError(t, "consuming", consumed(l, s, mint(t, l, s, 1)), nil)
	mint(t, l, s, 2)
	register(t, l, 1, 1)
	if _, err := l.Mint(never, s.ID, 0, bound(3)); err == nil {
		t.Error("minted for an old generation")
	}
	want := ledger.Stats{Sessions: 1, Minted: 2, Spent: 1, Revoked: 1, Commits: 5, Batches: 6, Batched: 6, Largest: 1}
	if got := l.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// quick is a disk that skips what makes a commit durable, for tests of
// something else.
func quick() durable.Disk {
	return durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op == "fsync" || s.Op == "fsyncdir" {
			return nil
		}
		return do()
	}}
}

func TestNothingIsOpenedForABootWithoutAName(t *testing.T) {
	for _, id := range []string{"", "boot", strings.ToUpper(thisBoot), thisBoot + "\n", strings.ReplaceAll(thisBoot, "-", "0")} {
		l, err := ledger.Open(openDir(t, durable.Disk{}, t.TempDir()), ledger.Config{BootID: id})
		if err == nil {
			l.Close()
			t.Errorf("opened for boot %q", id)
		}
		if errors.Is(err, ledger.ErrDamaged) || errors.Is(err, ledger.ErrUnsafe) {
			t.Errorf("%q: %v blames the file", id, err)
		}
	}
}
