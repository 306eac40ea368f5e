package clientconf

import (
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"
)

// value is what a setting gets.
type value interface {
	// write is its text, where lines that follow the first have this
	// indentation.
	write(l layout, indent string) string
	// is reports whether that text of a value comes to the same.
	is(raw string) bool
}

// stringValue is a string.
type stringValue string

func (s stringValue) write(layout, string) string { return quote(string(s)) }

func (s stringValue) is(raw string) bool {
	v, err := hujson.Parse([]byte(raw))
	if err != nil {
		return false
	}
	lit, ok := v.Value.(hujson.Literal)
	return ok && lit.Kind() == '"' && lit.String() == string(s)
}

// Entry is a server that a client starts, and talks to by its standard input
// and output.
type Entry struct {
	Type    string   `json:"type"` // stdio
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func (e Entry) write(l layout, indent string) string {
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = quote(a)
	}
	members := []string{
		`"type"` + l.colon + quote(e.Type),
		`"command"` + l.colon + quote(e.Command),
		`"args"` + l.colon + "[" + strings.Join(args, ", ") + "]",
	}
	if l.compact {
		return "{" + strings.Join(members, ", ") + "}"
	}
	inner := l.newline + indent + l.unit
	return "{" + inner + strings.Join(members, ","+inner) + l.newline + indent + "}"
}

// is heeds what a client starts, and leaves to its user what else is set for
// the server.
func (e Entry) is(raw string) bool {
	standard, err := hujson.Standardize([]byte(raw))
	if err != nil {
		return false
	}
	got := Entry{Type: e.Type}
	var url struct {
		URL any `json:"url"`
	}
	return json.Unmarshal(standard, &got) == nil && reflect.DeepEqual(got, e) &&
		json.Unmarshal(standard, &url) == nil && url.URL == nil
}

// sameValue reports whether a value is still what we had set: byte for byte,
// or, as clients write their files anew, an object that means the same.
// Members that hold nothing, which some clients put in, do not count; a
// comment in it is somebody else's.
func sameValue(raw, ours string) bool {
	if raw == ours {
		return true
	}
	var now, was map[string]any
	if json.Unmarshal([]byte(raw), &now) != nil || json.Unmarshal([]byte(ours), &was) != nil {
		return false
	}
	for name, v := range now {
		if empty := reflect.ValueOf(v); v == nil || (empty.Kind() == reflect.Map || empty.Kind() == reflect.Slice) && empty.Len() == 0 {
			if _, ours := was[name]; !ours {
				delete(now, name)
			}
		}
	}
	return reflect.DeepEqual(now, was)
}

// oneLine is the text of a value for a message.
func oneLine(raw string) string {
	v, err := hujson.Parse([]byte(raw))
	if err != nil {
		return printable(raw)
	}
	v.Minimize()
	return printable(string(v.Pack()))
}
