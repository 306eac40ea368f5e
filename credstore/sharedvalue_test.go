package credstore_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/lockfile"
)

const sharedRole = "shared\x00" + box

func TestASharedValueIsSealedFromItsFirstByte(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	signIn(t, machine())
	v, err := m.Get(t.Context(), box)
	if err != nil || !sealed.Is(v.Bytes) {
		t.Fatalf("not sealed: %q, %v", v.Bytes, err)
	}
	for _, secret := range []string{"refreshToken", "as.example", `"R"`} {
		if bytes.Contains(v.Bytes, []byte(secret)) {
			t.Errorf("%q stands in it", secret)
		}
	}
}

// What is not ours to read is refused, by name, and stays as it is.
func TestASharedValueThatCannotBeReadIsLeftAlone(t *testing.T) {
	foreign := sealed.NewKey()
	ours := sealed.NewKey()
	kept := &memoryKeys{kept: map[string]sealed.Key{ours.ID(): ours}}
	seal := func(key sealed.Key, role, text string) []byte {
		b, err := sealed.Seal(sealed.Ref{Kind: keys.KindKeyring, ID: key.ID()}, role, key, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	record := `"record":{"kind":"oidc","refreshToken":"R","accessJwt":"A","expiresAt":""}`
	whole := seal(ours, sharedRole, `{"version":1,`+record+`}`)
	for name, c := range map[string]struct {
		bytes []byte
		want  error
		says  string
	}{
		"in plain":            {[]byte(`{"version":1,` + record + `}`), credstore.ErrDamaged, "not from this program"},
		"of others":           {[]byte("x"), credstore.ErrDamaged, "not from this program"},
		"cut off":             {whole[:len(whole)-9], credstore.ErrDamaged, "cannot be read"},
		"changed":             {append(slices.Clone(whole[:len(whole)-9]), "AAAAAAAA\n"...), credstore.ErrDamaged, "cannot be read"},
		"sealed to others":    {seal(foreign, sharedRole, `{"version":1,`+record+`}`), credstore.ErrKey, "which cannot be had"},
		"of another target":   {seal(ours, "shared\x00other", `{"version":1,`+record+`}`), credstore.ErrDamaged, "cannot be read"},
		"of a later version":  {seal(ours, sharedRole, `{"version":2,`+record+`}`), credstore.ErrDamaged, "use that version"},
		"without a version":   {seal(ours, sharedRole, `{`+record+`}`), credstore.ErrDamaged, "use that version"},
		"no object":           {seal(ours, sharedRole, `[]`), credstore.ErrDamaged, "cannot be read"},
		"with a bad session":  {seal(ours, sharedRole, `{"version":1,`+record+`,"session":{"version":99}}`), credstore.ErrDamaged, "cannot be read"},
		"with another's name": {seal(ours, sharedRole, `{"version":1,`+record+`,"session":{"version":1,"target":"other"}}`), credstore.ErrDamaged, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSharedMemory()
			if err := m.Put(t.Context(), box, 0, c.bytes, nil); err != nil {
				t.Fatal(err)
			}
			s := open(t, credstore.Config{Dir: stateDir(t), Shared: &credstore.SharedTargets{Names: []string{box}, In: m, Keys: kept}})
			a := &authority{}
			src := sourceOf(t, s, box, a)
			_, loginErr := s.Login(t.Context(), box, expiredLogin())
			_, removeErr := s.Remove(t.Context(), box)
			_, holdsErr := src.Holds(credstore.NewSecret("A"))
			for what, err := range map[string]error{
				"get":    onlyError(get(src, credstore.Request{})),
				"static": s.SetStatic(t.Context(), box, credstore.NewSecret("S")),
				"login":  loginErr, "remove": removeErr, "holds": holdsErr,
				"hand over": s.HandOver(t.Context(), box, "x", func(credstore.Handover) error { t.Error("given away"); return nil }),
			} {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "in memory") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v", what, err)
				}
			}
			mustHaveSent(t, a)
			if v, _ := m.Get(t.Context(), box); !bytes.Equal(v.Bytes, c.bytes) {
				t.Errorf("it is now %q", v.Bytes)
			}
			if entries, err := s.List(); err != nil || len(entries) != 1 || !errors.Is(entries[0].Err, c.want) {
				t.Errorf("the list says %+v, %v", entries, err)
			}
		})
	}
}

