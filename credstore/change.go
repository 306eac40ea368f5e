package credstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
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
	return s.change(ctx, target, false, func(f *files, _ *lockfile.Lock) error {
		if _, err := s.readSession(target, false); err != nil {
			return err
		}
		if _, err := f.read(); err != nil {
			return err
		}
		if err := f.introduce(target); err != nil {
			return err
		}
		temp, err := f.dir.Prepare(f.at.base, f.form.room(s.cfg.Margin))
		if err != nil {
			return err
		}
		temp.Discard()
		if temp, err = f.sessions.Prepare(target+".json", f.form.room(sessionMargin)); err != nil {
			return err
		}
		temp.Discard()
		return nil
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
	err = s.change(ctx, target, true, func(f *files, lock *lockfile.Lock) error {
		now, err := f.read()
		if err != nil {
			return err
		}
		before, stored := now.record(target)
		if stored && in.OnlyNew {
			return failing(ErrTaken, nil, "something is stored for %s already, and it was left as it is: 'spendonce logout %s' ends it, or choose another name", target, target)
		}
		if old, err := s.readSession(target, false); err == nil {
			replaced = ended(before, old, record)
		}
		p.Replaces = before.fingerprint()
		if err := f.introduce(target); err != nil {
			return err
		}
		err = f.replaceSession(ctx, lock, nil, target, func(old *session) *session {
			next := old.settled(before).clone()
			next.Pending = p
			return next
		})
		if err != nil {
			return notSaved(target, err)
		}
		if err := f.replaceStore(ctx, lock, nil, withRecord(target, record)); err != nil && !f.holds(target, record) {
			return notSaved(target, err)
		} else if err != nil {
			s.warn("the login of %s is saved and may be lost with the power: %v", target, err)
		}
		err = f.replaceSession(ctx, lock, nil, target, func(old *session) *session {
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
	return s.change(ctx, target, false, func(f *files, lock *lockfile.Lock) error {
		// Nothing is written beside a session file that cannot be.
		if _, err := s.readSession(target, false); err != nil {
			return err
		}
		if err := f.introduce(target); err != nil {
			return err
		}
		if err := f.replaceStore(ctx, lock, nil, withRecord(target, Record{Kind: KindStatic, Token: token})); err != nil {
			return err
		}
		return f.replaceSession(ctx, lock, nil, target, func(old *session) *session {
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
	err = s.change(ctx, target, false, func(f *files, lock *lockfile.Lock) error {
		// A session file that cannot be read does not keep anybody signed in.
		old, _ := s.readSession(target, false)
		r, found, err := f.remove(ctx, lock, target)
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

// remove takes the target's record out of the store, then its session file.
// The store lock is held.
func (f *files) remove(ctx context.Context, lock *lockfile.Lock, target string) (r Record, found bool, err error) {
	err = f.replaceStore(ctx, lock, nil, func(now *snapshot) *document {
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
	f.store.sessions.Delete(target)
	switch err = f.sessions.Remove(target + ".json"); {
	case err == nil:
		err = f.sessions.Sync()
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	return r, found, err
}

// change runs f under the store lock, with everything it needs open.
func (s *Store) change(ctx context.Context, target string, patient bool, f func(*files, *lockfile.Lock) error) error {
	if err := CheckName(target); err != nil {
		return err
	}
	files, err := s.openFiles(s.cfg.StaleAfter)
	if err != nil {
		return err
	}
	defer files.close()
	if err := files.openAll(); err != nil {
		return s.changeError(err)
	}
	if files.newKind, err = s.newKind(); err != nil {
		return err
	}
	return withKeys(files.getKey(ctx), func() error { return s.changeOnce(ctx, files, patient, f) })
}

// changeOnce is one hold of the store lock.
func (s *Store) changeOnce(ctx context.Context, files *files, patient bool, f func(*files, *lockfile.Lock) error) error {
	unstage := s.stage("waiting for the store lock")
	lock, err := files.lockStore(ctx, false, lockfile.Request{Brief: true, Patient: patient})
	unstage()
	if err != nil {
		return s.changeError(err)
	}
	defer release(lock, s.warn)
	files.removeOldTemps()
	return s.changeError(f(files, lock))
}

// introduce makes the target's guard: a target that was ever signed in to is
// told from one that nobody knows, and a refresh on a full disk finds the one
// file it writes in place.
func (f *files) introduce(target string) error {
	if _, err := f.locks.Stat(guardName(target)); err == nil {
		return nil
	}
	guard, err := f.locks.OpenKept(guardName(target))
	if err != nil {
		return err
	}
	guard.Close()
	return nil
}

func guardName(target string) string { return target + ".lock.guard" }

// holds reports whether the store now holds this very record.
func (f *files) holds(target string, want Record) bool {
	now, err := f.read()
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
	if at, err := s.locate(); err == nil && !known {
		_, err = durable.StatPath(filepath.Join(at.path, locksDir, guardName(target)))
		known = err == nil
	}
	if !known {
		return failing(ErrUnknownTarget, []error{ErrNoCredential}, "there is no target %s: 'spendonce list' shows those there are, 'spendonce login %s' makes it one", target, target)
	}
	return failing(ErrNoCredential, nil, "nothing is stored for %s: sign in with 'spendonce login %s'", target, target)
}
