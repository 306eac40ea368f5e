package credstore_test

import (
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
)

// A fresh token in process: the question of every request.
func BenchmarkFreshToken(b *testing.B) {
	dir := b.TempDir()
	s, err := credstore.Open(credstore.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	in := signedIn("R0", "A0")
	in.Tokens.ExpiresAt = time.Now().Add(time.Hour)
	if err := onlyError(s.Login(b.Context(), box, in)); err != nil {
		b.Fatal(err)
	}
	src, err := s.Source(credstore.SourceConfig{Target: box, Exchange: (&authority{}).exchange})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := src.Get(b.Context(), credstore.Request{}); err != nil {
			b.Fatal(err)
		}
	}
}
