package oauthflow

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// maxAnswer is how much of an answer is read.
const maxAnswer = 1 << 20

// Answer is what came back from an HTTP request.
type Answer struct {
	Status    int
	Header    http.Header
	Body      []byte // at most 1 MiB
	Truncated bool   // there was more, so Body is not to be interpreted
}

// Judge says what the answer to a token request means. It is a pure function
// of its arguments: now is the time the request was sent, sent holds the
// secrets that were in it. The error, if any, is an [*Error].
//
// The first of these rows that matches decides. The body is judged by its
// content and not by its declared type.
//
//	redirect                                               temporary
//	invalid_grant; 200 with bad_refresh_token or
//	    invalid_refresh_token; 401 without an OAuth error,
//	    in JSON or plain text                              refused
//	invalid_client, unauthorized_client,
//	    incorrect_client_credentials                       client dead
//	429, 5xx, temporarily_unavailable                      temporary
//	4xx or 200 with another OAuth error                    wrong request
//	2xx with an access token                               success
//	anything else                                          temporary
func Judge(a Answer, now time.Time, d Dialect, sent ...secret.Secret) (Tokens, error) {
	b := readBody(a)
	t, flaw := b.tokens(now, d)
	row := judgeRow(a.Status, b, flaw)
	if row == rowSuccess {
		t.ServerDate = serverDate(a.Header)
		return dropEchoes(t, sent), nil
	}
	return Tokens{}, failure("token request", a, b, row, flaw, now, sent)
}

type row int

const (
	rowRedirect row = iota
	rowRefused
	rowClientDead
	rowTemporary
	rowWrongRequest
	rowSuccess
	rowElse
)

// judgeRow finds the row of the table. flaw says why the body holds no usable
// tokens, "" if it does.
func judgeRow(status int, b body, flaw string) row {
	switch code := b.code; {
	case status >= 300 && status < 400:
		return rowRedirect
	case code == "invalid_grant",
		status == 200 && (code == "bad_refresh_token" || code == "invalid_refresh_token"),
		status == 401 && code == "" && (b.kind == kindJSON || b.kind == kindText || b.kind == kindForm):
		return rowRefused
	case code == "invalid_client", code == "unauthorized_client", code == "incorrect_client_credentials":
		return rowClientDead
	case status == 429, status >= 500, code == "temporarily_unavailable":
		return rowTemporary
	case code != "" && (status == 200 || status >= 400):
		return rowWrongRequest
	case status >= 200 && status < 300 && flaw == "":
		return rowSuccess
	}
	return rowElse
}

func (r row) class() Class {
	switch r {
	case rowRefused:
		return ClassRefused
	case rowClientDead:
		return ClassClientDead
	case rowWrongRequest:
		return ClassWrongRequest
	}
	return ClassTemporary
}

// failure words the error of a row.
func failure(op string, a Answer, b body, r row, flaw string, now time.Time, sent []secret.Secret) *Error {
	red := newRedactor(append(slices.Clone(sent), b.received...))
	e := &Error{
		Class:      r.class(),
		Status:     a.Status,
		Code:       red.clean(b.code, 64),
		ServerDate: serverDate(a.Header),
		RetryAfter: retryAfter(a.Header, now),
		op:         op,
	}
	var text strings.Builder
	text.WriteString("status " + strconv.Itoa(a.Status))
	switch {
	case r == rowRedirect:
		text.WriteString(", a redirect, which is never followed (a captive portal answers like this)")
	case b.code != "":
		text.WriteString(" " + e.Code)
		if s := red.clean(b.description, 160); s != "" {
			text.WriteString(": " + s)
		}
	default:
		if ct := red.clean(a.Header.Get("Content-Type"), 60); ct != "" {
			text.WriteString(", type " + ct)
		}
		if flaw != "" && a.Status >= 200 && a.Status < 300 {
			text.WriteString(", " + flaw)
		}
		if a.Truncated {
			text.WriteString(", more than 1 MiB")
		} else if s := red.excerpt(string(a.Body), 120); s != "" {
			fmt.Fprintf(&text, ": %s", s)
		} else if len(a.Body) == 0 {
			text.WriteString(", empty")
		}
	}
	e.Text = red.final(text.String())
	return e
}

// dropEchoes removes texts of a success that repeat a secret, because they
// are stored and shown where secrets are not.
func dropEchoes(t Tokens, sent []secret.Secret) Tokens {
	red := newRedactor(append(slices.Clone(sent), t.AccessToken, t.RefreshToken, t.IDToken))
	if red.finds(t.Scope) {
		t.Scope = ""
		t.Warnings = append(t.Warnings, "the answer's scope repeats a secret and was ignored")
	}
	if red.finds(t.Org) {
		t.Org = ""
		t.Warnings = append(t.Warnings, "the answer's org repeats a secret and was ignored")
	}
	return t
}

// serverDate reads the Date header.
func serverDate(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}

// retryAfter reads Retry-After, seconds or a date. A date is compared with
// the server's own Date where there is one, so that a wrong clock here does
// not change the pause.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	var d time.Duration
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) { // only digits: too many of them
			return maxRetryAfter
		}
		d = time.Duration(n) * time.Second
	} else {
		at, err := http.ParseTime(v)
		if err != nil {
			return 0
		}
		if date := serverDate(h); !date.IsZero() {
			now = date
		}
		d = at.Sub(now)
	}
	return max(0, min(d, maxRetryAfter))
}
