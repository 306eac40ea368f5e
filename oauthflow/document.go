package oauthflow

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// document is a kind of metadata: what its reading is called, and the
// sentinels for a place that holds none and for one that cannot be used.
type document struct {
	op             string
	none, unusable error
}

// readDocument reads the JSON object at place into a struct. Nothing secret is
// sent, no redirect is followed, and no more than 1 MiB is read. Members whose
// names differ from the struct's in case only are not taken for them.
func (r *Requester) readDocument(ctx context.Context, d document, place *url.URL, into any) (Answer, *Error) {
	now := r.now()
	a, e := r.exchange(ctx, outgoing{op: d.op, method: http.MethodGet, url: place, header: http.Header{}})
	if e != nil {
		return a, e
	}
	if a.Status == http.StatusTooManyRequests || a.Status >= 500 {
		return a, &Error{op: d.op, Class: ClassTemporary, Status: a.Status, Text: "status " + strconv.Itoa(a.Status),
			ServerDate: serverDate(a.Header), RetryAfter: retryAfter(a.Header, now)}
	}
	object, err := decodeDocument(a, into)
	switch {
	case !object:
		return a, d.refuse(a, d.none, " ("+noDocument(a)+")")
	case err != nil:
		return a, d.refuse(a, d.unusable, ": a member has the wrong type")
	}
	return a, nil
}

// decodeDocument reports whether a holds a whole JSON object, and what keeps
// its members from fitting into the struct.
func decodeDocument(a Answer, into any) (object bool, err error) {
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	raw := jsontext.Value(bytes.TrimSpace(a.Body))
	if a.Status != http.StatusOK || a.Truncated || !raw.IsValid(lenient) || raw.Kind() != '{' {
		return false, nil
	}
	return true, json.Unmarshal(raw, into, lenient)
}

// noDocument says what stands in the place of a document.
func noDocument(a Answer) string {
	text := "status " + strconv.Itoa(a.Status)
	switch b := readBody(a); {
	case a.Status >= 300 && a.Status < 400:
		return text + ", a redirect, which is not followed"
	case a.Status != http.StatusOK:
		return text
	case a.Truncated:
		return text + ", more than 1 MiB"
	case b.kind == kindMarkup:
		return text + ", a web page"
	}
	return text + ", not a JSON object"
}

// refuse is the error about a document that was read, or should have been.
func (d document) refuse(a Answer, cause error, detail string) *Error {
	return &Error{op: d.op, Class: ClassWrongRequest, Status: a.Status, cause: cause,
		Text: cause.Error() + detail, ServerDate: serverDate(a.Header)}
}

// severity orders what several places said, so that the most telling is
// reported: a document that cannot be used, one that is another's, a place
// that cannot be read now, nothing there.
func (d document) severity(e *Error) int {
	switch {
	case errors.Is(e, d.unusable):
		return 3
	case e.cause != nil && !errors.Is(e, d.none):
		return 2
	case e.Class == ClassTemporary:
		return 1
	}
	return 0
}

// named is a name that a server gave, fit for a message.
func named(s string) string {
	if s = newRedactor(nil).clean(s, 120); s == "" {
		return "none"
	}
	return s
}

// maxScopes is how long the scopes that a server names may be together, in
// bytes: they are asked for in one address, which has to pass through a
// terminal, a browser's arguments and a server's limits.
const maxScopes = 8 << 10

// scopesOf leaves out what is no scope by RFC 6749 section 3.3: it would not
// survive being sent, and might not be fit for a terminal. What is beyond
// maxScopes is left out, too.
func scopesOf(list []string) []string {
	var good []string
	room := maxScopes
	for _, s := range list {
		if validToken(s) && !strings.ContainsAny(s, `"\`) && len(s) <= 1024 && len(s) < room {
			good = append(good, s)
			room -= len(s) + 1
		}
	}
	return good
}
