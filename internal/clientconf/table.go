package clientconf

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// ErrNotTOML says that a file is not TOML. The error names line and column.
var ErrNotTOML = errors.New("not TOML")

// maxTOML bounds a TOML document; its parser calls itself.
const maxTOML = 1 << 20

// servers is the table of Codex's servers.
const servers = "mcp_servers"

// Table is one table of a TOML document that was put in, with what it takes to
// take it out. No parser of TOML keeps comments, so the document is never
// written anew: the table goes to its end, and out are taken the bytes that
// came in.
type Table struct {
	Name string  `json:"name"`           // within mcp_servers
	Text string  `json:"text"`           // as it stands in the file, with the line ends before it
	Ours *string `json:"ours,omitzero"`  // what we had put in before, and may still stand there
	Made bool    `json:"made,omitempty"` // the file was made for it
}

func (t Table) header() string { return servers + "." + t.Name }

// tomlDocument is what a TOML document means.
type tomlDocument map[string]any

func parseTOML(b []byte) (tomlDocument, error) {
	if len(b) > maxTOML {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrNotTOML, maxTOML)
	}
	d := tomlDocument{}
	err := toml.Unmarshal(bytes.TrimPrefix(b, bom), &d)
	var at *toml.DecodeError
	if errors.As(err, &at) {
		line, column := at.Position()
		return nil, fmt.Errorf("%w: line %d, column %d: %s", ErrNotTOML, line, column, printable(strings.TrimPrefix(at.Error(), "toml: ")))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNotTOML, printable(err.Error()))
	}
	return d, nil
}

// server returns what is set for a server, if anything is.
func (d tomlDocument) server(name string) (v any, ok bool, err error) {
	all, there := d[servers]
	if !there {
		return nil, false, nil
	}
	table, isTable := all.(map[string]any)
	if !isTable {
		return nil, false, fmt.Errorf("%w: %s is no table", ErrShape, servers)
	}
	v, ok = table[name]
	return v, ok, nil
}

// without is d but for one server. A table of servers that is empty counts as
// none.
func (d tomlDocument) without(name string) tomlDocument {
	rest := maps.Clone(d)
	if table, ok := rest[servers].(map[string]any); ok {
		table = maps.Clone(table)
		delete(table, name)
		rest[servers] = table
		if len(table) == 0 {
			delete(rest, servers)
		}
	}
	return rest
}

// meaningOf is a text that is the same for values that are; not-a-number is
// like itself there.
func meaningOf(v any) string { return fmt.Sprintf("%#v", v) }

// table is the entry as Codex reads it, which has no type.
func (e Entry) table() map[string]any {
	args := make([]any, len(e.Args))
	for i, a := range e.Args {
		args[i] = a
	}
	return map[string]any{"command": e.Command, "args": args}
}

// startedBy reports whether a table starts what e does. What else is set for
// the server is its user's.
func (e Entry) startedBy(v any) bool {
	table, ok := v.(map[string]any)
	want := e.table()
	_, remote := table["url"]
	return ok && !remote && table["command"] == want["command"] && meaningOf(table["args"]) == meaningOf(want["args"])
}

// lines is the table as text.
func (e Entry) lines(name string) []string {
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = tomlString(a)
	}
	return []string{
		"[" + servers + "." + name + "]",
		"command = " + tomlString(e.Command),
		"args = [" + strings.Join(args, ", ") + "]",
	}
}

