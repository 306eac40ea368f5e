package credstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/sealed"
)

// Keys gets, makes and drops the keys of sealed files. The package
// credstore/keys implements it. It is called without any lock of the store,
// for it may have to ask a person (but for one case with a received token in
// hand, when it gets a bound), and once for each key: what it returned is kept
// in memory as long as the store is open.
type Keys interface {
	// Kind is what a store that does not exist yet is sealed with; "" means
	// that it is not.
	Kind() (string, error)
	// Key returns the key that the header of a file names.
	Key(ctx context.Context, ref sealed.Ref) (sealed.Key, error)
	// Look is Key without asking, starting or changing anything.
	Look(ctx context.Context, ref sealed.Ref) (sealed.Key, error)
	// Make makes a key of that kind and reads it back from where it is kept;
	// noted is called before it is put there.
	Make(ctx context.Context, noted func(sealed.Ref) error) (sealed.Ref, sealed.Key, error)
	// Drop removes a key that no file names any more from where it is kept.
	Drop(ctx context.Context, ref sealed.Ref) error
}

// form is how a file is written: sealed under a key, or, if nil, in plain. A
// file says itself which form it has. Writers keep that of the store.
type form struct {
	ref sealed.Ref
	key sealed.Key
}

func (f *form) id() string {
	if f == nil {
		return ""
	}
	return f.ref.ID
}

func (f *form) kind() string {
	if f == nil {
		return ""
	}
	return f.ref.Kind
}

// What a sealed file was sealed as is part of what is authenticated.
const storeRole = "store"

func sessionRole(target string) string { return "session\x00" + target }

// seal returns the bytes of the file in that form. limit is that of its
// readers.
func (f *form) seal(role string, plain []byte, limit int) ([]byte, error) {
	if f == nil {
		return plain, nil
	}
	b, err := sealed.Seal(f.ref, role, f.key, plain)
	if err == nil && len(b) > limit {
		err = fmt.Errorf("%d bytes, sealed, are over the bound of %d: %w", len(b), limit, durable.ErrTooLarge)
	}
	return b, err
}

// room is what must be free beyond a file's old size, so that it may grow by
// margin.
func (f *form) room(margin int64) int64 {
	if f == nil {
		return margin
	}
	return sealed.Size(f.ref, margin)
}

// keyNeeded is in the tree of the error of a reading that needs a key which
// this process does not have. Whoever holds no lock fetches it and reads
// again; whoever holds one gives it up first.
type keyNeeded struct {
	path string
	ref  sealed.Ref
	make bool // there is no file yet, and a key is to be made
	keys Keys // where from; nil: [Config.Keys]
}

func (k *keyNeeded) Error() string { return "a key is needed" }

func needed(err error) *keyNeeded {
	var need *keyNeeded
	if errors.As(err, &need) {
		return need
	}
	return nil
}

func needing(need *keyNeeded) error {
	return failing(ErrKey, []error{need}, "%s is sealed and its key is not at hand", need.path)
}

// unseal returns what the file holds, and its form. Bytes in plain cost one
// comparison.
func (s *Store) unseal(path, role string, b []byte) ([]byte, *form, error) {
	if !sealed.Is(b) {
		return b, nil, nil
	}
	file, err := sealed.Parse(b)
	if err != nil {
		return nil, nil, sealDamage(path, err)
	}
	had, _ := s.keys.Load(file.Ref.ID)
	key, ok := had.(sealed.Key)
	if !ok {
		return nil, nil, needing(&keyNeeded{path: path, ref: file.Ref})
	}
	f := &form{file.Ref, key}
	plain, err := file.Open(role, f.key)
	if err != nil {
		return nil, nil, sealDamage(path, err)
	}
	return plain, f, nil
}

func sealDamage(path string, err error) error {
	if errors.Is(err, sealed.ErrVersion) {
		return failing(ErrDamaged, []error{err}, "%s cannot be opened (%v); it was left untouched and nothing was sent: use that version", path, err)
	}
	return failing(ErrDamaged, []error{err}, "%s cannot be opened (%v); it was left untouched and nothing was sent: restore it from a backup, or move it aside (mv %s %s.damaged) and sign in again", path, err, path, path)
}

// keyRounds bounds how often a key may change between its fetching and the
// reading with it.
const keyRounds = 10

