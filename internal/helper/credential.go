package helper

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// ErrInput is wrapped by every refusal of what another program wrote.
var ErrInput = errors.New("bad input")

// Bounds of what is read, in bytes.
const (
	maxInput = 1 << 20
	maxLine  = 64 << 10
)

// Credential is what every protocol here carries.
type Credential struct {
	Token     secret.Secret
	ExpiresAt time.Time // zero: unknown
}

// text returns the token. It refuses what is no token of RFC 6750: a line
// break, a NUL or a quote of some other protocol in it would let whoever
// wrote the record say things in our name.
func (c Credential) text() (string, error) {
	t := c.Token.Reveal()
	if t == "" || strings.ContainsFunc(t, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return "", errors.New("the token is empty or holds white space, control or non-ASCII characters, and is handed to nobody")
	}
	return t, nil
}

// readBounded reads all of in, at most maxInput bytes.
func readBounded(in io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: it cannot be read: %w", ErrInput, err)
	case len(b) > maxInput:
		return nil, fmt.Errorf("%w: it is larger than 1 MiB", ErrInput)
	}
	return b, nil
}

// write writes one whole answer.
func write(out io.Writer, answer string) error {
	if _, err := io.WriteString(out, answer); err != nil {
		return fmt.Errorf("the answer could not be written: %w", err)
	}
	return nil
}
