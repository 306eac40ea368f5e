// Package keys gets, makes and keeps the data keys of sealed stores: in the
// keyring of the desktop (the Secret Service), or encrypted to age recipients
// in the sealed files themselves.
//
// credstore knows neither: a program that seals its store hands a [Keys] to
// it.
package keys

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/spendonce/spendonce/internal/sealed"
)

// The kinds of keys, as they stand in a file's header.
const (
	KindKeyring = "keyring"
	KindAge     = "age"
)

// Config says which key new files are sealed with.
type Config struct {
	// Key is "" (new stores are not sealed), "keyring", or "age:" and the path
	// of a file with age identities.
	Key string
	// Recipients are further age recipients: who holds one of their
	// identities can open the store too.
	Recipients []string
	// Identities are paths of further files with age identities, to open
	// what was sealed to them.
	Identities []string
}

// Keys gets keys where their headers say that they are. It is safe for
// concurrent use and must not be copied. The zero value opens what the
// keyring holds the key of, and seals nothing.
type Keys struct {
	// Config is asked when it is first needed: a file in plain needs none,
	// and one whose key is in the keyring says so itself.
	Config func() (Config, error)
	// Wait bounds a call to the keyring, which may ask a person to unlock it.
	// Zero means a minute.
	Wait time.Duration

	calls singleflight.Group // calls to the keyring, by what they ask for
}

// lookBound is how long who only looks waits for the bus.
const lookBound = 3 * time.Second

func (k *Keys) config() (Config, error) {
	if k.Config == nil {
		return Config{}, nil
	}
	return k.Config()
}

func (k *Keys) wait() time.Duration {
	if k.Wait <= 0 {
		return time.Minute
	}
	return k.Wait
}

// Kind returns what new stores are sealed with; "" means that they are not.
func (k *Keys) Kind() (string, error) {
	c, err := k.config()
	if err != nil {
		return "", err
	}
	kind, _, _ := strings.Cut(c.Key, ":")
	return kind, nil
}

// Key returns the key that ref names. The keyring may ask a person first.
func (k *Keys) Key(ctx context.Context, ref sealed.Ref) (sealed.Key, error) {
	switch ref.Kind {
	case KindKeyring:
		return k.fromKeyring(ctx, ref.ID)
	case KindAge:
		return k.unwrap(ref)
	default:
		return sealed.Key{}, unknownKind(ref.Kind)
	}
}

// Look is [Keys.Key] for who must not disturb: nobody is asked, no service is
// started, and the answer comes within seconds.
func (k *Keys) Look(ctx context.Context, ref sealed.Ref) (sealed.Key, error) {
	if ref.Kind != KindKeyring {
		return k.Key(ctx, ref)
	}
	bound := min(lookBound, k.wait())
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	key, err := look(ctx, ref.ID, false)
	return key, late(ctx, bound, err)
}

// Make makes a key of the kind that [Keys.Kind] says, puts it where it is
// kept, and reads it back from there. noted is called before it is put
// anywhere, so that what a crash leaves behind can be found.
func (k *Keys) Make(ctx context.Context, noted func(sealed.Ref) error) (sealed.Ref, sealed.Key, error) {
	c, err := k.config()
	if err != nil {
		return sealed.Ref{}, sealed.Key{}, err
	}
	key := sealed.NewKey()
	ref := sealed.Ref{Kind: KindKeyring, ID: key.ID()}
	identities, isAge := strings.CutPrefix(c.Key, "age:")
	switch {
	case isAge:
		if ref, err = wrap(key, identities, c.Recipients); err != nil {
			return sealed.Ref{}, sealed.Key{}, err
		}
	case c.Key != KindKeyring:
		return sealed.Ref{}, sealed.Key{}, unknownKind(c.Key)
	}
	if err := noted(ref); err != nil {
		return sealed.Ref{}, sealed.Key{}, err
	}
	if ref.Kind == KindKeyring {
		if err := k.toKeyring(ctx, key); err != nil {
			return sealed.Ref{}, sealed.Key{}, err
		}
	}
	back, err := k.Key(ctx, ref)
	if err != nil {
		return sealed.Ref{}, sealed.Key{}, fmt.Errorf("a key was made and cannot be read back: %w", err)
	}
	if back.ID() != key.ID() {
		return sealed.Ref{}, sealed.Key{}, errors.New("a key was made and another one was read back")
	}
	return ref, key, nil
}

// Drop removes the key from where [Keys.Make] put it. A missing one is no
// error.
func (k *Keys) Drop(ctx context.Context, ref sealed.Ref) error {
	if ref.Kind != KindKeyring {
		return nil // it goes with the files
	}
	return k.outOfKeyring(ctx, ref.ID)
}

func unknownKind(kind string) error {
	return fmt.Errorf("a key of the kind %.20q is not known to this version", kind)
}
