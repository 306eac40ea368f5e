package movein

import (
	"encoding/base64"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
)

// readIDToken puts what an ID token says of itself into s. Its signature was
// checked by the program that got it, or not at all: the issuer it names is
// shown before anything is moved, and the account is for display.
func (s *Session) readIDToken(token secret.Secret) bool {
	parts := strings.Split(token.Reveal(), ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims map[string]jsontext.Value
	if json.Unmarshal(payload, &claims) != nil || claims == nil {
		return false
	}
	r := reader{members: claims}
	issuer, subject, email := r.text("iss"), r.text("sub"), r.text("email")
	var audience []string
	if claims["aud"].Kind() == '"' {
		audience = []string{r.text("aud")}
	} else {
		audience = r.texts("aud")
	}
	if r.err != nil {
		return false
	}
	s.IDToken, s.Issuer, s.Subject, s.Email, s.Audience = token, issuer, subject, email, audience
	if exp, ok := r.number("exp"); ok && math.Abs(exp) < 1<<40 {
		if at := time.Unix(int64(exp), 0).UTC(); plausible(at) {
			s.IDTokenExpires = at
		}
	}
	return true
}
