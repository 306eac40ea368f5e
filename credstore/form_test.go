package credstore_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/internal/sealed"
)

// The suites run over every form of a store: a test run with these variables
// finds and leaves sealed files wherever it would otherwise find and leave
// files in plain. See TestStormAndSuitesHoldOverSealedStores.
const (
	formVariable     = "CREDSTORE_TEST_FORM" // "", "age" or "keyring"
	identityVariable = "CREDSTORE_TEST_IDENTITY"
)

// formKeys are the keys of the form that this process runs over; nil if that
// is plain.
func formKeys() credstore.Keys {
	switch os.Getenv(formVariable) {
	case keys.KindAge:
		return keysWith(keys.Config{Key: "age:" + os.Getenv(identityVariable)})
	case keys.KindKeyring:
		return keysWith(keys.Config{Key: keys.KindKeyring})
	default:
		return nil
	}
}

func keysWith(c keys.Config) *keys.Keys {
	return &keys.Keys{Config: func() (keys.Config, error) { return c, nil }, Wait: 30 * time.Second}
}

// made is the key that what tests put is sealed with, one for each process.
var made = sync.OnceValues(func() (seal func(role string, b []byte) []byte, err error) {
	k := formKeys()
	if k == nil {
		return func(_ string, b []byte) []byte { return b }, nil
	}
	ref, key, err := k.Make(context.Background(), func(sealed.Ref) error { return nil })
	if err != nil {
		return nil, err
	}
	return func(role string, b []byte) []byte {
		sealedBytes, err := sealed.Seal(ref, role, key, b)
		if err != nil {
			panic(err)
		}
		return sealedBytes
	}, nil
})

// inForm is what stands in a file of that role which holds b.
func inForm(t *testing.T, role string, b []byte) []byte {
	t.Helper()
	seal, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return seal(role, b)
}

const storeRole = "store"

func sessionRole(target string) string { return "session\x00" + target }

// opened is what the file holds, whatever its form.
func opened(t *testing.T, path, role string, by ...credstore.Keys) []byte {
	t.Helper()
	b := []byte(bytesOf(t, path))
	if !sealed.Is(b) {
		return b
	}
	f, err := sealed.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	by = append(by, formKeys())
	key, err := by[0].Key(t.Context(), f.Ref)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := f.Open(role, key)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("it does not parse: %v", err)
	}
}

// onlyInPlain skips what a sealed store is not for, and says why.
func onlyInPlain(t *testing.T, why string) {
	t.Helper()
	if form := os.Getenv(formVariable); form != "" {
		t.Log("nothing to be shown over a store sealed with " + form + ": " + why)
		t.SkipNow()
	}
}
