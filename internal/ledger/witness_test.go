//go:build linux

package ledger_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// A customer uses one anchor of a ledger, one request at a time, and writes
// down each before it is sent and each success after it was answered: what a
// crash leaves is held against that. It may write into a pipe to a process
// that outlives it.
//
//	register? N GENERATION
//	register! N GENERATION ID
//	mint? N GENERATION
//	mint! N GENERATION TOKEN
//	consume? N TOKEN
//	consume! N TOKEN
//	prune? N
//	prune! N
type customer struct {
	l       *ledger.Ledger
	n       int
	out     io.Writer // one write for each line
	session ledger.Session
}

// impossible is an answer that no fault explains.
var errImpossible = errors.New("impossible")

func (c *customer) say(format string, args ...any) {
	fmt.Fprintf(c.out, format+"\n", args...)
}

// unavailable passes over what a fault of the disk excuses.
func unavailable(err error) error {
	if errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrClosed) {
		return nil
	}
	return fmt.Errorf("%w: %w", errImpossible, err)
}

func (c *customer) register(generation uint64) error {
	c.say("register? %d %d", c.n, generation)
	s, err := c.l.Register(never, anchor(c.n), 1, 2, generation)
	if err != nil {
		return unavailable(err)
	}
	c.say("register! %d %d %s", c.n, generation, s.ID.Reveal())
	c.session = s
	return nil
}

// mint returns an empty token if the disk failed.
func (c *customer) mint() (secret.Secret, error) {
	if c.session.ID.Empty() {
		return secret.Secret{}, nil
	}
	c.say("mint? %d %d", c.n, c.session.Generation)
	token, err := c.l.Mint(never, c.session.ID, c.session.Generation, bound(c.n))
	if err != nil {
		return secret.Secret{}, unavailable(err)
	}
	c.say("mint! %d %d %s", c.n, c.session.Generation, token.Reveal())
	return token, nil
}

// consume spends a token that waits, and tries to do so twice.
func (c *customer) consume(token secret.Secret) error {
	if token.Empty() {
		return nil
	}
	c.say("consume? %d %s", c.n, token.Reveal())
	got, err := c.l.Consume(never, c.session.ID, c.session.Generation, token)
	if err != nil {
		return unavailable(err)
	}
	c.say("consume! %d %s", c.n, token.Reveal())
	if got != bound(c.n) {
		return fmt.Errorf("%w: the token was bound to %+v", errImpossible, got)
	}
	if _, err := c.l.Consume(never, c.session.ID, c.session.Generation, token); err == nil {
		return fmt.Errorf("%w: spent twice", errImpossible)
	} else if !errors.Is(err, ledger.ErrTokenReplay) {
		return unavailable(err)
	}
	return nil
}

func (c *customer) prune() error {
	if c.session.ID.Empty() {
		return nil
	}
	c.say("prune? %d", c.n)
	if err := c.l.Prune(c.session.ID); err != nil {
		return unavailable(err)
	}
	c.say("prune! %d", c.n)
	c.session = ledger.Session{}
	return nil
}

// account is what must be true of one anchor after a crash.
type account struct {
	id         string          // "" if none was ever told
	generation uint64          // told last
	may        map[uint64]bool // generations that were asked for since
	gone       bool            // pruned, and told so
	mayBeGone  bool
	tokens     map[string]tokenFate
}

type tokenFate struct {
	generation   uint64
	asked, spent bool // consume
	revoked      bool // for sure
}

// accounts reads what customers wrote.
func accounts(t testing.TB, said io.Reader) map[int]*account {
	t.Helper()
	all := map[int]*account{}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 2 {
			t.Fatalf("a customer said %q", lines.Text())
		}
		verb, text := f[0], f[len(f)-1]
		n, err := strconv.Atoi(f[1])
		must(t, err)
		var generation uint64
		if strings.HasPrefix(verb, "register") || strings.HasPrefix(verb, "mint") {
			generation, err = strconv.ParseUint(f[2], 10, 64)
			must(t, err)
		}
		a := all[n]
		if a == nil {
			a = &account{may: map[uint64]bool{}, tokens: map[string]tokenFate{}}
			all[n] = a
		}
		switch verb {
		case "register?":
			a.may[generation] = true
		case "register!":
			if a.id == text && a.generation != generation || a.id != text {
				for token, fate := range a.tokens {
					fate.revoked = true
					a.tokens[token] = fate
				}
			}
			a.id, a.generation, a.may, a.gone, a.mayBeGone = text, generation, map[uint64]bool{}, false, false
		case "mint!":
			a.tokens[text] = tokenFate{generation: generation}
		case "consume?", "consume!":
			fate := a.tokens[text]
			fate.asked = true
			fate.spent = fate.spent || verb == "consume!"
			a.tokens[text] = fate
		case "prune?":
			a.mayBeGone = true
		case "prune!":
			a.gone = true
		case "mint?":
		default:
			t.Fatalf("a customer said %q", lines.Text())
		}
	}
	must(t, lines.Err())
	return all
}

// settle holds a ledger that was opened again against the accounts, and spends
// what can be spent.
func settle(t testing.TB, l *ledger.Ledger, all map[int]*account) {
	t.Helper()
	for n, a := range all {
		if a.id == "" {
			continue
		}
		s, ok := l.Session(secret.New(a.id))
		if a.gone && ok {
			t.Errorf("session %d is there again", n)
		}
		if !ok {
			if !a.gone && !a.mayBeGone {
				t.Errorf("session %d is lost", n)
			}
			// Whoever has its place got none of its tokens.
			s, _ = l.Register(never, anchor(n), 1, 2, 1<<40)
		} else if s.Generation != a.generation && !a.may[s.Generation] {
			t.Errorf("session %d is of generation %d, told was %d", n, s.Generation, a.generation)
		}
		for token, fate := range a.tokens {
			_, err := l.Consume(never, s.ID, s.Generation, secret.New(token))
			switch {
			case err == nil && (fate.spent || fate.revoked || !ok || s.Generation != fate.generation):
				t.Errorf("session %d: a token is good that must not be: %+v", n, fate)
			case err != nil && !fate.asked && !fate.revoked && ok && s.Generation == fate.generation:
				t.Errorf("session %d: a token is lost: %+v: %v", n, fate, err)
			case err != nil && !errors.Is(err, ledger.ErrTokenReplay):
				t.Errorf("session %d: %v", n, err)
			}
			if _, err := l.Consume(never, s.ID, s.Generation, secret.New(token)); err == nil {
				t.Errorf("session %d: a token is good twice", n)
			}
		}
	}
}
