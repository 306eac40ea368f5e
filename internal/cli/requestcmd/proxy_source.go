package requestcmd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

// settled is the source of a target in a program that runs for long: somebody
// may sign in meanwhile, at another server. A token that was not seen before
// is given only if the target's URL still has the origin that the program
// sends to.
type settled struct {
	source bearer.Source
	origin bearer.Origin
	now    func() (bearer.Origin, error)

	mu    sync.Mutex
	known secret.Secret
}

func (s *settled) Get(ctx context.Context, req credstore.Request) (credstore.Token, error) {
	token, err := s.source.Get(ctx, req)
	if err != nil && !errors.Is(err, credstore.ErrNotSaved) || token.AccessToken.Empty() {
		return token, err
	}
	s.mu.Lock()
	known := s.known.Equal(token.AccessToken)
	s.mu.Unlock()
	if known {
		return token, err
	}
	switch now, where := s.now(); {
	case where != nil:
		return credstore.Token{}, where
	case now != s.origin:
		return credstore.Token{}, fmt.Errorf("%w: the session is one of %s by now, and this proxy was started for %s: start it again", bearer.ErrElsewhere, now, s.origin)
	}
	s.mu.Lock()
	s.known = token.AccessToken
	s.mu.Unlock()
	return token, err
}
