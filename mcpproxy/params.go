package mcpproxy

import (
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Since revision 2026-07-28 a tool's schema may ask, by x-mcp-header, for an
// argument to be in a header of the call as well. What a server has said of
// its tools is remembered as it passes. A tool that asks in a way that it may
// not is none for whoever speaks HTTP with the server, which is we: a client
// on standard input need not know of this at all.

const (
	headerParam = "Mcp-Param-"
	annotation  = "x-mcp-header"
)

// paramHeader is an argument that goes into a header.
type paramHeader struct {
	header string
	path   []string // of property names
}

// tools is what is remembered, by the names of tools.
type tools struct {
	mu      sync.Mutex
	headers map[string][]paramHeader
}

// learn takes in the answer to a tools/list request. It returns the answer
// without the tools that ask for headers as they may not, and why those do not.
func (t *tools) learn(answer []byte) (kept []byte, refused []error) {
	list := toolsIn(answer)
	out := make([]bool, len(list))
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, at := range list {
		var tool struct {
			Name   string         `json:"name"`
			Schema jsontext.Value `json:"inputSchema"`
		}
		if json.Unmarshal(answer[at.from:at.to], &tool, lenient) != nil {
			continue // the client's to judge
		}
		headers, err := headersOfSchema(tool.Schema)
		if err != nil {
			refused, out[i] = append(refused, err), true
		}
		if len(headers) == 0 {
			delete(t.headers, tool.Name)
			continue
		}
		if t.headers == nil {
			t.headers = map[string][]paramHeader{}
		}
		t.headers[tool.Name] = headers
	}
	if len(refused) == 0 {
		return answer, nil
	}
	return without(answer, list, out), refused
}

func (t *tools) of(name string) []paramHeader {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.headers[name]
}

// lenient reads what another side has written, which is not ours to judge.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// span is a value's place in a message.
type span struct{ from, to int }

// toolsIn finds the tools of a tools/list answer.
func toolsIn(answer []byte) (list []span) {
	d := decoder(answer)
	_ = members(d, func(name string) error {
		if name != "result" || d.PeekKind() != '{' {
			return d.SkipValue()
		}
		return members(d, func(name string) error {
			if name != "tools" || d.PeekKind() != '[' {
				return d.SkipValue()
			}
			list = nil // of two lists a reader takes the last
			if _, err := d.ReadToken(); err != nil {
				return err
			}
			for d.PeekKind() != ']' {
				v, err := d.ReadValue()
				if err != nil {
					return err
				}
				end := int(d.InputOffset())
				list = append(list, span{end - len(v), end})
			}
			_, err := d.ReadToken()
			return err
		})
	})
	return list
}

// without leaves elements of a list out of a message.
func without(message []byte, list []span, out []bool) []byte {
	kept := slices.Clone(message[:list[0].from])
	some := false
	for i, at := range list {
		if out[i] {
			continue
		}
		if some {
			kept = append(kept, ',')
		}
		kept, some = append(kept, message[at.from:at.to]...), true
	}
	return append(kept, message[list[len(list)-1].to:]...)
}

var (
	errHeaderName  = errors.New("it asks for a header by a name that none can have, or by one twice")
	errHeaderType  = errors.New("it asks for a header of what is neither a string nor an integer nor a boolean")
	errHeaderPlace = errors.New("it asks for a header of what is no property that has one place")
)

// headersOfSchema reads which headers a tool's schema asks for.
func headersOfSchema(schema jsontext.Value) ([]paramHeader, error) {
	var found []paramHeader
	err := walkSchema(schema, nil, true, func(object map[string]jsontext.Value, path []string, reached bool) error {
		said, ok := object[annotation]
		if !ok {
			return nil
		}
		var header string
		switch {
		case !reached || len(path) == 0:
			return errHeaderPlace
		case json.Unmarshal(said, &header) != nil || !isToken(header),
			slices.ContainsFunc(found, func(f paramHeader) bool { return strings.EqualFold(f.header, header) }):
			return errHeaderName
		case !isPrimitive(object["type"]):
			return errHeaderType
		}
		found = append(found, paramHeader{header, slices.Clone(path)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// walkSchema visits a schema and all within it. reached says that it is reached
// from the root by property names alone, which are path.
func walkSchema(schema jsontext.Value, path []string, reached bool, visit func(object map[string]jsontext.Value, path []string, reached bool) error) error {
	if schema.Kind() == '[' {
		var all []jsontext.Value
		_ = json.Unmarshal(schema, &all, lenient)
		for _, one := range all {
			if err := walkSchema(one, nil, false, visit); err != nil {
				return err
			}
		}
		return nil
	}
	if schema.Kind() != '{' {
		return nil // true and false are schemas, too
	}
	var object map[string]jsontext.Value
	_ = json.Unmarshal(schema, &object, lenient) // it is JSON, and an object
	if err := visit(object, path, reached); err != nil {
		return err
	}
	for _, keyword := range slices.Sorted(maps.Keys(object)) {
		value := object[keyword]
		var err error
		switch keyword {
		case "default", "const", "enum", "examples": // values, and no schemas
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas": // schemas by names
			var named map[string]jsontext.Value
			_ = json.Unmarshal(value, &named, lenient)
			for _, name := range slices.Sorted(maps.Keys(named)) {
				at := append(slices.Clone(path), name)
				if err = walkSchema(named[name], at, reached && keyword == "properties", visit); err != nil {
					return err
				}
			}
		default:
			err = walkSchema(value, nil, false, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isPrimitive reports whether a type is one that a header can hold; it may be
// null beside that, which is no header.
func isPrimitive(t jsontext.Value) bool {
	var names []string
	if t.Kind() == '"' {
		names = make([]string, 1)
		_ = json.Unmarshal(t, &names[0])
	} else {
		_ = json.Unmarshal(t, &names)
		names = slices.DeleteFunc(names, func(name string) bool { return name == "null" })
	}
	return len(names) == 1 && (names[0] == "string" || names[0] == "integer" || names[0] == "boolean")
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// setParamHeaders puts the arguments of a call where its tool asks for them.
func setParamHeaders(h http.Header, call []byte, wanted []paramHeader) {
	if len(wanted) == 0 {
		return
	}
	var message struct {
		Params struct {
			Arguments jsontext.Value `json:"arguments"`
		} `json:"params"`
	}
	if json.Unmarshal(call, &message, lenient) != nil {
		return
	}
	for _, w := range wanted {
		value := message.Params.Arguments
		for _, name := range w.path {
			var object map[string]jsontext.Value
			if json.Unmarshal(value, &object, lenient) != nil {
				value = nil
				break
			}
			value = object[name]
		}
		if text, ok := asHeader(value); ok {
			h.Set(headerParam+w.header, headerValue(text))
		}
	}
}

// asHeader is an argument as text; only strings, booleans and integers that
// every program can hold have one.
func asHeader(value jsontext.Value) (string, bool) {
	switch value.Kind() {
	case '"':
		s, _ := jsontext.AppendUnquote(nil, value) // its error is of half a surrogate pair
		return string(s), true
	case 't', 'f':
		return string(value), true
	case '0':
		const safe = 1<<53 - 1
		f, err := strconv.ParseFloat(string(value), 64)
		if err == nil && f == math.Trunc(f) && math.Abs(f) <= safe {
			return strconv.FormatInt(int64(f), 10), true
		}
	}
	return "", false
}
