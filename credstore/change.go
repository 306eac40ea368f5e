package credstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

// SignedIn is what a login gives.
type SignedIn struct {
	URL    string
	Hosts  []string // further origins that may get the token
	Pin    Pin
	Tokens Tokens
	// LoginID names the login, so that whoever was cut short can tell with
	// [Store.Settled] whether it happened. Empty: a random one.
	LoginID string
	// OnlyNew refuses a target for which something is stored, with ErrTaken.
	OnlyNew bool
}

// Writable reports, before a person is asked to sign in, whether the result
// could be saved.
func (s *Store) Writable(ctx context.Context, target string) error {
	return s.change(ctx, target, false, func(tx transaction) error {
		if _, err := tx.readSession(target); err != nil {
			return err
		}
		if _, err := tx.read(); err != nil {
			return err
		}
		if err := tx.introduce(target); err != nil {
			return err
		}
		return tx.writable(target)
	})
}

// Login stores a new session and returns the one it replaced. It writes
// three times in one hold of the store lock: the session file with the old
// pin and the new one as pending, the store, the session file with the new
// pin alone. A crash in between is settled by the refresh token that the
// store then holds, so no refresh token ever goes to the other server.
func (s *Store) Login(ctx context.Context, target string, in SignedIn) (replaced Ended, err error) {
	record := Record{
		Kind: KindOIDC, RefreshToken: in.Tokens.RefreshToken, AccessToken: in.Tokens.AccessToken,
		ExpiresAt: in.Tokens.ExpiresAt, Org: in.Tokens.Org,
	}
	p := &pending{URL: in.URL, Hosts: in.Hosts, LoginID: cmp.Or(in.LoginID, rand.Text()), RefreshToken: record.fingerprint(), Pin: in.Pin}
	if len(in.Tokens.Scope) > 0 {
		p.Pin.Scope = in.Tokens.Scope
	}
	err = s.change(ctx, target, true, func(tx transaction) error {
		now, err := tx.read()
		if err != nil {
			return err
		}
		before, stored := now.record(target)
		if stored && in.OnlyNew {
			return failing(ErrTaken, nil, "something is stored for %s already, and it was left as it is: 'spendonce logout %s' ends it, or choose another name", target, target)
		}
		if old, err := tx.readSession(target); err == nil {
			replaced = ended(before, old, record)
		}
		p.Replaces = before.fingerprint()
		if err := tx.introduce(target); err != nil {
			return err
		}
		err = tx.replaceSession(ctx, nil, target, func(old *session) *session {
			next := old.settled(before).clone()
			next.Pending = p
			return next
		})
		if err != nil {
			return notSaved(target, err)
		}
		if err := tx.replaceStore(ctx, nil, withRecord(target, record)); err != nil && !holds(tx, target, record) {
			return notSaved(target, err)
		} else if err != nil {
			s.warn("the login of %s is saved and may be lost with the power: %v", target, err)
		}
		err = tx.replaceSession(ctx, nil, target, func(old *session) *session {
			next := old.clone().signedIn(p)
			next.ObtainedAt, next.LifetimeSeconds = time.Now(), in.Tokens.Lifetime.Seconds()
			return next
		})
		if err != nil {
			// The next refresh settles it by the token that the store holds.
			s.warn("the login of %s is saved, but its session file still calls it pending: %v", target, err)
		}
		return nil
	})
	if err != nil {
		return Ended{}, err
	}
	return replaced, nil
}

func notSaved(target string, err error) error {
	if kindOf(err) != nil {
		return err
	}
	return failing(ErrNotSaved, []error{err}, "the login of %s could not be saved (%v): make the store writable and sign in again", target, err)
}

// SetStatic stores a static token for the target.
func (s *Store) SetStatic(ctx context.Context, target string, token secret.Secret) error {
	return s.change(ctx, target, false, func(tx transaction) error {
		// Nothing is written beside a session file that cannot be.
		if _, err := tx.readSession(target); err != nil {
			return err
		}
		if err := tx.introduce(target); err != nil {
			return err
		}
		if err := tx.replaceStore(ctx, nil, withRecord(target, Record{Kind: KindStatic, Token: token})); err != nil {
			return err
		}
		return tx.replaceSession(ctx, nil, target, func(old *session) *session {
			if old == nil {
				return nil
			}
			return &session{Version: sessionVersion, LoginID: rand.Text(), Unknown: old.Unknown}
		})
	})
}

func withRecord(target string, r Record) func(*snapshot) *document {
	return func(now *snapshot) *document {
		old, _ := now.doc.get(target)
		doc := now.doc.clone()
		doc.set(target, r.write(old))
		return doc
	}
}

// Remove removes what is stored for the target, and returns it. An exchange
// that is under way does not bring it back. With nothing stored it is
// [ErrNoCredential].
func (s *Store) Remove(ctx context.Context, target string) (removed Ended, err error) {
	err = s.change(ctx, target, false, func(tx transaction) error {
		// A session file that cannot be read does not keep anybody signed in.
		old, _ := tx.readSession(target)
		r, found, err := remove(ctx, tx, target)
		if found {
			removed = ended(r, old, Record{})
		}
		if err == nil && !found {
			return s.noCredential(target)
		}
		return err
	})
	return removed, err
}

// remove takes the target's record out of the store, then its session.
func remove(ctx context.Context, tx transaction, target string) (r Record, found bool, err error) {
	err = tx.replaceStore(ctx, nil, func(now *snapshot) *document {
		if _, found = now.doc.get(target); !found {
			return nil
		}
		r, _ = now.record(target)
		doc := now.doc.clone()
		doc.remove(target)
		return doc
	})
	if err != nil {
		return r, found, err
	}
	return r, found, tx.removeSession(target)
}

// change runs f in a transaction, with everything it needs open and the keys
// that it turns out to need.
func (s *Store) change(ctx context.Context, target string, patient bool, f func(transaction) error) error {
	if err := CheckName(target); err != nil {
		return err
	}
	a, err := s.medium(target).open(s.cfg.StaleAfter)
	if err != nil {
		return err
	}
	defer a.close()
	if err := a.prepare(); err != nil {
		return s.changeError(err)
	}
	if err := a.forNew(); err != nil {
		return err
	}
	begin := func() (transaction, error) {
		defer s.stage("waiting for the store lock")()
		return a.begin(ctx, target, nil, lockfile.Request{Brief: true, Patient: patient}, s.warn)
	}
	return withKeys(a.getKey(ctx), func() error {
		return s.changeError(transact(begin, func(tx transaction) error {
			tx.tidy(false)
			return f(tx)
		}))
	})
}

// holds reports whether the store now holds this very record.
func holds(tx transaction, target string, want Record) bool {
	now, err := tx.read()
	if err != nil {
		return false
	}
	r, ok := now.record(target)
	return ok && sameCredential(r, want)
}

// noCredential tells a target that is known and has nothing stored from one
// that nobody knows.
func (s *Store) noCredential(target string) error {
	known := s.cfg.OtherNames != nil && slices.Contains(s.cfg.OtherNames(), target)
	if !known && !s.medium(target).known(target) {
		return failing(ErrUnknownTarget, []error{ErrNoCredential}, "there is no target %s: 'spendonce list' shows those there are, 'spendonce login %s' makes it one", target, target)
	}
	return failing(ErrNoCredential, nil, "nothing is stored for %s: sign in with 'spendonce login %s'", target, target)
}