// tomlString is a basic string.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			b.WriteString(`\u` + strings.ToUpper(strconv.FormatInt(0x10000+int64(r), 16)[1:]))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// appendTable puts a server's table at the end of a document that has none of
// that name. What it returns has been parsed, and means what it meant and the
// server.
func appendTable(doc []byte, existed bool, name string, e Entry) (out []byte, t Table, err error) {
	before, err := parseTOML(doc)
	if err != nil {
		return nil, Table{}, err
	}
	if _, there, err := before.server(name); err != nil || there {
		return nil, Table{}, errors.Join(err, fmt.Errorf("%w: there is a table %s.%s", ErrAltered, servers, name))
	}
	newline := "\n"
	if bytes.Contains(doc, []byte("\r\n")) {
		newline = "\r\n"
	}
	lead := newline
	switch own := bytes.TrimPrefix(doc, bom); {
	case len(own) == 0 || bytes.HasSuffix(own, []byte(newline+newline)):
		lead = ""
	case !bytes.HasSuffix(own, []byte("\n")):
		lead += newline
	}
	t = Table{Name: name, Text: lead + strings.Join(e.lines(name), newline) + newline, Made: !existed}
	out = slices.Concat(doc, []byte(t.Text))
	after, err := parseTOML(out)
	if err != nil {
		return nil, Table{}, fmt.Errorf("with the new table it would be %w", err)
	}
	if got, _, err := after.server(name); err != nil || !e.startedBy(got) || meaningOf(after.without(name)) != meaningOf(before.without(name)) {
		return nil, Table{}, fmt.Errorf("%w: a table at its end would not be one of its own", ErrShape)
	}
	return out, t, nil
}

// cutTable takes a table out by its bytes. It is gone if there is no such
// server, and [ErrAltered] if there is another or more than what we set. The
// error is [ErrRewritten] if somebody has written the same table in another
// way.
func cutTable(doc []byte, t Table) (was undone, err error) {
	before, err := parseTOML(doc)
	if err != nil {
		return undone{}, err
	}
	now, there, err := before.server(t.Name)
	if err != nil {
		return undone{}, err
	}
	if !there {
		return undone{doc: doc, gone: true}, nil
	}
	ours := t.texts()
	if !slices.ContainsFunc(ours, func(text string) bool { return setsExactly(text, t.Name, now) }) {
		return undone{}, fmt.Errorf("[%s]: %w", t.header(), ErrAltered)
	}
	want := meaningOf(before.without(t.Name))
	for _, text := range ours {
		for from := 0; ; {
			at := bytes.Index(doc[from:], []byte(text))
			if at < 0 {
				break
			}
			at += from
			from = at + 1
			out, ok := cut(doc, at, len(text))
			if !ok {
				continue
			}
			if after, err := parseTOML(out); err == nil && meaningOf(after.without(t.Name)) == want && !after.has(t.Name) {
				return undone{doc: out, text: text, noFile: t.Made && len(out) == 0}, nil
			}
		}
	}
	return undone{}, fmt.Errorf("[%s]: %w", t.header(), ErrRewritten)
}

// ErrRewritten says that what we had set stands in a file in another form.
var ErrRewritten = errors.New("written anew by somebody else")

func (d tomlDocument) has(name string) bool {
	_, there, err := d.server(name)
	return there || err != nil
}

// texts are the forms in which our table may stand in the file: as we put it,
// or with line ends or blank lines that its program has changed.
func (t Table) texts() []string {
	var all []string
	for _, text := range []*string{&t.Text, t.Ours} {
		if text == nil {
			continue
		}
		unix := strings.ReplaceAll(*text, "\r\n", "\n")
		all = append(all, *text, unix, strings.TrimLeft(*text, "\r\n"), strings.TrimLeft(unix, "\n"))
	}
	return slices.DeleteFunc(all, func(text string) bool { return text == "" })
}

func setsExactly(text, name string, now any) bool {
	d, err := parseTOML([]byte(text))
	if err != nil {
		return false
	}
	v, there, err := d.server(name)
	return err == nil && there && meaningOf(v) == meaningOf(now)
}

// cut takes whole lines out of a document.
func cut(doc []byte, at, n int) (out []byte, ok bool) {
	head, tail := doc[:at], doc[at+n:]
	open := len(bytes.TrimPrefix(head, bom)) > 0 && !bytes.HasSuffix(head, []byte("\n"))
	switch end := doc[at : at+n]; {
	case open && end[0] != '\n' && end[0] != '\r':
		return nil, false // the middle of a line
	case open && len(tail) > 0 && end[0] == '\r':
		return slices.Concat(head, []byte("\r\n"), tail), true
	case open && len(tail) > 0:
		return slices.Concat(head, []byte("\n"), tail), true
	}
	return slices.Concat(head, tail), true
}
