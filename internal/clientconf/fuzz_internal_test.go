package clientconf

import (
	"bytes"
	"reflect"
	"testing"

	"encoding/json"

	"github.com/tailscale/hujson"
)

// meaning is a document as a program reads it that heeds the last of two
// members of one name.
func meaning(t *testing.T, doc []byte) any {
	t.Helper()
	doc = bytes.TrimPrefix(doc, bom)
	if len(bytes.Trim(doc, blanks)) == 0 {
		return map[string]any{}
	}
	standard, err := hujson.Standardize(bytes.Clone(doc))
	if err != nil {
		t.Fatalf("%q does not parse: %v", doc, err)
	}
	d := json.NewDecoder(bytes.NewReader(standard))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q does not parse: %v", doc, err)
	}
	return v
}

// FuzzUndo holds what taking a setting back does to whatever has become of the
// document meanwhile: only the setting goes, and objects that are empty without
// it.
func FuzzUndo(f *testing.F) {
	for _, doc := range []string{
		"", "{}", `{"o":{"k":"v"}}`, `{"o":{"k":"v",},}`, `{"o":{"p":1,"k":"v"},"z":2}`, "{ // c\n\"o\": { // d\n \"k\": \"v\" // e\n, \"p\": 1, // f\n } // g\n}",
		`{"o":{"k":"v"/*,*/}, "p": {}}`, `{"o":{"k":"w"}}`, "{\r\n \"o\": {\r\n  // x\r\n  \"k\": \"v\"\r\n }\r\n}",
	} {
		f.Add([]byte(doc), 0)
	}
	empty := "{ }"
	made := []*Made{nil, {}, {Depth: 1}, {Depth: 1, Old: &empty}, {Old: &empty}}
	f.Fuzz(func(t *testing.T, doc []byte, which int) {
		ch := Change{Path: []string{"o", "k"}, New: `"v"`, Made: made[uint(which)%uint(len(made))]}
		was, err := undo(doc, ch)
		if err != nil || was.gone {
			return
		}
		want, _ := meaning(t, doc).(map[string]any)
		inner, _ := want["o"].(map[string]any)
		delete(inner, "k")
		got := map[string]any{}
		if !was.noFile {
			got, _ = meaning(t, was.doc).(map[string]any)
		}
		if _, there := got["o"]; len(inner) == 0 && !there {
			delete(want, "o")
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nbecame\n%q\nwhich means %v, want %v", doc, was.doc, got, want)
		}
		if comments(doc) != comments(was.doc) && !was.noFile {
			t.Fatalf("%q\nbecame\n%q\nand lost a comment", doc, was.doc)
		}
	})
}

// comments counts what stands between slashes.
func comments(doc []byte) (n int) {
	for i := 0; i < len(doc); i++ {
		switch rest := doc[i:]; {
		case rest[0] == '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(rest, []byte("//")):
			n, i = n+1, skipTo(doc, i, "\n")
		case bytes.HasPrefix(rest, []byte("/*")):
			n, i = n+1, skipTo(doc, i+2, "*/")
		}
	}
	return n
}

// FuzzSet holds what a setting does to any document at all: it is there
// afterwards, all else means what it meant, and undoing it gives the bytes
// that were there.
func FuzzSet(f *testing.F) {
	for _, doc := range []string{
		"", "{}", "{ // c\n}", `{"a":1}`, "{\n  \"a\": 1, // c\n}\n", `{"o":{"k":"x",},}`, "{\r\n\t\"o\": {}\r\n}", "\xef\xbb\xbf{}",
		"/* a */ {\"a\" /*b*/ : /*c*/ [1,2,], // d\n \"o\": {\"x\": 1 // e\n , \"y\": 2 /* f */, // g\n } /* h */ } // i\n",
	} {
		f.Add([]byte(doc), "o", "k", "v")
	}
	f.Fuzz(func(t *testing.T, doc []byte, first, second, value string) {
		if notUTF8([]byte(first+"|"+second+"|"+value)) >= 0 {
			t.Skip() // JSON has no such strings
		}
		path := []string{first, second}
		before := bytes.Clone(doc)
		out, ch, changed, err := set(doc, true, path, value, "  ")
		if !bytes.Equal(before, doc) {
			t.Fatal("the input was written to")
		}
		if err != nil {
			return
		}
		if got, ok, err := Get(out, path...); got != value || !ok || err != nil {
			t.Fatalf("%q: read back %q, %v, %v", out, got, ok, err)
		}
		if !changed {
			if !bytes.Equal(out, doc) {
				t.Fatalf("unchanged, and %q", out)
			}
			return
		}
		want, _ := meaning(t, doc).(map[string]any)
		inner, ok := want[first].(map[string]any)
		if !ok {
			inner = map[string]any{}
			want[first] = inner
		}
		inner[second] = value
		if got := meaning(t, out); !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("%q\nbecame\n%q\nwhich means %v, want %v", doc, out, got, want)
		}
		was, err := undo(out, ch)
		if err != nil || !bytes.Equal(was.doc, before) || was.inherit {
			t.Fatalf("%q\nbecame\n%q\nand back\n%q (%+v, %v)", before, out, was.doc, was, err)
		}
	})
}
