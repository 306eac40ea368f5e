package credstore

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/lockfile"
)

// Move takes a target's session to this machine's file, or to the shared
// store, and reports whether there was anything to do. [Config.Shared] must
// name the target.
//
// It may end anywhere, by a signal, a kill or the power, and the next call
// goes on. At any time at most one copy of the session can be refreshed:
//
//	the source has it                           nothing was done
//	the source has it, frozen                   nobody refreshes it
//	the source has it, frozen; so has the other the other one is refreshed
//	the other has it                            done
//
// A move in the opposite direction takes back what was begun. Both target
// locks are held throughout, that of the file first.
func (s *Store) Move(ctx context.Context, target string, toShared bool, set Settings) (moved bool, err error) {
	if err := CheckName(target); err != nil {
		return false, err
	}
	if s.shared == nil {
		return false, failing(ErrConfig, nil, "no shared store is configured, so %s cannot be moved", target)
	}
	file := &side{store: s, target: target, at: s.path}
	if file.access, err = (disk{s}).open(s.cfg.StaleAfter); err != nil {
		return false, err
	}
	defer file.close()
	remote := &side{store: s, target: target, at: s.shared.in.Name(target)}
	remote.access = &remoteAccess{remote: s.shared, staleAfter: s.cfg.StaleAfter, nested: true}
	for _, d := range []*side{file, remote} {
		if err := d.hold(ctx); err != nil {
			return false, s.changeError(err)
		}
		defer release(d.lock, s.warn)
	}
	m := move{from: file, to: remote, settings: set}
	if !toShared {
		m.from, m.to = remote, file
	}
	return m.run(ctx)
}

// side is one of the places, with the target's lock.
type side struct {
	access
	store  *Store
	target string
	at     string // for messages
	lock   mutex
}

func (d *side) hold(ctx context.Context) (err error) {
	if err := d.prepare(); err != nil {
		return err
	}
	if err := d.forNew(); err != nil {
		return err
	}
	defer d.store.stage("waiting for another process that refreshes %s", d.target)()
	d.lock, err = d.lockTarget(ctx, d.target, nil)
	return err
}

// change runs f in a transaction, if the target's lock is still held.
func (d *side) change(ctx context.Context, f func(transaction, view) error) error {
	begin := func() (transaction, error) {
		if err := errors.Join(d.lock.Step(), d.lock.Check()); err != nil {
			return nil, err
		}
		return d.begin(ctx, d.target, d.lock, lockfile.Request{Brief: true}, d.store.warn)
	}
	err := withKeys(d.getKey(ctx), func() error {
		return transact(begin, func(tx transaction) error {
			v, err := stored(tx, d.target)
			if err != nil {
				return err
			}
			return f(tx, v)
		})
	})
	if errors.Is(err, lockfile.ErrLost) {
		return failing(ErrLocked, []error{err}, "the lock of %s was lost while its session was moved: run the same command again", d.target)
	}
	cause := err
	if err = d.store.changeError(err); errors.Is(err, ErrNotWritable) {
		return failing(ErrNotWritable, []error{err}, "%s cannot be changed, so the session of %s is not wholly moved: make it writable and run the same command again (%v)", d.at, d.target, cause)
	}
	return err
}

// copied is what is moved.
type copied struct {
	view
	raw jsontext.Value // the record, with the members that another version wrote
}

// look is what is there, on disk.
func (d *side) look(ctx context.Context) (c copied, err error) {
	err = d.change(ctx, func(tx transaction, now view) error {
		snap, err := tx.read()
		if err != nil {
			return err
		}
		c.raw, _ = snap.doc.get(d.target)
		c.view = now
		c.mark = d.lock.Mark()
		return tx.sync()
	})
	return c, err
}

