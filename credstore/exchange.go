package credstore

import (
	"context"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// Secret is a string that no printing shows; Reveal returns it.
type Secret = secret.Secret

// NewSecret wraps a value, for the members of this package's types.
func NewSecret(value string) Secret { return secret.New(value) }

// Grant is what is sent, and to whom.
type Grant struct {
	Pin          Pin
	RefreshToken secret.Secret // empty where Pin.Grant is ClientCredentials
	Resource     string        // RFC 8707; the pin's, or empty when the server refused it
	Scope        []string      // to be sent; empty: none, what was granted stays
}

// Tokens is what came back. Empty members keep what is stored.
type Tokens struct {
	AccessToken  secret.Secret
	RefreshToken secret.Secret
	ExpiresAt    time.Time     // zero: unknown
	Lifetime     time.Duration // 0: unknown
	Scope        []string
	Org          string
	ServerDate   time.Time
	Warnings     []string
}

// Register registers the client anew (RFC 7591) at the server of a session
// whose client that server has forgotten. It returns the pin with the new
// client in it and everything else as it was.
type Register func(ctx context.Context, p Pin) (Pin, error)

// Exchange sends one refresh request and judges the answer. It must send at
// most once, must never follow a redirect, and returns a [Failure] for
// everything that is not a success. When ctx ends it reads an answer that has
// already arrived and gives up only if there is none.
type Exchange func(ctx context.Context, g Grant) (Tokens, error)

// Class is what an answer of the token endpoint means.
type Class string

// The classes of answers.
const (
	ClassSuccess    Class = "success"
	ClassRefused    Class = "refused"     // the refresh token that was sent is dead
	ClassClientDead Class = "client-dead" // our registration is, not the session
	ClassTemporary  Class = "temporary"
	ClassRequest    Class = "request" // our request is wrong
)

// Failure is an exchange that gave no access token.
type Failure struct {
	Class      Class
	Status     int    // HTTP; 0 without an answer
	Code       string // OAuth error code
	Text       string // short, clean, secret-free
	RetryAfter time.Duration
	ServerDate time.Time
	// Broken says that no answer came, for a reason other than the end of
	// the context: the same request may be tried once more.
	Broken bool
	// Unprocessed says that the refresh token was surely not spent.
	Unprocessed bool
}

func (f *Failure) Error() string {
	if f.Text != "" {
		return f.Text
	}
	return string(f.Class)
}
