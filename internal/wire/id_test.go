package wire_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/wire"
)

func TestAnIDHasOneSpelling(t *testing.T) {
	good := strings.Repeat("-", 20) + "_azAZ09" + strings.Repeat("x", 15) + "w"
	for _, c := range []struct {
		name string
		id   string
		want bool
	}{
		{"43 characters", good, true},
		{"all bits zero", strings.Repeat("A", 43), true},
		{"all bits one", strings.Repeat("_", 42) + "8", true},
		{"empty", "", false},
		{"one short", good[1:], false},
		{"one more", "A" + good, false},
		{"padded", good + "=", false},
		{"padding within", "=" + good[1:], false},
		{"last character a padding", good[:42] + "=", false},
		{"spare bit", good[:42] + "x", false},
		{"other spare bit", good[:42] + "y", false},
		{"the standard alphabet's plus", "+" + good[1:], false},
		{"the standard alphabet's slash", "/" + good[1:], false},
		{"a newline, which encoding/base64 skips", good[:20] + "\n" + good[21:], false},
		{"a newline more", good + "\n", false},
		{"a newline before", "\n" + good, false},
		{"a return, which encoding/base64 skips", "\r" + good[1:], false},
		{"a space", " " + good[1:], false},
		{"a NUL", "\x00" + good[1:], false},
		{"a high byte", "\xff" + good[1:], false},
		{"43 bytes of wide letters", strings.Repeat("ſ", 21) + "w", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := wire.ValidID(c.id); got != c.want {
				t.Fatalf("ValidID(%q) = %t", c.id, got)
			}
		})
	}
}

func TestEachCharacterOfAnIDIsLookedAt(t *testing.T) {
	for i := range len(someID) {
		if id := someID[:i] + "." + someID[i+1:]; wire.ValidID(id) {
			t.Errorf("%q is valid", id)
		}
	}
}

// The last character has 64 values and 16 of them have no spare bits.
func TestOneInFourLastCharactersIsCanonical(t *testing.T) {
	strict := base64.RawURLEncoding.Strict()
	valid := 0
	for c := range 256 {
		id := strings.Repeat("q", 42) + string([]byte{byte(c)})
		got := wire.ValidID(id)
		if _, err := strict.DecodeString(id); len(id) == 43 && c != '\n' && c != '\r' && got != (err == nil) {
			t.Errorf("ValidID(%q) = %t, and encoding/base64 says %v", id, got, err)
		}
		if got {
			valid++
		}
	}
	if valid != 16 {
		t.Fatalf("%d last characters are valid", valid)
	}
}

func TestANewIDIsValidAndNew(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := wire.NewID().Reveal()
		if !wire.ValidID(id) {
			t.Fatalf("NewID gave %q", id)
		}
		if seen[id] {
			t.Fatal("NewID gave one id twice")
		}
		seen[id] = true
	}
}

func TestANewIDHas256Bits(t *testing.T) {
	var or, and [32]byte
	for i := range and {
		and[i] = 0xff
	}
	for range 200 {
		b, err := base64.RawURLEncoding.DecodeString(wire.NewID().Reveal())
		if err != nil || len(b) != 32 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		for i := range b {
			or[i] |= b[i]
			and[i] &= b[i]
		}
	}
	for i := range or {
		if or[i] != 0xff || and[i] != 0 {
			t.Fatalf("byte %d has bits that never change", i)
		}
	}
}

func FuzzValidID(f *testing.F) {
	f.Add(strings.Repeat("A", 43))
	f.Add(strings.Repeat("A", 42) + "B")
	f.Add(strings.Repeat("A", 42) + "\n")
	f.Add(strings.Repeat("A", 43) + "\r")
	f.Fuzz(func(t *testing.T, s string) {
		b, err := base64.RawURLEncoding.DecodeString(s)
		want := err == nil && len(b) == 32 && base64.RawURLEncoding.EncodeToString(b) == s
		if got := wire.ValidID(s); got != want {
			t.Fatalf("ValidID(%q) = %t, want %t", s, got, want)
		}
	})
}
