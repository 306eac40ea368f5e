package mcpproxy

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// longestID is more than any program's id is long.
const longestID = 1 << 10

// outline finds what a message is that is too long to be held, from its bytes
// as they pass. It does not judge whether they are JSON, and takes a member's
// name only in its plain spelling.
type outline struct {
	depth           int
	quoted, escaped bool
	expectKey       bool
	key             []byte
	inKey           bool
	value           []byte // of the member "id", as far as it is read
	inID            bool

	id         jsontext.Value
	identified bool // there is an id, fit to be used or not
	method     bool // there is one
	result     bool // or an error
}

// Write takes the next bytes of the message; it never fails.
func (o *outline) Write(p []byte) (int, error) {
	for i := 0; i < len(p); i++ {
		if o.quoted && !o.escaped && !o.inKey && !o.inID {
			// Most of a long message is text that says nothing here.
			n := bytes.IndexAny(p[i:], `"\`)
			if n < 0 {
				break
			}
			i += n
		}
		o.next(p[i])
	}
	return len(p), nil
}

func (o *outline) next(b byte) {
	if o.quoted {
		o.inString(b)
		return
	}
	if o.inID && (o.depth > 1 || b != ',' && b != '}') {
		o.keep(b)
	}
	switch b {
	case '"':
		o.quoted = true
		o.inKey, o.key = o.depth == 1 && o.expectKey, nil
	case '{', '[':
		o.depth++
		o.expectKey = b == '{' && o.depth == 1
	case '}', ']':
		if o.depth == 1 {
			o.endMember()
		}
		o.depth--
	case ',':
		if o.depth == 1 {
			o.endMember()
			o.expectKey = true
		}
	case ':':
		if o.depth == 1 {
			o.inID, o.value = string(o.key) == "id", nil
			o.identified = o.identified || o.inID
			o.method = o.method || string(o.key) == "method"
			o.result = o.result || string(o.key) == "result" || string(o.key) == "error"
		}
	}
}

func (o *outline) inString(b byte) {
	if o.inID {
		o.keep(b)
	}
	switch {
	case o.escaped:
		o.escaped = false
	case b == '\\':
		o.escaped = true
	case b == '"':
		o.quoted = false
		if o.inKey {
			o.inKey, o.expectKey = false, false
		}
		return
	}
	if o.inKey && len(o.key) < longestID {
		o.key = append(o.key, b)
	}
}

func (o *outline) keep(b byte) {
	if len(o.value) <= longestID {
		o.value = append(o.value, b)
	}
}

func (o *outline) endMember() {
	if !o.inID {
		return
	}
	o.inID = false
	v := jsontext.Value(bytes.TrimSpace(o.value))
	if k := v.Kind(); len(v) <= longestID && v.IsValid() && (k == '"' || k == '0') {
		o.id = slices.Clone(v)
	}
}

// kind is what the message was, by what has passed; 0 if that cannot be said.
func (o *outline) kind() kind {
	switch {
	case o.method && o.id != nil:
		return kindRequest
	case o.method && !o.identified:
		return kindNotification
	case o.result && o.id != nil:
		return kindResponse
	}
	return 0
}
