package keys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/spendonce/spendonce/internal/sealed"
	"github.com/spendonce/spendonce/internal/secret"
)

// service names our items in the keyring; each is under the id of its key.
const service = "spendonce"

var (
	// ErrNoKeyring: there is no keyring to be asked.
	ErrNoKeyring = errors.New("no keyring")
	// ErrNotInKeyring: the keyring answers and has no such key.
	ErrNotInKeyring = errors.New("not in the keyring")
	// ErrKeyringLocked: the keyring has the key and is locked.
	ErrKeyringLocked = errors.New("the keyring is locked")
)

// fromKeyring asks an open keyring in three messages, and has it unlocked,
// which may take a person's time, only if that does not give the key.
func (k *Keys) fromKeyring(ctx context.Context, id string) (sealed.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, k.wait())
	defer cancel()
	key, err := look(ctx, id, true)
	if err == nil || errors.Is(err, ErrNoKeyring) || ctx.Err() != nil {
		return key, late(ctx, k.wait(), err)
	}
	text, err := k.call(ctx, "get "+id, func() (secret.Secret, error) {
		text, err := keyring.Get(service, id)
		return secret.New(text), err
	})
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		return sealed.Key{}, notThere(id)
	case err != nil:
		return sealed.Key{}, late(ctx, k.wait(), fmt.Errorf("the keyring was not unlocked (%w): unlock it, or run this where it can ask you", err))
	}
	return parse(id, text)
}

func (k *Keys) toKeyring(ctx context.Context, key sealed.Key) error {
	return k.change(ctx, "set "+key.ID(), func() error { return keyring.Set(service, key.ID(), key.Text().Reveal()) })
}

func (k *Keys) outOfKeyring(ctx context.Context, id string) error {
	err := k.change(ctx, "delete "+id, func() error { return keyring.Delete(service, id) })
	if err == nil || errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	// Somebody else may be removing it at this moment.
	ctx, cancel := context.WithTimeout(ctx, min(lookBound, k.wait()))
	defer cancel()
	if _, gone := look(ctx, id, true); errors.Is(gone, ErrNotInKeyring) {
		return nil
	}
	return err
}

func (k *Keys) change(ctx context.Context, what string, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, k.wait())
	defer cancel()
	// The library would start a bus of its own where there is none.
	if err := reachable(ctx); err != nil {
		return late(ctx, k.wait(), err)
	}
	_, err := k.call(ctx, what, func() (secret.Secret, error) { return secret.Secret{}, do() })
	if err == nil || errors.Is(err, keyring.ErrNotFound) {
		return err
	}
	return late(ctx, k.wait(), fmt.Errorf("the keyring could not be changed (%w): unlock it, or run this where it can ask you", err))
}

// call runs f, which knows no context, until it ends or ctx does. What hangs
// is joined by the next who asks for the same: at most one goroutine waits for
// one thing.
func (k *Keys) call(ctx context.Context, what string, f func() (secret.Secret, error)) (secret.Secret, error) {
	done := k.calls.DoChan(what, func() (any, error) { return f() })
	select {
	case r := <-done:
		text, _ := r.Val.(secret.Secret)
		return text, r.Err
	case <-ctx.Done():
		return secret.Secret{}, ctx.Err()
	}
}

// late words what the bound of a call ended.
func late(ctx context.Context, bound time.Duration, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the keyring did not answer within %s: does it ask for a password somewhere?", bound)
	}
	return err
}

func notThere(id string) error {
	return fmt.Errorf("the keyring of this session has no key %s (%w): use the session in which the store was sealed, "+
		"or restore the keyring; without the key nothing can read the files", id[:min(8, len(id))], ErrNotInKeyring)
}

func parse(id string, text secret.Secret) (sealed.Key, error) {
	key, err := sealed.ParseKey(text)
	if err != nil || key.ID() != id {
		return sealed.Key{}, fmt.Errorf("what the keyring holds as key %s is another thing", id[:min(8, len(id))])
	}
	return key, nil
}
