package credstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// document is the store's JSON object: target to record, in the file's order.
// Values stay as they were read, so that what we do not understand survives.
type document struct{ members []member }

type member struct {
	name  string
	value jsontext.Value
}

// damage says where bytes stop being what they must be.
type damage struct {
	offset int64
	what   string
}

func (d *damage) Error() string { return fmt.Sprintf("at byte %d: %s", d.offset, d.what) }

// parseDocument reads one JSON object and nothing else. Duplicate names,
// invalid UTF-8 and bytes after the object are damage.
func parseDocument(b []byte) (*document, error) {
	switch {
	case len(bytes.TrimSpace(b)) == 0:
		return nil, &damage{0, "the file is empty"}
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return nil, &damage{0, "a byte order mark stands before the object"}
	}
	d := jsontext.NewDecoder(bytes.NewReader(b))
	if k := d.PeekKind(); k != '{' && k != 0 {
		return nil, &damage{int64(bytes.IndexByte(b, bytes.TrimSpace(b)[0])), "not a JSON object"}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, damageFrom(d, err)
	}
	doc := &document{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, damageFrom(d, err)
		}
		m := member{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil, damageFrom(d, err)
		}
		m.value = value.Clone()
		doc.members = append(doc.members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, damageFrom(d, err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &damage{d.InputOffset(), "more bytes after the end of the object"}
	}
	return doc, nil
}

// damageFrom keeps the place and the library's word for it, but none of the
// file's own bytes: they may be a token.
func damageFrom(d *jsontext.Decoder, err error) error {
	at := d.InputOffset()
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		at = syntax.ByteOffset
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &damage{at, "the file ends too early"}
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &damage{at, "a name appears twice"}
	default:
		return &damage{at, "not valid JSON"}
	}
}

func (d *document) get(name string) (jsontext.Value, bool) {
	for _, m := range d.members {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// set replaces the member in its place or appends it.
func (d *document) set(name string, value jsontext.Value) {
	for i := range d.members {
		if d.members[i].name == name {
			d.members[i].value = value
			return
		}
	}
	d.members = append(d.members, member{name, value})
}

func (d *document) remove(name string) {
	for i := range d.members {
		if d.members[i].name == name {
			d.members = append(d.members[:i:i], d.members[i+1:]...)
			return
		}
	}
}

func (d *document) clone() *document {
	return &document{append([]member(nil), d.members...)}
}

// compact is the object in one line.
func (d *document) compact() jsontext.Value {
	b := []byte{'{'}
	for i, m := range d.members {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, m.name)
		b = append(append(b, ':'), m.value...)
	}
	return append(b, '}')
}

// encode is the file: indented by two spaces, ending in a newline.
func (d *document) encode() ([]byte, error) {
	v := d.compact()
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, fmt.Errorf("encoding the store: %w", err)
	}
	return append(v, '\n'), nil
}
