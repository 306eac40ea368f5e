package credstore

import (
	"context"

	"github.com/spendonce/spendonce/internal/secret"
)

// Holds reports whether token is the very one that the target has now,
// whether or not it is still valid. It takes no lock and asks no server.
func (src *Source) Holds(token secret.Secret) (bool, error) {
	if token.Empty() {
		return false, nil
	}
	if t, ok, err := src.override(Request{}); ok || err != nil {
		return ok && t.AccessToken.Equal(token), err
	}
	var snap *snapshot
	err := src.store.reading(context.Background(), func() (err error) {
		snap, err = src.medium.read(src.cfg.Target, true)
		return err
	})
	if err != nil {
		return false, err
	}
	r, stored := snap.record(src.cfg.Target)
	return stored && (r.AccessToken.Equal(token) || r.Token.Equal(token)), nil
}
