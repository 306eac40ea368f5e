package mcpproxy

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// kind is what a JSON-RPC message is.
type kind int

const (
	kindRequest kind = iota + 1
	kindNotification
	kindResponse
	kindBatch
)

// message is one JSON-RPC message, and what its way depends on.
type message struct {
	raw    []byte // as it came
	kind   kind
	id     jsontext.Value // as it is spelt; nil: none
	method string

	// Of the parameters.
	name, uri string
	version   string         // of the protocol, where the message names it itself
	cancels   jsontext.Value // the id that a cancellation is about

	parts []message // of a batch
}

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodListTools   = "tools/list"
	methodCallTool    = "tools/call"

	metaVersion = "io.modelcontextprotocol/protocolVersion"
)

// A message that is not one is refused with one of these.
var (
	errNotJSON    = errors.New("it is not JSON in UTF-8")
	errNoMessage  = errors.New("it is not a JSON-RPC message")
	errBadID      = errors.New("its id is neither a string nor a number")
	errBatchEmpty = errors.New("it is a batch of nothing")
)

// parse reads as much of a message as its way needs. The whole of it must be
// JSON and valid UTF-8; what members it has beside those is nobody's business
// here. On an error the id is returned where one was found, and the parts of a
// batch that are messages.
func parse(raw []byte) (message, error) {
	m := message{raw: raw}
	if !utf8.Valid(raw) {
		return m, errNotJSON
	}
	d := decoder(raw)
	switch d.PeekKind() {
	case '[':
		return m, m.readBatch(d)
	case '{':
	default:
		if _, err := d.ReadValue(); err != nil || !atEnd(d) {
			return m, errNotJSON
		}
		return m, errNoMessage
	}
	var answer bool
	var badID error
	err := members(d, func(name string) error {
		switch name {
		case "id":
			v, err := d.ReadValue()
			m.id = slices.Clone(v)
			if k := v.Kind(); err == nil && k != '"' && k != '0' && k != 'n' {
				badID, m.id = errBadID, nil
			}
			return err
		case "method":
			return text(d, &m.method)
		case "params":
			return m.readParams(d)
		case "result", "error":
			answer = true
		}
		return d.SkipValue()
	})
	switch null := m.id.Kind() == 'n'; {
	case err != nil || !atEnd(d):
		m.id = nil // of what is no message
		return m, errNotJSON
	case badID != nil:
		return m, badID
	case m.method != "" && m.id == nil:
		m.kind = kindNotification
	case m.method != "" && null:
		m.id = nil
		return m, errBadID
	case m.method != "":
		m.kind = kindRequest
	case answer && m.id != nil:
		m.kind = kindResponse
	default:
		return m, errNoMessage
	}
	return m, nil
}

func (m *message) readBatch(d *jsontext.Decoder) error {
	m.kind = kindBatch
	if _, err := d.ReadToken(); err != nil {
		return errNotJSON
	}
	var bad error
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			m.parts = nil // of what is no message
			return errNotJSON
		}
		part, err := parse(slices.Clone(v))
		switch {
		case err == nil && part.kind == kindBatch:
			bad = errNoMessage
		case err != nil:
			bad = err
		default:
			m.parts = append(m.parts, part)
		}
	}
	switch _, err := d.ReadToken(); {
	case err != nil || !atEnd(d):
		m.parts = nil
		return errNotJSON
	case bad != nil:
		return bad
	case len(m.parts) == 0:
		return errBatchEmpty
	}
	return nil
}

func (m *message) readParams(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return d.SkipValue()
	}
	return members(d, func(name string) error {
		switch name {
		case "name":
			return text(d, &m.name)
		case "uri":
			return text(d, &m.uri)
		case "requestId":
			v, err := d.ReadValue()
			m.cancels = slices.Clone(v)
			return err
		case "_meta":
			if d.PeekKind() != '{' {
				break
			}
			return members(d, func(name string) error {
				if name == metaVersion {
					return text(d, &m.version)
				}
				return d.SkipValue()
			})
		}
		return d.SkipValue()
	})
}

// requests are the ids that must be answered.
func (m *message) requests() []jsontext.Value {
	if m.kind == kindRequest {
		return []jsontext.Value{m.id}
	}
	var ids []jsontext.Value
	for _, part := range m.parts {
		ids = append(ids, part.requests()...)
	}
	return ids
}

// negotiated is the protocol version in the answer to an initialize request;
// "" if it is a refusal.
func negotiated(raw []byte) string {
	var version string
	d := decoder(raw)
	_ = members(d, func(name string) error {
		if name != "result" || d.PeekKind() != '{' {
			return d.SkipValue()
		}
		return members(d, func(name string) error {
			if name == "protocolVersion" {
				return text(d, &version)
			}
			return d.SkipValue()
		})
	})
	return version
}

// idKey is the same for two spellings of one id: a number may come back as
// another program writes it.
func idKey(id jsontext.Value) string {
	switch id.Kind() {
	case '"':
		// It is a string: the error could only be of half a surrogate pair,
		// for which something is returned all the same.
		s, _ := jsontext.AppendUnquote(nil, id)
		return `"` + string(s)
	case '0':
		const exact = 1 << 53
		f, err := strconv.ParseFloat(string(id), 64)
		if err == nil && f == math.Trunc(f) && math.Abs(f) < exact {
			return strconv.FormatInt(int64(f), 10)
		}
	}
	return string(id)
}

// sameID reports whether two spellings are of one id.
func sameID(a, b jsontext.Value) bool {
	return bytes.Equal(a, b) || idKey(a) == idKey(b)
}

func decoder(raw []byte) *jsontext.Decoder {
	// Names that come twice and halves of surrogate pairs are for the other
	// side to judge.
	return jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func atEnd(d *jsontext.Decoder) bool {
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

// members reads an object; member reads or skips the value.
func members(d *jsontext.Decoder, member func(name string) error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := member(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// text reads a string; of another value it keeps nothing.
func text(d *jsontext.Decoder, into *string) error {
	if d.PeekKind() != '"' {
		return d.SkipValue()
	}
	t, err := d.ReadToken()
	if err == nil {
		*into = t.String()
	}
	return err
}

// oneLine puts a message on one line, in place: in JSON a line end stands
// between tokens only, where a space is as good.
func oneLine(raw []byte) []byte {
	for rest := raw; ; {
		n := lineEnd(rest)
		if n < 0 {
			return raw
		}
		rest[n] = ' '
		rest = rest[n+1:]
	}
}
