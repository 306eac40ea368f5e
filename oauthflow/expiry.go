package oauthflow

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// longest is the longest lifetime that is believed. Longer ones are times in
// another unit, or points in time where a duration belongs.
const longest = 10 * 366 * 24 * time.Hour

// expiresIn turns expires_in into a point in time. Missing and null are
// unknown, the zero time; so is what makes no sense, with a warning. Zero is
// known: expired at receipt. A fraction of a second is dropped.
func expiresIn(raw json.RawMessage, now time.Time, warn func(string)) time.Time {
	text, given := numberText(raw)
	if !given {
		return time.Time{}
	}
	seconds, ok := number(text)
	switch {
	case !ok:
		warn("the answer's expires_in is not a number of seconds; the lifetime is taken as unknown")
	case seconds < 0:
		warn("the answer's expires_in is negative; the lifetime is taken as unknown")
	case seconds > longest.Seconds():
		warn("the answer's expires_in is absurdly long; the lifetime is taken as unknown")
	default:
		return now.Round(0).Add(time.Duration(seconds) * time.Second)
	}
	return time.Time{}
}

// expiresAt reads expires_at: epoch seconds or RFC 3339.
func expiresAt(raw json.RawMessage, now time.Time, warn func(string)) time.Time {
	text, given := numberText(raw)
	if !given {
		return time.Time{}
	}
	var at time.Time
	if seconds, ok := number(text); ok {
		if math.Abs(seconds) < 1<<40 {
			at = time.Unix(int64(seconds), 0).UTC()
		}
	} else if t, err := time.Parse(time.RFC3339, text); err == nil {
		at = t.UTC()
	} else {
		warn("the answer's expires_at is not a time; it is taken as unknown")
		return time.Time{}
	}
	if !plausible(at, now) {
		warn("the answer's expires_at is absurd; it is taken as unknown")
		return time.Time{}
	}
	return at
}

// jwtExpiry reads exp of an access token that happens to be a JWT. Nothing is
// verified: the server that issued the token has just handed it to us, and a
// wrong time costs one 401.
func jwtExpiry(token string, now time.Time) time.Time {
	claims := jwtClaims(token)
	text, _ := numberText(claims["exp"])
	if seconds, ok := number(text); ok && math.Abs(seconds) < 1<<40 {
		if at := time.Unix(int64(seconds), 0).UTC(); plausible(at, now) {
			return at
		}
	}
	return time.Time{}
}

// plausible refuses times before 2000, which come from units and zeros gone
// wrong, and times further off than any lifetime.
func plausible(at, now time.Time) bool {
	return at.Unix() > 946684800 && at.Sub(now) <= longest
}

// jwtClaims returns the claims of a compact JWT without verifying it; nil if
// it is none.
func jwtClaims(token string) map[string]json.RawMessage {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return nil
	}
	var claims map[string]json.RawMessage
	if json.Unmarshal(payload, &claims) != nil {
		return nil
	}
	return claims
}

// numberText returns the text of a JSON number or string. given is false if
// there is no value: left out, null, or "".
func numberText(raw json.RawMessage) (text string, given bool) {
	if len(raw) == 0 || string(raw) == "null" || string(raw) == `""` {
		return "", false
	}
	if json.Unmarshal(raw, &text) == nil {
		return strings.TrimSpace(text), true
	}
	return string(raw), true
}

// number reads what JSON calls a number, and no Inf, NaN, hex or underscores.
// Numbers too large for a float come back as infinite.
func number(text string) (float64, bool) {
	if text == "" || strings.Trim(text, "0123456789+-.eE") != "" || text[0] == '+' {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}
