// Package secret holds values that must never be printed: access tokens,
// refresh tokens, authorization codes, PKCE verifiers, client secrets.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// redacted stands for every secret in every printing.
const redacted = "[redacted]"

// Secret is a string that no printing shows: fmt with any verb, JSON, text
// encoding and slog all write "[redacted]". The zero value is the empty
// secret.
//
// The value sits behind a pointer, so that even a Secret in an unexported
// field of somebody else's struct, where fmt cannot call our methods, prints
// as an address. Secrets are compared with [Secret.Equal]; == compares
// addresses.
type Secret struct{ value *string }

// New wraps value.
func New(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{&value}
}

// Reveal returns the value itself. Its callers are listed by the
// architecture test: a new one is a decision, not an accident.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == nil }

// Equal reports whether both hold the same value, in time that depends only
// on their lengths.
func (s Secret) Equal(o Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

// Fingerprint names the value without giving it away: the first 16 hex
// digits of its SHA-256, or "" for the empty secret. It is meant for logs
// and for state that speaks about a token; 64 bits of a hash over a value of
// high entropy cannot be turned back.
func (s Secret) Fingerprint() string {
	if s.value == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(*s.value))
	return hex.EncodeToString(sum[:8])
}

// String implements [fmt.Stringer] and shows nothing of the value.
func (s Secret) String() string { return redacted }

// GoString implements [fmt.GoStringer] and shows nothing of the value.
func (s Secret) GoString() string { return redacted }

// Format implements [fmt.Formatter]: every verb and flag redacts.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements [encoding.TextMarshaler], and with it JSON and TOML
// encoding, and shows nothing of the value. A file format that is made to
// keep a secret reveals it by name.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText refuses: bytes become a Secret only through [New], so that a
// redacted value never comes back as a real one.
func (s *Secret) UnmarshalText([]byte) error {
	return errors.New("a secret is not decoded implicitly")
}

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
