//go:build linux

package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// refRequest is a request of the right shape.
type refRequest struct {
	action     string
	sessionID  string
	generation uint64
	token      string
	binding    map[string]any
}

// refMember is one member as it was written.
type refMember struct{ name, value string }

func (r *reference) parse(frame []byte) (q refRequest, code string) {
	const malformed, invalid = "FRAME_MALFORMED", "REQUEST_INVALID"
	if r.has("knows compact JSON only") && bytes.ContainsAny(frame, " \t") {
		return q, malformed
	}
	if r.has("trims") {
		frame = bytes.TrimSpace(bytes.TrimPrefix(frame, []byte("\xef\xbb\xbf")))
	}
	if !r.has("tolerates broken UTF-8") && !utf8.Valid(frame) {
		return q, malformed
	}
	if len(frame) == 0 || frame[0] != '{' || frame[len(frame)-1] != '}' {
		if r.has("takes any value for an object") && json.Valid(frame) {
			return q, invalid
		}
		return q, malformed
	}
	if r.has("reads the first value only") {
		var first json.RawMessage
		if json.NewDecoder(bytes.NewReader(frame)).Decode(&first) == nil {
			frame = first
		}
	}
	if r.has("tolerates lax JSON") {
		frame = regular(frame)
	}
	members, ok := r.walk(frame)
	if r.has("judges the shape while it reads") && len(members) > 0 {
		ok = true
	}
	if !ok {
		return q, malformed
	}
	get := func(name string) (string, bool) {
		i := slices.IndexFunc(members, func(m refMember) bool { return r.named(m.name, name) })
		if i < 0 {
			return "", false
		}
		return members[i].value, true
	}
	if r.has("takes values as they are written") && bytes.ContainsRune(frame, '\\') {
		return q, invalid
	}
	named, _ := get("action")
	if named == "null" && r.has("takes null for nothing") {
		named = `"authenticate"`
	}
	q.action, ok = unquote(named)
	if r.has("trims actions") {
		q.action = strings.ToLower(strings.TrimSpace(q.action))
	}
	wants := map[string][]string{
		"register_anchor": {"action", "runtime_generation"},
		"authenticate":    {"action", "session_id", "runtime_generation"},
		"mint_token":      {"action", "session_id", "runtime_generation", "binding"},
		"consume_token":   {"action", "session_id", "runtime_generation", "token"},
	}[q.action]
	id, there := get("session_id")
	if there && r.has("forgives an empty session id") && (id == "null" || id == `""`) {
		members = slices.DeleteFunc(members, func(m refMember) bool { return m.name == "session_id" })
		there = false
	}
	fits := r.exactly(members, wants)
	switch {
	case !ok && r.has("takes any action for a word"):
		return q, "ACTION_UNKNOWN"
	case !ok:
		return q, invalid
	case q.action == "register_anchor" && there && (!r.has("counts members first") || len(members) == 3):
		return q, "SESSION_ID_FORBIDDEN"
	case wants == nil && (!r.has("counts members first") || len(members) == 3):
		return q, "ACTION_UNKNOWN"
	case wants == nil, !fits && !r.has("tolerates more and less"):
		return q, invalid
	}
	valid := true
	number := func(text string) uint64 {
		n, ok := r.number(text)
		valid = valid && ok
		return n
	}
	text := func(value string) string {
		s, ok := unquote(value)
		valid = valid && (ok || r.has("tolerates other types"))
		return s
	}
	for _, name := range wants {
		value, there := get(name)
		if !there {
			continue
		}
		switch name {
		case "session_id":
			q.sessionID = text(value)
		case "runtime_generation":
			q.generation = number(value)
		case "token":
			q.token = text(value)
		case "binding":
			q.binding, ok = r.bindingOf(value)
			valid = valid && ok
		}
	}
	if !valid {
		return q, invalid
	}
	return q, ""
}

func (r *reference) bindingOf(value string) (map[string]any, bool) {
	if value == "" || value[0] != '{' {
		return map[string]any{}, r.has("tolerates other types")
	}
	members, ok := r.walk([]byte(value))
	if !ok || !r.exactly(members, []string{"compaction_epoch", "request_epoch", "h_source", "h_payload", "schema_version"}) && !r.has("tolerates more and less") {
		return nil, false
	}
	b := map[string]any{}
	for _, m := range members {
		if strings.HasPrefix(strings.ToLower(m.name), "h_") {
			s, ok := unquote(m.value)
			if !r.has("takes any digest") && (len(s) == 0 || len(s) > 256 || strings.ContainsFunc(s, func(c rune) bool { return c < '!' || c > '~' })) || !ok {
				return nil, false
			}
			if r.has("digests of 255") && len(s) > 255 {
				return nil, false
			}
			b[m.name] = s
			continue
		}
		n, ok := r.number(m.value)
		if !ok || m.name == "schema_version" && n == 0 && !r.has("takes any version") {
			return nil, false
		}
		b[m.name] = n
	}
	return b, true
}

