// Package clientconf changes the settings of other programs, so that they ask
// this one for credentials, and takes such a change back.
//
// Its promise: every byte that is not the setting itself stays, comments and
// order included; a file that cannot be read with certainty is not touched; a
// file is the old one or the new one, whatever happens in between; and what
// was changed is noted before, in the state directory, so that taking it back
// gives the bytes that were there. Where the client has a tool for its
// settings, that tool makes the change, started without a shell.
package clientconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

var (
	// ErrSyntax says that a file is not JSON, comments and trailing commas
	// allowed. The error names line and column.
	ErrSyntax = errors.New("not JSON")
	// ErrShape says that on the way to a setting stands something that is no
	// object.
	ErrShape = errors.New("not the expected structure")
	// ErrDuplicate says that an object on the way to a setting has two
	// members of one name: which of them its program heeds is not known.
	ErrDuplicate = errors.New("the same name twice")
)

// Bounds of what is read. Claude Code's file is known to grow to megabytes.
const (
	maxDocument = 32 << 20
	maxDepth    = 500
)

var bom = []byte("\xef\xbb\xbf")

// document is a parsed file.
type document struct {
	bom, text []byte
	root      hujson.Value
	absent    bool // nothing but white space
}

// parse reads a document. A byte order mark is kept aside.
func parse(b []byte) (*document, error) {
	d := &document{text: b}
	if rest, ok := bytes.CutPrefix(b, bom); ok {
		d.bom, d.text = bom, rest
	}
	if len(bytes.TrimLeft(d.text, " \t\r\n")) == 0 {
		d.absent = true
		return d, nil
	}
	if i := notUTF8(d.text); i >= 0 {
		start := bytes.LastIndexByte(d.text[:i], '\n') + 1
		return nil, fmt.Errorf("%w: line %d, column %d: not UTF-8", ErrSyntax, d.line(i), 1+i-start)
	}
	if err := checkDepth(d.text); err != nil {
		return nil, err
	}
	root, err := hujson.Parse(d.text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSyntax, strings.TrimPrefix(err.Error(), "hujson: "))
	}
	d.root = root
	return d, nil
}

// notUTF8 is the offset of the first byte that is no UTF-8, or -1.
func notUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
}

// checkDepth keeps the parser, which calls itself, from running out of stack.
func checkDepth(text []byte) error {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case rest[0] == '{' || rest[0] == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("%w: line %d: nested more than %d deep", ErrSyntax, 1+bytes.Count(text[:i], []byte("\n")), maxDepth)
			}
		case rest[0] == '}' || rest[0] == ']':
			depth--
		case rest[0] == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(rest, []byte("//")):
			i = skipTo(text, i, "\n")
		case bytes.HasPrefix(rest, []byte("/*")):
			i = skipTo(text, i+2, "*/")
		}
	}
	return nil
}

// skipTo returns the offset of the last byte of the next end.
func skipTo(text []byte, i int, end string) int {
	i = min(i, len(text))
	n := bytes.Index(text[i:], []byte(end))
	if n < 0 {
		return len(text)
	}
	return i + n + len(end) - 1
}

// with returns the whole file with text[from:to] replaced.
func (d *document) with(from, to int, text string) []byte {
	return slices.Concat(d.bom, d.text[:from], []byte(text), d.text[to:])
}

// find follows path from the root. It returns the values on the way, the root
// first, as far as there are any.
func (d *document) find(path []string) ([]*hujson.Value, error) {
	if d.absent {
		return nil, nil
	}
	way := []*hujson.Value{&d.root}
	for i, name := range path {
		members, err := d.members(way[i], path[:i])
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(members, func(m hujson.ObjectMember) bool { return nameOf(m) == name })
		if at < 0 {
			return way, nil
		}
		way = append(way, &members[at].Value)
	}
	return way, nil
}

// members returns the members of an object, each name of which is there once.
func (d *document) members(v *hujson.Value, path []string) ([]hujson.ObjectMember, error) {
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%w: line %d: %s is no object", ErrShape, d.line(v.StartOffset), pathText(path))
	}
	seen := make(map[string]bool, len(obj.Members))
	for _, m := range obj.Members {
		name := nameOf(m)
		if seen[name] {
			return nil, fmt.Errorf("%w: line %d: %q in %s", ErrDuplicate, d.line(m.Name.StartOffset), name, pathText(path))
		}
		seen[name] = true
	}
	return obj.Members, nil
}

func nameOf(m hujson.ObjectMember) string {
	name, _ := m.Name.Value.(hujson.Literal) // the parser takes nothing else
	return name.String()
}

func (d *document) line(offset int) int { return 1 + bytes.Count(d.text[:offset], []byte("\n")) }

// raw is the text of a value.
func (d *document) raw(v *hujson.Value) string { return string(d.text[v.StartOffset:v.EndOffset]) }

// pathText names a place in a message.
func pathText(path []string) string {
	if len(path) == 0 {
		return "the document"
	}
	quoted := make([]string, len(path))
	for i, name := range path {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ".")
}

// quote is a string as JSON, without the escapes that only HTML wants.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// Get returns the string at path. What is not there, or is no string, is not
// ok.
func Get(doc []byte, path ...string) (value string, ok bool, err error) {
	d, err := parse(doc)
	if err != nil {
		return "", false, err
	}
	return d.get(path...)
}

func (d *document) get(path ...string) (value string, ok bool, err error) {
	way, err := d.find(path)
	if err != nil || len(way) != len(path)+1 {
		return "", false, err
	}
	lit, ok := way[len(path)].Value.(hujson.Literal)
	if !ok || lit.Kind() != '"' {
		return "", false, nil
	}
	return lit.String(), true, nil
}

// rawAt returns the text of the value at path, if there is one.
func rawAt(doc []byte, path ...string) (raw string, ok bool, err error) {
	d, err := parse(doc)
	if err != nil {
		return "", false, err
	}
	way, err := d.find(path)
	if err != nil || len(way) != len(path)+1 {
		return "", false, err
	}
	return d.raw(way[len(path)]), true, nil
}

// names returns the names of the members of the object at path, in their
// order; there are none where there is no object.
func (d *document) names(path ...string) ([]string, error) {
	way, err := d.find(path)
	if err != nil || len(way) != len(path)+1 {
		return nil, err
	}
	if _, ok := way[len(path)].Value.(*hujson.Object); !ok {
		return nil, nil
	}
	members, err := d.members(way[len(path)], path)
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = nameOf(m)
	}
	return names, err
}