func TestAListToldWithoutTheSharedStoreSaysWhatIsMissing(t *testing.T) {
	m := newSharedMemory()
	s := open(t, credstore.Config{Dir: stateDir(t), Shared: &credstore.SharedTargets{
		Names: []string{box, "crate"}, In: m, Keys: &memoryKeys{kept: map[string]sealed.Key{}},
	}})
	signIn(t, s)
	if err := s.SetStatic(t.Context(), other, credstore.NewSecret("S")); err != nil {
		t.Fatal(err)
	}
	calls := 0
	m.set(func() { m.get = func(func() error) error { calls++; return errUnreached } })
	entries, err := s.List()
	if err != nil || len(entries) != 3 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for _, e := range entries {
		if shared := e.Target != other; shared != errors.Is(e.Err, credstore.ErrShared) || shared != errors.Is(e.Err, credstore.ErrTemporary) {
			t.Errorf("%s: %v", e.Target, e.Err)
		}
	}
	if calls != 1 {
		t.Errorf("a store that is away was asked %d times", calls)
	}
}

func TestALoginOnAnotherMachineIsAdopted(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	signIn(t, machine())
	s := machine()
	known, _, err := s.Known(box)
	if err != nil || known.Login == "" {
		t.Fatalf("%+v, %v", known, err)
	}
	first, adopted, err := s.LoginTurn(t.Context(), box, known.Login, nil, nil)
	if first == nil || adopted || err != nil {
		t.Fatalf("%v, %v, %v", first, adopted, err)
	}
	defer first.End()
	signIn(t, machine())
	if turn, adopted, err := s.LoginTurn(t.Context(), box, known.Login, nil, nil); turn != nil || !adopted || err != nil {
		t.Errorf("%v, %v, %v", turn, adopted, err)
	}
}

func TestASharedSessionIsHandedOverWithItsLock(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	s := machine()
	login := expiredLogin()
	login.LoginID = "mine"
	if _, err := s.Login(t.Context(), box, login); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a := &authority{}
	err := s.HandOver(t.Context(), box, "mine", func(out credstore.Handover) error {
		src := sourceOf(t, machine(), box, a)
		cancel()
		if _, err := src.Get(ctx, credstore.Request{}); !errors.Is(err, context.Canceled) {
			t.Errorf("meanwhile a refresh ended with %v", err)
		}
		if out.Tokens.RefreshToken.Reveal() != "R" {
			t.Errorf("given away: %q", out.Tokens.RefreshToken.Reveal())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	mustHaveSent(t, a)
	mustRefuse(t, sourceOf(t, machine(), box, a), credstore.Request{}, credstore.ErrNoCredential)
}

// Who lost the lock while it gave a session away does not remove it, and a
// token whose exchange was not heard of is not given away.
func TestASharedSessionThatMayBeSpentStays(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	s := machine()
	login := expiredLogin()
	login.LoginID = "mine"
	if _, err := s.Login(t.Context(), box, login); err != nil {
		t.Fatal(err)
	}
	err := s.HandOver(t.Context(), box, "mine", func(credstore.Handover) error { m.lose(box); return nil })
	if !errors.Is(err, lockfile.ErrLost) || !errors.Is(err, credstore.ErrLocked) {
		t.Errorf("without its lock it ended with %v", err)
	}
	if held, err := s.Settled(t.Context(), box, "mine"); !held || err != nil {
		t.Errorf("the session is gone: %v", err)
	}
	a := &authority{answer: failing(credstore.Failure{Class: credstore.ClassTemporary})}
	mustRefuse(t, sourceOf(t, machine(), box, a), credstore.Request{}, credstore.ErrTemporary)
	err = s.HandOver(t.Context(), box, "mine", func(credstore.Handover) error { t.Error("given away"); return nil })
	if !errors.Is(err, credstore.ErrOutcomeUnknown) {
		t.Errorf("after a send without an answer it ended with %v", err)
	}
}

func TestATokenOfASharedTargetIsKnownAgain(t *testing.T) {
	m := newSharedMemory()
	machine := fleetOf(t, m)
	signIn(t, machine())
	src := sourceOf(t, machine(), box, &authority{})
	mustGive(t, src, credstore.Request{}, "A-new-1")
	for token, want := range map[string]bool{"A-new-1": true, "A": false, "": false} {
		if held, err := src.Holds(credstore.NewSecret(token)); held != want || err != nil {
			t.Errorf("%q: %v, %v", token, held, err)
		}
	}
}
