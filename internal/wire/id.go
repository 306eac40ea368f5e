package wire

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/spendonce/spendonce/internal/secret"
)

// idBytes is the entropy of a session id and of a token, idLength their
// spelling in base64url without padding.
const (
	idBytes  = 32
	idLength = 43
)

// ValidID reports whether s spells a session id or a token: 43 characters of
// base64url without padding, in the one spelling that 32 bytes have (the two
// spare bits of the last character are zero). It says nothing about whether
// such an id exists.
func ValidID(s string) bool {
	if len(s) != idLength {
		return false
	}
	// base64.Encoding would skip line ends.
	for i := range len(s) - 1 {
		if sextet(s[i]) < 0 {
			return false
		}
	}
	last := sextet(s[idLength-1])
	return last >= 0 && last&0b11 == 0
}

// sextet returns the six bits that c stands for, or -1.
func sextet(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case '0' <= c && c <= '9':
		return int(c-'0') + 52
	case c == '-':
		return 62
	case c == '_':
		return 63
	}
	return -1
}

// NewID returns 256 bits from the operating system, spelled as [ValidID]
// wants them. Where the system has no randomness the process ends: there is
// no id without it.
func NewID() secret.Secret {
	var b [idBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process
	return secret.New(base64.RawURLEncoding.EncodeToString(b[:]))
}
