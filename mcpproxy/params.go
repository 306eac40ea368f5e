package mcpproxy

import (
	"bytes"
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
// its tools is remembered as it passes.

const headerParam = "Mcp-Param-"

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

// learn takes in the answer to a tools/list request.
func (t *tools) learn(answer []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.headers == nil && !bytes.Contains(answer, []byte("x-mcp-header")) {
		return
	}
	if t.headers == nil {
		t.headers = map[string][]paramHeader{}
	}
	for name, headers := range paramHeadersIn(answer) {
		t.headers[name] = headers
	}
}

func (t *tools) of(name string) []paramHeader {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.headers[name]
}

// lenient reads what another side has written, which is not ours to judge.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// paramHeadersIn reads which tools ask for which headers; a tool that asks for
// none is there with none. An annotation that may not be is no annotation.
func paramHeadersIn(answer []byte) map[string][]paramHeader {
	var list struct {
		Result struct {
			Tools []jsontext.Value `json:"tools"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &list, lenient) != nil {
		return nil
	}
	found := map[string][]paramHeader{}
	for _, value := range list.Result.Tools {
		var tool struct {
			Name   string         `json:"name"`
			Schema jsontext.Value `json:"inputSchema"`
		}
		if json.Unmarshal(value, &tool, lenient) != nil {
			continue
		}
		found[tool.Name] = annotations(tool.Schema, nil)
	}
	return found
}

// annotations are those of a schema's properties, which are reached by
// property names alone.
func annotations(schema jsontext.Value, path []string) (found []paramHeader) {
	var object struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	if json.Unmarshal(schema, &object, lenient) != nil {
		return nil
	}
	for name, value := range object.Properties {
		at := append(slices.Clone(path), name)
		var property struct {
			Type   jsontext.Value `json:"type"`
			Header jsontext.Value `json:"x-mcp-header"`
		}
		if json.Unmarshal(value, &property, lenient) != nil {
			continue // true and false are schemas, too
		}
		var header, kind string
		_ = json.Unmarshal(property.Header, &header)
		_ = json.Unmarshal(property.Type, &kind)
		if isToken(header) && (kind == "string" || kind == "integer" || kind == "boolean") {
			found = append(found, paramHeader{header, at})
		}
		found = append(found, annotations(value, at)...)
	}
	return found
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
