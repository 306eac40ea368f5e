package credstore_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/sealed"
)

// memoryKeys is a keyring that takes no time, for sweeps: a real one writes
// its file at every change. The kills are over a real one.
type memoryKeys struct {
	mu   sync.Mutex
	kept map[string]sealed.Key
}

func (m *memoryKeys) Kind() (string, error) { return keys.KindKeyring, nil }

func (m *memoryKeys) Key(_ context.Context, ref sealed.Ref) (sealed.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, ok := m.kept[ref.ID]
	if !ok {
		return sealed.Key{}, errors.New("no such key")
	}
	return key, nil
}

func (m *memoryKeys) Look(ctx context.Context, ref sealed.Ref) (sealed.Key, error) {
	return m.Key(ctx, ref)
}

func (m *memoryKeys) Make(_ context.Context, noted func(sealed.Ref) error) (sealed.Ref, sealed.Key, error) {
	key := sealed.NewKey()
	ref := sealed.Ref{Kind: keys.KindKeyring, ID: key.ID()}
	if err := noted(ref); err != nil {
		return sealed.Ref{}, sealed.Key{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[ref.ID] = key
	return ref, key, nil
}

func (m *memoryKeys) Drop(_ context.Context, ref sealed.Ref) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, ref.ID)
	return nil
}

func (m *memoryKeys) items() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.kept))
}