// stored reads a target's record and the session that belongs to it.
func stored(tx transaction, target string) (v view, err error) {
	now, err := tx.read()
	if err != nil {
		return v, err
	}
	v = view{target: target, now: time.Now()}
	v.record, v.stored = now.record(target)
	session, err := tx.readSession(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	v.session = session.settled(v.record)
	return v, nil
}

func (v view) login() string {
	if !v.stored || v.session == nil {
		return ""
	}
	return v.session.LoginID
}

func (v view) moving() bool { return v.session != nil && v.session.Moving }

type move struct {
	from, to *side
	settings Settings
}

func (m move) run(ctx context.Context) (moved bool, err error) {
	src, err := m.from.look(ctx)
	if err != nil {
		return false, err
	}
	dst, err := m.to.look(ctx)
	if err != nil {
		return false, err
	}
	same := src.login() != "" && src.login() == dst.login()
	switch {
	case !src.stored && !dst.stored:
		return false, m.from.store.noCredential(m.from.target)
	case !src.stored && dst.moving(): // a move from there was begun, and this takes it back
		return true, m.to.freeze(ctx, dst.login(), false)
	case !src.stored:
		return src.session != nil, m.from.remove(ctx, src.login())
	case dst.stored && !same:
		return false, failing(ErrTaken, nil, "%s and %s each hold a session of %s, so neither was touched: end one with 'spendonce logout %s' while the configuration keeps the target there",
			m.from.at, m.to.at, m.from.target, m.from.target)
	case same && src.moving() && !dst.moving():
		return true, m.from.remove(ctx, src.login())
	case same && dst.moving() && !src.moving(): // what was copied from there; this one has gone on since
		if err := m.to.remove(ctx, dst.login()); err != nil {
			return false, err
		}
	case same:
		return false, failing(ErrTaken, nil, "%s and %s hold the same session of %s and it is not known which has gone on, so neither was touched: sign in anew with 'spendonce login %s'",
			m.from.at, m.to.at, m.from.target, m.from.target)
	}
	if err := m.movable(src.view); err != nil {
		return false, err
	}
	if err := m.from.freeze(ctx, src.login(), true); err != nil {
		return false, err
	}
	if err := m.to.put(ctx, src); err != nil {
		return false, err
	}
	return true, m.from.remove(ctx, src.login())
}

// movable says why a session has to stay where it is.
func (m move) movable(v view) error {
	target := v.target
	switch {
	case v.record.Kind == KindStatic:
		return failing(ErrConfig, nil, "%s has a static token, which is not moved: store it again with 'spendonce login %s --token-file FILE'", target, target)
	case v.login() == "" || v.session.Pin == nil || v.session.UnknownServer:
		return failing(ErrLoginRequired, nil, "it is not known which server the session of %s belongs to: sign in again with 'spendonce login %s'", target, target)
	case v.marked(lockfile.MarkSent):
		return failing(ErrTemporary, []error{ErrOutcomeUnknown},
			"the last refresh of %s, %s, ended without an answer: let the configuration keep it at %s, run 'spendonce token %s --refresh', and move it then",
			target, v.mark.At.UTC().Format(time.RFC3339), m.from.at, target)
	}
	set := m.settings
	if v.session.Pin.Dialect != "" {
		set.Pin.Dialect = v.session.Pin.Dialect
	}
	if set.scope() == ScopeStore {
		return failing(ErrConfig, nil, "%s shares its record with a program that reads this machine's file only (%s), so it is not moved", target, set.sharing())
	}
	return nil
}

// freeze keeps everybody from refreshing the session, or lets them again.
func (d *side) freeze(ctx context.Context, login string, frozen bool) error {
	return d.change(ctx, func(tx transaction, now view) error {
		if now.login() != login {
			return movedOn(d.target)
		}
		return tx.replaceSession(ctx, nil, d.target, func(*session) *session {
			next := now.session.clone()
			next.Moving = frozen
			return next
		})
	})
}

// put makes the session one that is refreshed here. Nothing else may be here.
func (d *side) put(ctx context.Context, v copied) error {
	next := v.session.clone()
	next.Moving = false
	for state, outcome := range map[lockfile.MarkState]string{lockfile.MarkSpent: refusedOutcome, lockfile.MarkRefused: refusedOutcome, lockfile.MarkUnknown: unknownOutcome} {
		if v.marked(state) { // the mark itself stays behind
			next.RefreshToken, next.LoginRequired = v.record.RefreshToken.Fingerprint(), outcome
		}
	}
	return d.change(ctx, func(tx transaction, now view) error {
		if now.stored && now.login() == v.login() && !now.moving() {
			return nil // by an attempt of which we heard that it failed
		}
		if now.stored {
			return movedOn(d.target)
		}
		if err := tx.introduce(d.target); err != nil {
			return err
		}
		if err := tx.replaceSession(ctx, nil, d.target, func(*session) *session { return next }); err != nil {
			return err
		}
		return tx.replaceStore(ctx, nil, func(now *snapshot) *document {
			doc := now.doc.clone()
			doc.set(d.target, v.raw)
			return doc
		})
	})
}

// remove removes a copy that is frozen, or what a removal has left.
func (d *side) remove(ctx context.Context, login string) error {
	return d.change(ctx, func(tx transaction, now view) error {
		if now.stored && (now.login() != login || !now.moving()) {
			return movedOn(d.target)
		}
		_, _, err := remove(ctx, tx, d.target)
		return err
	})
}

func movedOn(target string) error {
	return failing(ErrTemporary, nil, "the session of %s changed while it was moved: run the same command again", target)
}

// Rekey seals the value of a shared target with a new key, to whoever the
// configuration names now. It reports whether there is a value.
func (s *Store) Rekey(ctx context.Context, target string) (there bool, err error) {
	if !s.isShared(target) {
		return false, failing(ErrConfig, nil, "%s is not kept in a shared store", target)
	}
	d := &side{store: s, target: target, at: s.shared.in.Name(target)}
	d.access = &remoteAccess{remote: s.shared, staleAfter: s.cfg.StaleAfter}
	if err := d.hold(ctx); err != nil {
		return false, err
	}
	defer release(d.lock, s.warn)
	var fresh *form
	err = d.change(ctx, func(tx transaction, _ view) error {
		t, ok := tx.(*remoteChange)
		if there = ok && t.base.version != 0; !there {
			return nil
		}
		if fresh == nil {
			var err error
			if fresh, err = s.shared.newForm(ctx, d.at); err != nil {
				return err
			}
		}
		t.reseal(fresh)
		return nil
	})
	return there, err
}
