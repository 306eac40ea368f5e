package sealed

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/spendonce/spendonce/internal/secret"
)

const (
	keyLength = 32
	idLength  = 32 // hex digits
)

// Key is the secret that files are sealed with, a data key: random, made
// once, and kept elsewhere than the files or encrypted in them.
type Key struct{ value secret.Secret }

// NewKey makes a key.
func NewKey() Key {
	b := make([]byte, keyLength)
	_, _ = rand.Read(b) // never fails
	return Key{secret.New(string(b))}
}

// ParseKey is the inverse of [Key.Text].
func ParseKey(text secret.Secret) (Key, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text.Reveal())
	if err != nil || len(b) != keyLength {
		return Key{}, errors.New("not a data key")
	}
	return Key{secret.New(string(b))}, nil
}

// Text is the key as it is kept: base64.
func (k Key) Text() secret.Secret {
	return secret.New(base64.StdEncoding.EncodeToString([]byte(k.value.Reveal())))
}

// ID names the key and follows from it, so that a wrong key is told from a
// file that was altered. 128 bits of a hash over 256 random ones cannot be
// turned back.
func (k Key) ID() string {
	sum := sha256.Sum256([]byte("spendonce data key\x00" + k.value.Reveal()))
	return hex.EncodeToString(sum[:idLength/2])
}

// IsID reports whether id is one that [Key.ID] may give.
func IsID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdef") == ""
}
