//go:build linux

package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// answer is what the broker said on one connection, read as leniently as
// still makes sense. That every answer is what it should be to the byte is
// judged at the end of the run, so that a broker that, say, forgets the
// newline is told so once.
type answer struct {
	heard
	problem    string // why it is no answer at all
	ok         bool
	code       string
	sessionID  string
	generation json.Number
	token      string
	binding    binding
	has        map[string]bool // its members
	twice      bool            // a member comes twice
}

// binding is what a token is for, numbers as they are written.
type binding struct {
	CompactionEpoch json.Number `json:"compaction_epoch"`
	RequestEpoch    json.Number `json:"request_epoch"`
	HSource         string      `json:"h_source"`
	HPayload        string      `json:"h_payload"`
	SchemaVersion   json.Number `json:"schema_version"`
}

func newAnswer(h heard) answer {
	a := answer{heard: h, has: map[string]bool{}}
	var s struct {
		OK         *bool       `json:"ok"`
		Code       string      `json:"code"`
		SessionID  string      `json:"session_id"`
		Generation json.Number `json:"runtime_generation"`
		Token      string      `json:"token"`
		Binding    binding     `json:"binding"`
	}
	switch err := json.Unmarshal(h.Raw, &s); {
	case len(h.Raw) == 0:
		a.problem = "no answer, " + h.End
		if h.Sent != "" {
			a.problem += ", sending: " + h.Sent
		}
		return a
	case err != nil:
		a.problem = "no JSON: " + err.Error()
		return a
	case s.OK == nil:
		a.problem = "no member ok"
		return a
	}
	a.ok, a.code = *s.OK, s.Code
	a.sessionID, a.generation, a.token, a.binding = s.SessionID, s.Generation, s.Token, s.Binding
	members, err := membersOf(h.Raw)
	if err != nil {
		a.problem = err.Error()
	}
	for _, m := range members {
		a.twice = a.twice || a.has[m]
		a.has[m] = true
	}
	return a
}

// membersOf returns the names in the object that raw is, as they are written,
// those of its binding with "binding." before them.
func membersOf(raw []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var names, path []string
	var kinds []json.Delim
	name := true // a name comes next, if inside an object
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		inObject := len(kinds) > 0 && kinds[len(kinds)-1] == '{'
		switch tok := tok.(type) {
		case json.Delim:
			if tok == '{' || tok == '[' {
				kinds, name = append(kinds, tok), true
				continue
			}
			kinds = kinds[:len(kinds)-1]
			if len(kinds) > 0 && kinds[len(kinds)-1] == '{' {
				path = path[:len(path)-1]
			}
			name = true
		default:
			if text, isText := tok.(string); isText && inObject && name {
				path, name = append(path, text), false
				names = append(names, strings.Join(path, "."))
				continue
			}
			if inObject {
				path, name = path[:len(path)-1], true
			}
		}
	}
}

// What is wrong with the bytes of an answer, "" if nothing is. All of them
// are asked of every answer.

// line: one object on one line, nothing else.
func (a answer) line() string {
	switch text := bytes.TrimSuffix(a.Raw, []byte{'\n'}); {
	case a.problem != "":
		return a.problem
	case bytes.ContainsRune(text, '\n'):
		return "more than one line"
	case !bytes.HasPrefix(text, []byte{'{'}) || !bytes.HasSuffix(text, []byte{'}'}):
		return "something around the object"
	case a.twice:
		return "a member comes twice"
	}
	return ""
}

func (a answer) newline() string {
	if !bytes.HasSuffix(a.Raw, []byte("}\n")) {
		return "no newline at the end"
	}
	return ""
}

// ending: end of file. A request that the broker did not read to its end may
// make the kernel report a reset.
func (a answer) ending() string {
	early := []string{"BUSY", "PEER_REFUSED", "FRAME_TOO_LARGE", "FRAME_MULTIPLE", "DEADLINE_EXCEEDED"}
	if a.End == endEOF || a.End == endReset && !a.ok && slices.Contains(early, a.code) {
		return ""
	}
	return "after it: " + a.End
}

func (a answer) members() string {
	var want []string
	switch {
	case a.problem != "":
		return a.problem
	case !a.ok:
		want = []string{"ok", "code"}
	case a.has["token"]:
		want = []string{"ok", "token"}
	case a.has["binding"]:
		want = []string{
			"ok", "binding", "binding.compaction_epoch", "binding.request_epoch", "binding.h_source",
			"binding.h_payload", "binding.schema_version",
		}
	default:
		want = []string{"ok", "session_id", "runtime_generation"}
	}
	for _, m := range want {
		if !a.has[m] {
			return "no member " + m
		}
	}
	for m := range a.has {
		if !slices.Contains(want, m) {
			return "another member: " + m
		}
	}
	return ""
}

// known: a refusal's code is one of the protocol's.
func (a answer) known() string {
	if a.problem == "" && !a.ok && !slices.Contains(codes(), a.code) {
		return "an unknown code"
	}
	return ""
}

func codes() []string {
	return []string{
		"BUSY", "PEER_REFUSED", "FRAME_TOO_LARGE", "FRAME_MULTIPLE", "FRAME_UNTERMINATED", "DEADLINE_EXCEEDED",
		"FRAME_MALFORMED", "SESSION_ID_FORBIDDEN", "ACTION_UNKNOWN", "REQUEST_INVALID", "SESSION_UNKNOWN",
		"NOT_DESCENDANT", "ANCESTRY_CHANGED", "GENERATION_STALE", "GENERATION_UNKNOWN", "TOKEN_MALFORMED",
		"TOKEN_REPLAY", "TOKEN_CAPACITY", "SESSION_CAPACITY", "STATE_TOO_LARGE", "STATE_UNAVAILABLE",
	}
}

// String says what was heard, without what must not be printed.
func (a answer) String() string {
	switch {
	case a.problem != "" && len(a.Raw) > 0:
		return a.problem + ": " + redact(short(fmt.Sprintf("%q", a.Raw), 120))
	case a.problem != "":
		return a.problem
	case !a.ok:
		return a.code
	}
	var members []string
	for m := range a.has {
		if m != "ok" && !strings.Contains(m, ".") {
			members = append(members, m)
		}
	}
	slices.Sort(members)
	return "ok with " + strings.Join(members, ", ")
}

// redact cuts everything that may be a session id or a token, whole or not.
func redact(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		n := 0
		for i+n < len(text) && strings.IndexByte(alphabet, text[i+n]) >= 0 {
			n++
		}
		switch {
		case n >= 32:
			b.WriteString(text[i:i+4] + "(cut)")
		case n > 0:
			b.WriteString(text[i : i+n])
		default:
			b.WriteByte(text[i])
			n = 1
		}
		i += n
	}
	return b.String()
}
