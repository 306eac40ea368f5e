package bearer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/challenge"
	"github.com/spendonce/spendonce/internal/secret"
)

// What [Transport.RoundTrip] may end with, beside the errors of its Source.
// Each is one sentence without a secret.
var (
	// ErrElsewhere: the request goes to an origin that is none of the
	// target's. Nothing was read and nothing was sent.
	ErrElsewhere = errors.New("not an origin of the target")
	// ErrAuthorization: the request has an Authorization header already.
	// Nothing was read and nothing was sent.
	ErrAuthorization = errors.New("the request has an Authorization header of its own")
	// ErrUnanswered: the Base has failed, with the error that is wrapped
	// beside this one. Whether the request was sent is not known.
	ErrUnanswered = errors.New("no answer")
	// ErrScope is wrapped by every [*ScopeError].
	ErrScope = errors.New("insufficient scope")
)

// bodyLimit bounds what an error keeps of the answer that it stands for.
const bodyLimit = 64 << 10

// ScopeError: the resource answered 403 and says, by insufficient_scope in
// its challenge (RFC 6750 section 3.1), that the token is good and the
// session may not do this. Nothing was refreshed or tried again: a new token
// of the same session may do no more. It wraps [ErrScope].
type ScopeError struct {
	Target  string
	Missing []string       // the scopes that the resource names; may be empty
	Answer  *http.Response // with at most [64 KiB] of its body; needs no Close
}

// Error names the scopes and the login that adds them, fit to be pasted into
// a shell whatever the server calls its scopes.
func (e *ScopeError) Error() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("the session of %s may not do this, and the server does not say which scope that needs: sign in again with 'spendonce login %s --scope SCOPE'", e.Target, e.Target)
	}
	var login strings.Builder
	for _, scope := range e.Missing {
		login.WriteString(" --scope " + quoted(scope))
	}
	noun := "scope"
	if len(e.Missing) > 1 {
		noun = "scopes"
	}
	return fmt.Sprintf("the session of %s may not do this, which needs the %s %s: sign in again with: spendonce login %s%s",
		e.Target, noun, strings.Join(e.Missing, " "), e.Target, login.String())
}

// Unwrap returns [ErrScope].
func (*ScopeError) Unwrap() error { return ErrScope }

// RejectedError: the resource answered 401 to the token, and to the one that
// it was exchanged for too; or there was none, for the reason in Err.
type RejectedError struct {
	Target string
	Origin Origin
	Err    error          // of the Source; nil if there was another token
	Answer *http.Response // the last one, with at most [64 KiB] of its body; needs no Close
}

func (e *RejectedError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s rejects the token of %s, and the one that its authorization server has issued just now too: check that the target's URL and resource are right",
		e.Origin, e.Target)
}

// Unwrap returns Err, or [credstore.ErrRejected] if that is nil.
func (e *RejectedError) Unwrap() error {
	if e.Err != nil {
		return e.Err
	}
	return credstore.ErrRejected
}

// missingScopes reports whether an answer says insufficient_scope, and which
// scopes it names. What is no scope (RFC 6749 section 3.3) is left out, and what
// has the token in it; and a server does not fill a screen.
func missingScopes(resp *http.Response, token secret.Secret) (scopes []string, ok bool) {
	const most, longest = 32, 256
	params := challenge.Bearer(resp.Header.Values("WWW-Authenticate"))
	if resp.StatusCode != http.StatusForbidden || params["error"] != "insufficient_scope" {
		return nil, false
	}
	for _, scope := range strings.Fields(params["scope"]) {
		odd := strings.ContainsFunc(scope, func(r rune) bool { return r < 0x21 || r > 0x7e || r == '"' || r == '\\' })
		odd = odd || strings.Contains(scope, token.Reveal())
		if !odd && len(scope) <= longest && len(scopes) < most && !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes, true
}

// quoted makes one word of a shell of a server's word.
func quoted(word string) string {
	plain := !strings.ContainsFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/@%+-,", r)
	})
	if plain {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// kept ends an answer, keeping the beginning of its body for an error.
func kept(resp *http.Response) *http.Response {
	var b bytes.Buffer
	withDeadline(resp, func() { _, _ = io.CopyN(&b, resp.Body, bodyLimit) })
	resp.Body = io.NopCloser(&b)
	resp.ContentLength = int64(b.Len())
	return resp
}