func (r *reference) number(text string) (uint64, bool) {
	if r.has("takes any number") {
		f, err := strconv.ParseFloat(text, 64)
		return uint64(max(f, 0)), err == nil || r.has("tolerates other types")
	}
	if r.has("tolerates other types") {
		text = strings.Trim(text, `"`)
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n, true
		}
		return 0, true
	}
	n, err := strconv.ParseUint(text, 10, 64)
	most := uint64(1<<53 - 1)
	if r.has("numbers of 32 bits") {
		most = 1<<32 - 1
	}
	return n, err == nil && n <= most && text == strconv.FormatUint(n, 10)
}

// named reports whether a name as it was written is that name.
func (r *reference) named(written, name string) bool {
	switch {
	case r.has("folds names"):
		return strings.EqualFold(written, name)
	case r.has("unescapes names"):
		s, _ := unquote(`"` + written + `"`)
		return s == name
	}
	return written == name
}

func (r *reference) exactly(members []refMember, names []string) bool {
	if len(members) != len(names) {
		return false
	}
	for _, name := range names {
		if !slices.ContainsFunc(members, func(m refMember) bool { return r.named(m.name, name) }) {
			return false
		}
	}
	return true
}

func unquote(text string) (s string, ok bool) {
	return s, strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &s) == nil
}

// walk returns the members of the object in frame, names and values as they
// are written, or false for what is no JSON as the protocol wants it.
func (r *reference) walk(frame []byte) (members []refMember, ok bool) {
	if !json.Valid(frame) && !r.has("judges the shape while it reads") || !r.has("tolerates half pairs") && halfPair(frame) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(frame))
	dec.UseNumber()
	type level struct {
		object bool
		names  map[string]bool
		name   bool // comes next
	}
	var levels []*level
	var valueAt int64
	for {
		before := dec.InputOffset()
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return members, true
		}
		if err != nil {
			return members, false
		}
		raw := bytes.TrimLeft(frame[before:dec.InputOffset()], " \t\r\n,:")
		start := dec.InputOffset() - int64(len(raw))
		var top *level
		if len(levels) > 0 {
			top = levels[len(levels)-1]
		}
		closes := tok == json.Delim('}') || tok == json.Delim(']')
		if top != nil && top.object && top.name && !closes {
			name := tok.(string)
			if top.names[name] && !r.has("the last of two wins") && !(r.has("duplicates only as written") && bytes.IndexByte(raw, '\\') >= 0) &&
				!(len(levels) > 1 && r.has("duplicates only on top")) {
				return members, false
			}
			top.names[name], top.name = true, false
			if len(levels) == 1 {
				if r.has("the last of two wins") {
					members = slices.DeleteFunc(members, func(m refMember) bool { return m.name == string(raw[1:len(raw)-1]) })
				}
				members = append(members, refMember{name: string(raw[1 : len(raw)-1])})
				valueAt = -1
			}
			continue
		}
		if len(levels) == 1 && valueAt < 0 {
			valueAt = start
		}
		if tok == json.Delim('{') || tok == json.Delim('[') {
			levels = append(levels, &level{object: tok == json.Delim('{'), names: map[string]bool{}, name: true})
			continue
		}
		if closes {
			levels = levels[:len(levels)-1]
		}
		if len(levels) > 0 {
			levels[len(levels)-1].name = true
		}
		if len(levels) == 1 && len(members) > 0 {
			members[len(members)-1].value = string(frame[valueAt:dec.InputOffset()])
		}
	}
}

// halfPair reports whether a string holds half a surrogate pair. The frame is
// JSON otherwise.
func halfPair(frame []byte) bool {
	unit := func(i int) uint64 {
		if i+6 > len(frame) || frame[i] != '\\' || frame[i+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(frame[i+2:i+6]), 16, 16)
		return n
	}
	for i := 0; i < len(frame); i++ {
		if frame[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xdc00 && u <= 0xdfff:
			return true
		case u >= 0xd800 && u <= 0xdbff:
			if low := unit(i + 6); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		default:
			i++ // the escaped character is no backslash of its own
		}
	}
	return false
}

// regular makes JSON of some of what is none.
func regular(frame []byte) []byte {
	text := strings.NewReplacer(",}", "}", ",]", "]", "/**/", "", ":01", ":1", ":+1", ":1", "'", `"`, ",}\n", "}").Replace(string(frame))
	return []byte(text)
}