// withKeys runs run, which holds no lock when it returns, again and again with
// the keys that it turns out to need. A key that cannot be had because the
// files have just got another one is not missed.
func withKeys(get func(*keyNeeded) error, run func() error) error {
	var failed error
	var missing string
	for range keyRounds {
		err := run()
		need := needed(err)
		if need == nil {
			return err
		}
		if failed != nil && need.ref.ID == missing {
			return failed
		}
		failed, missing = get(need), need.ref.ID
	}
	return keyChanges()
}

// reading is for who reads and holds no lock.
func (s *Store) reading(ctx context.Context, read func() error) error {
	return withKeys(func(need *keyNeeded) error { return s.fetch(ctx, need) }, read)
}

// getKey is for who changes something, between two holds of the locks.
func (f *files) getKey(ctx context.Context) func(*keyNeeded) error {
	return func(need *keyNeeded) error {
		if !need.make {
			return f.store.fetch(ctx, need)
		}
		fresh, err := f.makeKey(ctx)
		if fresh != nil {
			f.store.fresh.Store(fresh)
		}
		return err
	}
}

func keyChanges() error {
	return failing(ErrTemporary, nil, "the key of the store changes faster than it can be had: try again")
}

// keysFor is where the key is to be had from; nil if there is no way.
func (s *Store) keysFor(need *keyNeeded) Keys {
	if need.keys != nil {
		return need.keys
	}
	return s.cfg.Keys
}

// fetch gets a key and keeps it in memory.
func (s *Store) fetch(ctx context.Context, need *keyNeeded) error {
	keys := s.keysFor(need)
	if keys == nil {
		return failing(ErrKey, nil, "%s is sealed with %s, and this program has no way to get keys", need.path, need.ref)
	}
	defer s.stage("waiting for the key of the store")()
	return s.keep(ctx, need, keys.Key)
}

func (s *Store) keep(ctx context.Context, need *keyNeeded, get func(context.Context, sealed.Ref) (sealed.Key, error)) error {
	key, err := get(ctx, need.ref)
	if err == nil && key.ID() != need.ref.ID {
		err = sealed.ErrKey
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return failing(ErrKey, []error{err}, "%s is sealed with %s, which cannot be had, so it was left untouched and nothing was sent: %v", need.path, need.ref, err)
	}
	s.keys.Store(need.ref.ID, key)
	return nil
}

// read reads the store's bytes, for whoever holds its lock. A store that is
// missing will be in the form that is configured.
func (f *files) read() (*snapshot, error) {
	v, err := f.store.readIn(f.dir, f.at.base)
	if err != nil {
		return nil, err
	}
	f.form = v.form
	if v.exists || f.newKind == "" {
		return v, nil
	}
	// Its key is made without the lock, so it may have been dropped since.
	fresh := f.store.fresh.Load()
	if fresh == nil || fresh.ref.Kind != f.newKind || !f.noted(fresh) {
		return nil, needing(&keyNeeded{path: f.dir.Join(f.at.base), make: true})
	}
	f.form = fresh
	return v, nil
}

// makeKey makes a key of the kind that is configured. No lock is held but,
// for a moment, that of the store. Both results are nil if another process
// took the key for one that nobody needs before it was read back: there is
// reason to try again.
func (f *files) makeKey(ctx context.Context) (*form, error) {
	s := f.store
	defer s.stage("making a key for the store")()
	var noted *form
	ref, key, err := s.cfg.Keys.Make(ctx, func(ref sealed.Ref) error {
		noted = &form{ref: ref}
		return f.note(ctx, ref)
	})
	if ctx.Err() == nil && kindOf(err) == nil && noted != nil && !f.noted(noted) {
		// Its dropper may have been there before the key was: then nobody
		// else removes it.
		if err := s.cfg.Keys.Drop(ctx, noted.ref); err != nil {
			s.warn("a key that nothing needs stays in the keyring: %v", err)
		}
		return nil, nil //nolint:nilnil // as said above
	}
	switch {
	case err != nil && (ctx.Err() != nil || kindOf(err) != nil):
		return nil, err
	case err != nil:
		return nil, failing(ErrKey, []error{err}, "no key for the store could be made, so nothing was changed: %v", err)
	}
	s.keys.Store(ref.ID, key)
	return &form{ref, key}, nil
}

// newKind is what a store that does not exist yet is sealed with.
func (s *Store) newKind() (string, error) {
	if s.cfg.Keys == nil {
		return "", nil
	}
	kind, err := s.cfg.Keys.Kind()
	if err != nil {
		return "", failing(ErrConfig, []error{err}, "it cannot be read how the store is to be kept, so nothing was changed: %v", err)
	}
	return kind, nil
}
