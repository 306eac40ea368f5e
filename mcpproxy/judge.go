package mcpproxy

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
)

// The codes of errors that the proxy itself answers with. They are in the
// range that JSON-RPC leaves to implementations and MCP does not use. Each has
// data: {"source":"spendonce","kind":...}, for programs.
const (
	// CodeUnanswered: there is no answer, or none that is one. Whether the
	// server has acted on the request is not known.
	CodeUnanswered = -32000
	// CodeAuthorization: a person must do what the message says; nothing was
	// done.
	CodeAuthorization = -32001
	// CodeTooLong: the message is longer than the limit.
	CodeTooLong = -32003
	// CodeNoToken: there is no token just now; nothing was done.
	CodeNoToken = -32004
	// CodeTooMany: too many requests are under way.
	CodeTooMany = -32005

	codeParse   = -32700
	codeInvalid = -32600
)

// failure is why a request has no answer of its server.
type failure struct {
	code    int
	message string
	kind    string
	status  int      // of HTTP
	scopes  []string // that are missing
	theirs  jsontext.Value
}

func (f *failure) Error() string { return f.message }

func unanswered(kind, format string, args ...any) *failure {
	return &failure{code: CodeUnanswered, kind: kind, message: fmt.Sprintf(format, args...)}
}

// response is the error as the answer to a request; a nil id is null.
func (f *failure) response(id jsontext.Value) []byte {
	type data struct {
		Source string   `json:"source"`
		Kind   string   `json:"kind"`
		Status int      `json:"status,omitzero"`
		Scopes []string `json:"scopes,omitempty"`
	}
	type problem struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    data   `json:"data"`
	}
	if id == nil {
		id = jsontext.Value("null")
	}
	theirs := f.theirs
	if theirs == nil {
		theirs, _ = json.Marshal(problem{f.code, strings.ToValidUTF8(f.message, "?"), data{"spendonce", f.kind, f.status, f.scopes}})
	}
	line := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	line = append(append(line, `,"error":`...), theirs...)
	return append(line, '}')
}

// tooLong is for a message of the client, or one of the server.
func tooLong(limit int) *failure {
	return &failure{code: CodeTooLong, kind: "too_long", message: fmt.Sprintf("the message is longer than %d bytes, which is the limit (--max-message)", limit)}
}

// judge says what the error of a request means.
func judge(err error) *failure {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err // its text has the URL, and in that perhaps a secret
	}
	f := &failure{code: CodeUnanswered, kind: "unanswered", message: err.Error()}
	var already *failure
	var scope *bearer.ScopeError
	switch {
	case errors.As(err, &already):
		return already
	case errors.As(err, &scope):
		f.code, f.kind, f.scopes, f.status = CodeAuthorization, "insufficient_scope", scope.Missing, http.StatusForbidden
	case errors.Is(err, credstore.ErrLoginRequired), errors.Is(err, credstore.ErrNoCredential):
		f.code, f.kind = CodeAuthorization, "login_required"
	case errors.Is(err, credstore.ErrRejected):
		f.code, f.kind, f.status = CodeAuthorization, "rejected", http.StatusUnauthorized
	case errors.Is(err, credstore.ErrTemporary), errors.Is(err, credstore.ErrMinValid), errors.Is(err, credstore.ErrLocked):
		f.code, f.kind = CodeNoToken, "temporary"
	case errors.Is(err, credstore.ErrDamaged), errors.Is(err, credstore.ErrUnsafe), errors.Is(err, credstore.ErrNotWritable),
		errors.Is(err, credstore.ErrConfig), errors.Is(err, credstore.ErrOverride), errors.Is(err, credstore.ErrUnknownTarget):
		f.code, f.kind = CodeAuthorization, "store"
	case errors.Is(err, bearer.ErrElsewhere):
		f.kind = "elsewhere"
	}
	return f
}

// authorization reports whether there is no use in another try until somebody
// has done something.
func (f *failure) authorization() bool { return f.code == CodeAuthorization || f.code == CodeNoToken }

// statusFailure is for an answer that is not what was asked for, when its body
// says nothing in JSON-RPC.
func statusFailure(resp *http.Response) *failure {
	what := fmt.Sprintf("the server answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	f := unanswered("status", "%s", strings.TrimSpace(what))
	f.status = resp.StatusCode
	switch status := resp.StatusCode; {
	case status >= 300 && status < 400 && redirectedTo(resp) != "":
		f.kind = "redirect"
		f.message += fmt.Sprintf(", a redirect to %s that was not followed: set the target's URL to the place that is right", redirectedTo(resp))
	case status == http.StatusAccepted || status == http.StatusNoContent:
		f.message += ", and with that no answer to the request"
	case status < 300:
		f.kind = "content_type"
		f.message += " with " + mediaType(resp) + ", which is neither JSON nor an event stream: is the target's URL that of an MCP server?"
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		f.message += afterwards(resp.Header.Get("Retry-After"))
	}
	return f
}

// afterwards says when to try again, if the server says it in one of the two
// ways that there are (RFC 9110 section 10.2.3).
func afterwards(said string) string {
	if at, err := http.ParseTime(said); err == nil {
		return ", and to try again at " + at.UTC().Format(time.RFC3339)
	}
	if n, err := strconv.ParseUint(said, 10, 31); err == nil {
		return fmt.Sprintf(", and to try again after %d seconds", n)
	}
	return ""
}

// redirectedTo names the origin of a redirect, "" if it leads nowhere; the rest
// of it may be a secret.
func redirectedTo(resp *http.Response) string {
	to, err := resp.Location()
	if err != nil {
		return ""
	}
	if o, err := bearer.OriginOf(to); err == nil {
		return o.String()
	}
	return "a place where no token may go"
}

// mediaType is the type of an answer in words of a bounded length.
func mediaType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.Header.Get("Content-Type") == "":
		return "no content type"
	case err != nil || len(t) > 80:
		return "a strange content type"
	}
	return t
}

// errorOf is the error object of a JSON-RPC response, nil if there is none.
func errorOf(raw []byte) jsontext.Value {
	var found jsontext.Value
	d := decoder(raw)
	err := members(d, func(name string) error {
		v, err := d.ReadValue()
		if name == "error" && err == nil && v.Kind() == '{' {
			found = v.Clone()
		}
		return err
	})
	if err != nil || !atEnd(d) {
		return nil
	}
	return found
}

// oldTransport reports whether an answer to the first message may come from a
// server that has HTTP with SSE only (revision 2024-11-05): one that refuses
// it without an error that newer servers give.
func oldTransport(status int, body []byte) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return false
	}
	if status < 400 || status > 499 {
		return false
	}
	code := 0
	if e := errorOf(body); e != nil {
		d := decoder(e)
		_ = members(d, func(name string) error {
			if name != "code" || d.PeekKind() != '0' {
				return d.SkipValue()
			}
			v, err := d.ReadValue()
			code, _ = strconv.Atoi(string(v))
			return err
		})
	}
	const unknownMethod, reservedFrom, reservedTo = -32601, -32099, -32020
	return code != unknownMethod && (code < reservedFrom || code > reservedTo)
}
