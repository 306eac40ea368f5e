package credstore

import (
	"context"

	"github.com/spendonce/spendonce/internal/sealed"
)

// peeking opens sealed files for who only looks: nobody is asked for a key,
// and one that cannot be had is asked for once.
type peeking struct {
	store  *Store
	failed map[string]error // by the key's id
}

func (s *Store) peek() *peeking { return &peeking{s, map[string]error{}} }

// seal runs read, with the key that it needs if that is there to be had, and
// says how the file is kept.
func (p *peeking) seal(read func() (*form, error)) (seal Seal, err error) {
	var f *form
	err = withKeys(func(need *keyNeeded) error {
		seal = Seal{Kind: need.ref.Kind, Key: need.ref.ID}
		seal.KeyErr = p.get(need)
		return seal.KeyErr
	}, func() (err error) {
		f, err = read()
		return err
	})
	if err == nil {
		seal = Seal{}
		if f != nil {
			seal = Seal{Kind: f.kind(), Key: f.id()}
		}
	}
	return seal, err
}

func (p *peeking) get(need *keyNeeded) error {
	if err, again := p.failed[need.ref.ID]; again {
		return err
	}
	keys := p.store.keysFor(need)
	err := p.store.keep(context.Background(), need, func(ctx context.Context, ref sealed.Ref) (sealed.Key, error) {
		if keys == nil {
			return sealed.Key{}, failing(ErrKey, nil, "this program has no way to get keys")
		}
		return keys.Look(ctx, ref)
	})
	if err != nil {
		p.failed[need.ref.ID] = err
	}
	return err
}
