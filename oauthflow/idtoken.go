package oauthflow

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// Account says who signed in, for display. Both may be empty.
type Account struct {
	Subject string // sub of the ID token
	Email   string
}

// clockLeeway is how far the server's clock may be off.
const clockLeeway = 5 * time.Minute

// readAccount reads an ID token that came straight from the token endpoint.
// OpenID Connect Core 3.1.3.7 item 6 lets TLS to that endpoint stand for the
// signature, which is why none is checked; the claims are checked all the
// same, and are used for display only.
func readAccount(token secret.Secret, issuer, clientID string, nonce secret.Secret, now time.Time) (Account, error) {
	claims := jwtClaims(token.Reveal())
	if claims == nil {
		return Account{}, errors.New("the ID token is not a JWT")
	}
	text := func(name string) string {
		var s string
		_ = json.Unmarshal(claims[name], &s) // another type is no text
		return s
	}
	var audience []string
	if json.Unmarshal(claims["aud"], &audience) != nil {
		audience = []string{text("aud")}
	}
	expText, _ := numberText(claims["exp"])
	exp, ok := number(expText)
	switch {
	case !SameIssuer(text("iss"), issuer):
		return Account{}, errors.New("the ID token is from another issuer")
	case !slices.Contains(audience, clientID):
		return Account{}, errors.New("the ID token is for another client")
	case !ok || math.Abs(exp) >= 1<<40 || !time.Unix(int64(exp), 0).After(now.Add(-clockLeeway)):
		return Account{}, errors.New("the ID token has expired")
	case !nonce.Empty() && !secret.New(text("nonce")).Equal(nonce):
		return Account{}, errors.New("the ID token is from another sign-in")
	}
	a := Account{Subject: text("sub"), Email: text("email")}
	if !displayable(a.Subject) || !displayable(a.Email) {
		return Account{}, errors.New("the ID token names an unprintable account")
	}
	return a, nil
}

// displayable admits one short line of printable ASCII without spaces, or "".
func displayable(s string) bool { return s == "" || len(s) <= 320 && validToken(s) }

// IDTokenExpiry reads exp of an ID token that came straight from the token
// endpoint, for those who hand it out in place of an access token. Zero: not
// known.
func IDTokenExpiry(token secret.Secret, now time.Time) time.Time {
	return jwtExpiry(token.Reveal(), now)
}
