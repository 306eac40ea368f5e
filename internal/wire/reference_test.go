package wire_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spendonce/spendonce/internal/wire"
)

// The reference is the rules once more, on another library (encoding/json),
// value by value instead of token by token, and with no thought of speed.

type member struct {
	source string // of the name, with its quotes
	name   string
	value  json.RawMessage
}

// membersOf takes the source of an object apart.
func membersOf(object []byte) []member {
	var all []member
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		panic(err)
	}
	for dec.More() {
		start := dec.InputOffset()
		name, err := dec.Token()
		if err != nil {
			panic(err)
		}
		source := strings.TrimLeft(string(object[start:dec.InputOffset()]), ", \t\r\n")
		m := member{source: source, name: name.(string)}
		if err := dec.Decode(&m.value); err != nil {
			panic(err)
		}
		all = append(all, m)
	}
	return all
}

// sound reports whether no object in a valid JSON text has a name twice.
func sound(value json.RawMessage) bool {
	switch value[0] {
	case '{':
		names := map[string]bool{}
		for _, m := range membersOf(value) {
			if names[m.name] || !sound(m.value) {
				return false
			}
			names[m.name] = true
		}
	case '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(value, &elements); err != nil {
			panic(err)
		}
		for _, e := range elements {
			if !sound(e) {
				return false
			}
		}
	}
	return true
}

// A \u escape, or a pair of them that is one letter, or any other escape.
var (
	escapes = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.`)
	half    = regexp.MustCompile(`^\\u[dD][89a-fA-F][0-9a-fA-F]{2}$`)
	integer = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	digest  = regexp.MustCompile(`^[!-~]{1,256}$`)
)

// wellFormed is the rule for FRAME_MALFORMED, of a request and of an answer.
func wellFormed(frame []byte) bool {
	if len(frame) == 0 || frame[0] != '{' || frame[len(frame)-1] != '}' || !utf8.Valid(frame) || !json.Valid(frame) {
		return false
	}
	for _, e := range escapes.FindAll(frame, -1) {
		if half.Match(e) {
			return false
		}
	}
	return sound(frame)
}

// The readers of values panic on nothing: false is another type or bound.

func readString(raw json.RawMessage) (string, bool) {
	var s string
	return s, raw != nil && raw[0] == '"' && json.Unmarshal(raw, &s) == nil
}

func readInteger(raw json.RawMessage) (uint64, bool) {
	n, ok := new(big.Int).SetString(string(raw), 10)
	if !ok || !integer.Match(raw) || n.Cmp(big.NewInt(1<<53)) >= 0 {
		return 0, false
	}
	return n.Uint64(), true
}

func readBinding(raw json.RawMessage) (wire.Binding, bool) {
	var b wire.Binding
	if raw == nil || raw[0] != '{' {
		return b, false
	}
	values := map[string]json.RawMessage{}
	for _, m := range membersOf(raw) {
		values[m.source] = m.value
	}
	var ok [5]bool
	b.CompactionEpoch, ok[0] = readInteger(values[`"compaction_epoch"`])
	b.RequestEpoch, ok[1] = readInteger(values[`"request_epoch"`])
	b.HSource, ok[2] = readString(values[`"h_source"`])
	b.HPayload, ok[3] = readString(values[`"h_payload"`])
	b.SchemaVersion, ok[4] = readInteger(values[`"schema_version"`])
	return b, ok == [5]bool{true, true, true, true, true} && len(values) == 5 &&
		digest.MatchString(b.HSource) && digest.MatchString(b.HPayload) && b.SchemaVersion > 0
}

// A reading is a request with its texts in the open.
type reading struct {
	Action     string
	Session    string
	Generation uint64
	Binding    wire.Binding
	Token      string
}

// readRequest is what ParseRequest must say.
func readRequest(frame []byte) (reading, wire.Code) {
	if !wellFormed(frame) {
		return reading{}, "FRAME_MALFORMED"
	}
	values := map[string]json.RawMessage{}
	for _, m := range membersOf(frame) {
		values[m.source] = m.value
	}
	var q reading
	var ok bool
	if q.Action, ok = readString(values[`"action"`]); !ok {
		return reading{}, "REQUEST_INVALID"
	}
	_, named := values[`"session_id"`]
	takes := 3
	switch q.Action {
	case "register_anchor":
		if named {
			return reading{}, "SESSION_ID_FORBIDDEN"
		}
		takes = 2
	case "authenticate":
	case "mint_token", "consume_token":
		takes = 4
	default:
		return reading{}, "ACTION_UNKNOWN"
	}
	valid := len(values) == takes
	if takes > 2 {
		q.Session, ok = readString(values[`"session_id"`])
		valid = valid && ok
	}
	q.Generation, ok = readInteger(values[`"runtime_generation"`])
	valid = valid && ok
	if q.Action == "mint_token" {
		q.Binding, ok = readBinding(values[`"binding"`])
		valid = valid && ok
	}
	if q.Action == "consume_token" {
		q.Token, ok = readString(values[`"token"`])
		valid = valid && ok
	}
	if !valid {
		return reading{}, "REQUEST_INVALID"
	}
	return q, ""
}

// readLoosely reads a frame as most programs would.
func readLoosely(frame []byte) (reading, error) {
	var q struct {
		Action     *string `json:"action"`
		Session    *string `json:"session_id"`
		Generation *uint64 `json:"runtime_generation"`
		Binding    *struct {
			CompactionEpoch uint64 `json:"compaction_epoch"`
			RequestEpoch    uint64 `json:"request_epoch"`
			HSource         string `json:"h_source"`
			HPayload        string `json:"h_payload"`
			SchemaVersion   uint64 `json:"schema_version"`
		} `json:"binding"`
		Token *string `json:"token"`
	}
	dec := json.NewDecoder(bytes.NewReader(frame))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return reading{}, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return reading{}, err
	}
	r := reading{Action: *q.Action, Generation: *q.Generation}
	if q.Session != nil {
		r.Session = *q.Session
	}
	if q.Binding != nil {
		r.Binding = wire.Binding(*q.Binding)
	}
	if q.Token != nil {
		r.Token = *q.Token
	}
	return r, nil
}

func opened(q wire.Request) reading {
	return reading{string(q.Action), q.SessionID.Reveal(), q.Generation, q.Binding, q.Token.Reveal()}
}
