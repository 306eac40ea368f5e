package wire

import (
	"errors"
	"fmt"
	"io"

	"github.com/spendonce/spendonce/internal/secret"
)

// Answer is what the broker says to a request. If Code is empty it is granted,
// and the answer holds what the action gives:
//
//	{"ok":false,"code":"TOKEN_REPLAY"}
//	{"ok":true,"session_id":"…","runtime_generation":0}    register_anchor, authenticate
//	{"ok":true,"token":"…"}                                mint_token
//	{"ok":true,"binding":{…}}                              consume_token
type Answer struct {
	Code       Code
	SessionID  secret.Secret
	Generation uint64
	Token      secret.Secret
	Binding    Binding
}

// ErrAnswer reports that what came back is no answer of the protocol to the
// request. Whether the request took effect is unknown.
var ErrAnswer = errors.New("the answer breaks the lease protocol")

// ReadAnswer reads the answer to a request for action: one line of at most
// [MaxFrame] bytes, and then the end of the stream. An answer that breaks the
// protocol is [ErrAnswer], a stream that ends without one
// [io.ErrUnexpectedEOF], and a deadline that of r; no error holds
// anything of what was received.
//
// The answer is read as strictly as a request, but members that it does not
// know are passed over, and a code that it does not know is returned as it is:
// both may come from a later broker. The bound values are those of [Request],
// and an id must be one by [ValidID].
//
// A line that has arrived whole counts even if reading on then fails with
// anything else than more bytes. A broker that refuses before it has read the
// request leaves the request unread, and the kernel reports that as a reset
// where the end of the stream should be.
func ReadAnswer(r io.Reader, action Action) (Answer, error) {
	line, code, err := readLine(r, nil)
	switch {
	case line != nil:
		if a, ok := parseAnswer(line, action); ok {
			return a, nil
		}
		return Answer{}, fmt.Errorf("reading the answer: %w", ErrAnswer)
	case err != nil:
		return Answer{}, fmt.Errorf("reading the answer: %w", err)
	case code == CodeFrameUnterminated:
		return Answer{}, fmt.Errorf("reading the answer: %w", io.ErrUnexpectedEOF)
	}
	return Answer{}, fmt.Errorf("reading the answer: %w", ErrAnswer)
}

func parseAnswer(line []byte, action Action) (Answer, bool) {
	if len(line) == 0 || line[0] != '{' || line[len(line)-1] != '}' {
		return Answer{}, false
	}
	var (
		w          = startWalk(line)
		seen       members
		invalid    bool
		granted    bool
		code       []byte
		session    []byte
		token      []byte
		generation uint64
		binding    binding
	)
	defer w.finish()
	w.enter()
	for w.more() {
		ok := true
		switch string(w.raw()) {
		case `"ok"`:
			seen |= memberOK
			granted, ok = boolean(w.raw())
		case `"code"`:
			seen |= memberCode
			code, ok = unquote(w.raw())
			ok = ok && len(code) > 0
		case `"session_id"`:
			seen |= memberSessionID
			session, ok = id(w.raw())
		case `"runtime_generation"`:
			seen |= memberGeneration
			generation, ok = integer(w.raw())
		case `"binding"`:
			seen |= memberBinding
			ok = binding.read(w)
		case `"token"`:
			seen |= memberToken
			token, ok = id(w.raw())
		default:
			w.raw()
		}
		invalid = invalid || !ok
	}
	if !w.end() || invalid {
		return Answer{}, false
	}
	switch {
	case !granted && seen == memberOK|memberCode:
		return Answer{Code: Code(code)}, true
	case !granted || action.gives() == 0 || seen != memberOK|action.gives():
		return Answer{}, false
	}
	return Answer{
		SessionID:  secret.New(string(session)),
		Generation: generation,
		Token:      secret.New(string(token)),
		Binding:    binding.value(),
	}, true
}

// boolean returns the truth value whose source is raw.
func boolean(raw []byte) (value, ok bool) {
	switch string(raw) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// id returns the session id or token whose source is raw.
func id(raw []byte) ([]byte, bool) {
	s, ok := unquote(raw)
	return s, ok && ValidID(string(s))
}
