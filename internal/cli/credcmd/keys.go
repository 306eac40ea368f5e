package credcmd

import (
	"context"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/sealed"
)

// keys gets the keys of sealed stores as the configuration says, which change
// may correct. It is read when a key is wanted, and not before.
func (a *App) keys(change func(*keys.Config)) *keys.Keys {
	return &keys.Keys{Config: func() (keys.Config, error) {
		c, err := a.Config()
		if err != nil {
			return keys.Config{}, err
		}
		k := keys.Config{Key: c.Store.Key, Recipients: c.Store.Recipients}
		if change != nil {
			change(&k)
		}
		return k, nil
	}}
}

// quietKeys asks nobody for a key: a completion must not open a window.
type quietKeys struct{ credstore.Keys }

func (k quietKeys) Key(ctx context.Context, ref sealed.Ref) (sealed.Key, error) {
	return k.Look(ctx, ref)
}
