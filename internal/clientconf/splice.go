package clientconf

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

const blanks = " \t\r\n"

// layout is how a document is set.
type layout struct {
	newline string
	unit    string // of indentation
	colon   string // with the blank after it
	compact bool   // all on one line
}

// layoutOf reads the layout off the document; unit is the client's own, for
// where nothing shows it.
func (d *document) layoutOf(unit string) layout {
	l := layout{newline: "\n", unit: unit, colon: ": "}
	if bytes.Contains(d.text, []byte("\r\n")) {
		l.newline = "\r\n"
	}
	root, _ := d.root.Value.(*hujson.Object)
	if d.absent || root == nil || len(root.Members) == 0 {
		return l
	}
	first := root.Members[0]
	gap := d.blanksBefore(first.Name.StartOffset)
	if at := strings.LastIndexByte(gap, '\n'); at >= 0 && at < len(gap)-1 {
		l.unit = gap[at+1:]
	}
	if space := string(first.Value.BeforeExtra); strings.Trim(space, " ") == "" {
		l.colon = ":" + space
	}
	l.compact = !bytes.Contains(d.text[d.root.StartOffset:d.root.EndOffset], []byte("\n"))
	return l
}

// blanksBefore is the run of white space that ends at offset.
func (d *document) blanksBefore(offset int) string {
	return string(d.text[len(bytes.TrimRight(d.text[:offset], blanks)):offset])
}

// indentAt is the indentation of the line that holds offset.
func (d *document) indentAt(offset int) string {
	line := d.text[bytes.LastIndexByte(d.text[:offset], '\n')+1 : offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// nest is the text of objects within objects, the innermost holding value.
func (l layout) nest(names []string, v value, indent string) string {
	if len(names) == 0 {
		return v.write(l, indent)
	}
	if l.compact {
		return "{" + quote(names[0]) + l.colon + l.nest(names[1:], v, "") + "}"
	}
	inner := indent + l.unit
	return "{" + l.newline + inner + quote(names[0]) + l.colon + l.nest(names[1:], v, inner) + l.newline + indent + "}"
}

// insert adds a member at the end of an object, v, that has members.
func (d *document) insert(v *hujson.Value, obj *hujson.Object, l layout, names []string, what value) []byte {
	last := obj.Members[len(obj.Members)-1]
	gap := ""
	for _, m := range slices.Backward(obj.Members) {
		gap = d.blanksBefore(m.Name.StartOffset)
		if strings.Contains(gap, "\n") {
			break // else the first one's: it has no line of its own
		}
	}
	if !strings.Contains(gap, "\n") {
		gap = d.blanksBefore(last.Name.StartOffset)
	}
	indent := d.indentAt(v.StartOffset)
	if at := strings.LastIndexByte(gap, '\n'); at >= 0 {
		gap, indent = l.newline+gap[at+1:], gap[at+1:]
	} else if len(obj.Members) == 1 {
		gap = strings.TrimPrefix(l.colon, ":") // nothing shows what stands between two
	}
	// Behind the last comment, so that it stays with the member it is about.
	end, brace := last.Value.EndOffset, v.EndOffset-1
	at := len(bytes.TrimRight(d.text[:brace], blanks))
	if d.endsInLineComment(end, at) && !strings.Contains(gap, "\n") {
		gap = l.newline + gap
	}
	member := gap + quote(names[0]) + l.colon + l.nest(names[1:], what, indent)
	if d.commaAfter(end) >= 0 { // a trailing comma
		return d.with(at, at, member+",")
	}
	return d.with(end, at, ","+string(d.text[end:at])+member)
}

// fill gives an empty object its first member.
func (d *document) fill(v *hujson.Value, l layout, names []string, what value) []byte {
	open, brace := v.StartOffset+1, v.EndOffset-1
	at := open + len(bytes.TrimRight(d.text[open:brace], blanks))
	if l.compact {
		return d.with(at, brace, quote(names[0])+l.colon+l.nest(names[1:], what, ""))
	}
	outer := d.indentAt(v.StartOffset)
	indent := outer + l.unit
	return d.with(at, brace, l.newline+indent+quote(names[0])+l.colon+l.nest(names[1:], what, indent)+l.newline+outer)
}

// remove takes the last name of path out of its object: the member, the white
// space before it, and the one comma that is now too many. Comments stay.
func (d *document) remove(way []*hujson.Value, path []string) []byte {
	parent := way[len(path)-1]
	obj, ok := parent.Value.(*hujson.Object)
	if !ok || len(way) <= len(path) {
		return d.with(0, 0, "") // there is no such member
	}
	i := 0
	for nameOf(obj.Members[i]) != path[len(path)-1] {
		i++
	}
	m := obj.Members[i]
	start, end := m.Name.StartOffset-len(d.blanksBefore(m.Name.StartOffset)), m.Value.EndOffset
	low := parent.StartOffset + 1
	if i > 0 {
		low = obj.Members[i-1].Value.EndOffset
	}
	keep := ""
	if d.endsInLineComment(low, start) {
		keep = d.firstLineEnd(start) // it ends the comment
	}
	if comma := d.commaAfter(end); comma >= 0 {
		rest := string(d.text[end:comma])
		if keep != "" && strings.HasPrefix(strings.TrimLeft(rest+string(d.text[comma+1:]), " \t"), keep) {
			keep = ""
		}
		return d.with(start, comma+1, keep+rest)
	}
	if keep != "" && strings.HasPrefix(strings.TrimLeft(string(d.text[end:]), " \t"), keep) {
		keep = ""
	}
	if i == 0 {
		return d.with(start, end, keep)
	}
	comma := d.commaAfter(low)
	return d.with(comma, end, string(d.text[comma+1:start])+keep)
}

// firstLineEnd is the line end in the white space at offset.
func (d *document) firstLineEnd(offset int) string {
	if bytes.HasPrefix(d.text[offset:], []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// commaAfter is the offset of the comma after a value that ends at offset, or
// -1.
func (d *document) commaAfter(offset int) int {
	for i := offset; i < len(d.text); i++ {
		switch rest := d.text[i:]; {
		case rest[0] == ',':
			return i
		case bytes.HasPrefix(rest, []byte("//")):
			i = skipTo(d.text, i, "\n")
		case bytes.HasPrefix(rest, []byte("/*")):
			i = skipTo(d.text, i+2, "*/")
		case !strings.ContainsRune(blanks, rune(rest[0])):
			return -1
		}
	}
	return -1
}

// endsInLineComment reports whether the last comment between the two offsets,
// behind which only white space stands, goes to the end of its line.
func (d *document) endsInLineComment(from, to int) bool {
	line := false
	for i := from; i < to; i++ {
		switch rest := d.text[i:]; {
		case bytes.HasPrefix(rest, []byte("//")):
			i = skipTo(d.text, i, "\n")
			line = i >= to
		case bytes.HasPrefix(rest, []byte("/*")):
			i, line = skipTo(d.text, i+2, "*/"), false
		}
	}
	return line
}
