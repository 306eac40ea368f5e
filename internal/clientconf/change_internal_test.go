package clientconf

import (
	"errors"
	"strings"
	"testing"
)

// text is a document, one string per line; the last line has no end.
func text(lines ...string) string { return strings.Join(lines, "\n") }

const reg = "credHelpers reg.example.com"

func TestASettingIsMadeWithoutAByteBesideItAndItsUndoGivesTheOldBytes(t *testing.T) {
	for name, tt := range map[string]struct{ path, before, after string }{
		"an object that has members": {
			reg,
			text(`{`, `	"auths": {},`, `	"credHelpers": {`, `		"a": "b"`, `	}`, `}`, ``),
			text(`{`, `	"auths": {},`, `	"credHelpers": {`, `		"a": "b",`, `		"reg.example.com": "spendonce"`, `	}`, `}`, ``),
		},
		"no object yet": {
			reg,
			text(`{`, `  "auths": {}`, `}`),
			text(`{`, `  "auths": {},`, `  "credHelpers": {`, `    "reg.example.com": "spendonce"`, `  }`, `}`),
		},
		"an empty object": {
			reg,
			text(`{`, `  "credHelpers": {},`, `  "x": 1`, `}`),
			text(`{`, `  "credHelpers": {`, `    "reg.example.com": "spendonce"`, `  },`, `  "x": 1`, `}`),
		},
		"an empty object with a comment": {
			reg,
			text(`{`, `  "credHelpers": {`, `    // none yet`, `  }`, `}`),
			text(`{`, `  "credHelpers": {`, `    // none yet`, `    "reg.example.com": "spendonce"`, `  }`, `}`),
		},
		"comments and a trailing comma": {
			"k",
			text(`// ours`, `{`, `  "a": 1, // one`, `  /* two */ "b": 2, // the last`, `  // end`, `}`, `// bye`, ``),
			text(`// ours`, `{`, `  "a": 1, // one`, `  /* two */ "b": 2, // the last`, `  // end`, `  "k": "spendonce",`, `}`, `// bye`, ``),
		},
		"a comment behind the last value": {
			"k",
			text(`{`, `  "a": 1 // one`, `}`),
			text(`{`, `  "a": 1, // one`, `  "k": "spendonce"`, `}`),
		},
		"a comment between value and trailing comma": {
			"k",
			text(`{`, `  "a": 1 /* one */ ,`, `}`),
			text(`{`, `  "a": 1 /* one */ ,`, `  "k": "spendonce",`, `}`),
		},
		"a comma within a comment is none": {
			"k",
			text(`{`, `  "a": 1 /* , */`, `}`),
			text(`{`, `  "a": 1, /* , */`, `  "k": "spendonce"`, `}`),
		},
		"one line": {"k", `{"a":1}`, `{"a":1,"k":"spendonce"}`},
		"one line with blanks": {
			reg, `{ "a": 1, "b": {} }`, `{ "a": 1, "b": {}, "credHelpers": {"reg.example.com": "spendonce"} }`,
		},
		"one line within many": {
			"o k", text(`{`, `  "o": {"a": 1, "b": 2}`, `}`), text(`{`, `  "o": {"a": 1, "b": 2, "k": "spendonce"}`, `}`),
		},
		"a one-line object that a line comment ends": {
			"o k", text(`{`, `  "o": {"a": 1 // one`, `  }`, `}`), text(`{`, `  "o": {"a": 1, // one`, ` "k": "spendonce"`, `  }`, `}`),
		},
		"CRLF": {
			reg,
			"{\r\n    \"a\": 1\r\n}\r\n",
			"{\r\n    \"a\": 1,\r\n    \"credHelpers\": {\r\n        \"reg.example.com\": \"spendonce\"\r\n    }\r\n}\r\n",
		},
		"CRLF and comments": {
			"k",
			"{\r\n  \"a\": 1, // one  \r\n}\r\n",
			"{\r\n  \"a\": 1, // one\r\n  \"k\": \"spendonce\",  \r\n}\r\n",
		},
		"a byte order mark": {
			"k", "\xef\xbb\xbf{\"a\":1}\n", "\xef\xbb\xbf{\"a\":1,\"k\":\"spendonce\"}\n",
		},
		"a byte order mark and nothing": {
			"k", "\xef\xbb\xbf", "\xef\xbb\xbf{\n\t\"k\": \"spendonce\"\n}\n",
		},
		"an empty document": {"k", "{}\n", "{\n\t\"k\": \"spendonce\"\n}\n"},
		"an empty document with a comment": {
			"k", text(`{`, `  // soon`, `}`), text(`{`, `  // soon`, `	"k": "spendonce"`, `}`),
		},
		"an empty file":   {"a b", "", text(`{`, `	"a": {`, `		"b": "spendonce"`, `	}`, `}`, ``)},
		"only a line end": {"k", "\n", text(`{`, `	"k": "spendonce"`, `}`, ``)},
		"another value":   {"k", `{"k" : /* x */ "old\u0041", "z": 1}`, `{"k" : /* x */ "spendonce", "z": 1}`},
		"another kind of value": {
			"k", text(`{"k": [1, // one`, `2], "z": 1}`), `{"k": "spendonce", "z": 1}`,
		},
		"a name that is written with escapes": {
			"o k", `{"\u006f": {"a": 1}}`, `{"\u006f": {"a": 1, "k": "spendonce"}}`,
		},
		"numbers and strings as they were": {
			"k", `{"n": 1e400, "s": "\u00e4\/", "a": 0.10}`, `{"n": 1e400, "s": "\u00e4\/", "a": 0.10, "k": "spendonce"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := strings.Fields(tt.path)
			got, ch, changed, err := set([]byte(tt.before), true, path, "spendonce", "\t")
			if err != nil || !changed {
				t.Fatal(changed, err)
			}
			if string(got) != tt.after {
				t.Errorf("got\n%q\nwant\n%q", got, tt.after)
			}
			if v, ok, err := Get(got, path...); v != "spendonce" || !ok || err != nil {
				t.Errorf("read back: %q, %v, %v", v, ok, err)
			}
			if _, _, changed, err := set(got, true, path, "spendonce", "\t"); changed || err != nil {
				t.Errorf("a second time: %v, %v", changed, err)
			}
			was, err := undo(got, ch)
			if err != nil || string(was.doc) != tt.before || was.noFile || was.inherit || was.gone {
				t.Errorf("undone: %+v, %v\n%q\nwant\n%q", was, err, was.doc, tt.before)
			}
			if again, err := undo([]byte(tt.before), ch); err != nil || !again.gone || string(again.doc) != tt.before {
				t.Errorf("undone twice: %+v, %v", again, err)
			}
		})
	}
}

func TestAFileThatWasNotThereIsRemovedAgain(t *testing.T) {
	doc, ch, _, err := set(nil, false, []string{"a", "b"}, "x", "  ")
	if err != nil || string(doc) != text(`{`, `  "a": {`, `    "b": "x"`, `  }`, `}`, ``) {
		t.Fatalf("%q, %v", doc, err)
	}
	if was, err := undo(doc, ch); err != nil || !was.noFile {
		t.Errorf("%+v, %v", was, err)
	}
	// It stays if it meanwhile holds something.
	for _, more := range []string{
		strings.Replace(string(doc), `{`, `{ "other": 1,`, 1), "// mine\n" + string(doc),
	} {
		was, err := undo([]byte(more), ch)
		if err != nil || was.noFile || strings.Contains(string(was.doc), `"x"`) {
			t.Errorf("%+v, %v", was, err)
		}
		if strings.Contains(more, "other") && !strings.Contains(string(was.doc), `"other": 1`) {
			t.Errorf("lost: %s", was.doc)
		}
	}
}

func TestWhatCannotBeReadForCertainIsRefusedWithItsPlace(t *testing.T) {
	deep := strings.Repeat("[", 1_000_000)
	for name, tt := range map[string]struct {
		doc  string
		kind error
		says string
	}{
		"not closed":              {`{"a": 1`, ErrSyntax, "line 1, column 8"},
		"two documents":           {"{}\n{}", ErrSyntax, "line 2, column 1"},
		"no comma":                {"{\n  \"a\": 1\n  \"b\": 2}", ErrSyntax, "line 3, column 3"},
		"single quotes":           {`{'a': 1}`, ErrSyntax, "line 1, column 2"},
		"not UTF-8":               {"{\"a\": \"\xff\"}", ErrSyntax, "line 1, column 8"},
		"too deep":                {deep, ErrSyntax, "line 1: nested more than 500 deep"},
		"deep, behind a bracket":  {`{"]]]]": ` + deep, ErrSyntax, "nested"},
		"deep, behind a comment":  {"// ]]]\n/* }} */" + deep, ErrSyntax, "nested"},
		"an open comment":         {`{} /* `, ErrSyntax, "line 1"},
		"an array":                {`[]`, ErrShape, "the document is no object"},
		"a string on the way":     {"{\n\"o\": \"x\"}", ErrShape, `line 2: "o" is no object`},
		"null on the way":         {`{"o": null}`, ErrShape, `"o" is no object`},
		"a duplicate":             {"{\"o\": {},\n\"o\": {}}", ErrDuplicate, `line 2: "o" in the document`},
		"a duplicate by escapes":  {`{"o": {"k": 1, "\u006b": 2}}`, ErrDuplicate, `"k" in "o"`},
		"a duplicate beside it":   {`{"o": {"z": 1, "z": 2}}`, ErrDuplicate, `"z" in "o"`},
		"a duplicate in the root": {`{"z": 1, "z": 2}`, ErrDuplicate, `"z"`},
	} {
		_, _, _, err := set([]byte(tt.doc), true, []string{"o", "k"}, "v", "\t")
		if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %.200v, want %q", name, err, tt.says)
		}
	}
	if _, _, _, err := set([]byte(`{"far": {"z": 1, "z": 2}}`), true, []string{"o", "k"}, "v", "\t"); err != nil {
		t.Errorf("a duplicate elsewhere is not our business: %v", err)
	}
}

func TestWhatSomebodyHasChangedSinceIsLeftAlone(t *testing.T) {
	doc, ch, _, err := set([]byte(`{"k": "old"}`), true, []string{"k"}, "new", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := undo([]byte(strings.Replace(string(doc), "new", "newer", 1)), ch); !errors.Is(err, ErrAltered) {
		t.Errorf("%v, want ErrAltered", err)
	}
	was, err := undo([]byte(`{"k": "old"}`), ch)
	if err != nil || !was.gone {
		t.Errorf("put back by hand: %+v, %v", was, err)
	}
}

// What is put into an object that we made stays, and so does the object.
func TestAnUndoKeepsWhatOthersHaveAdded(t *testing.T) {
	doc, ch, _, err := set([]byte(text(`{`, `  "a": 1`, `}`)), true, []string{"o", "p", "k"}, "x", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for with, want := range map[string]string{
		`"k": "x", "theirs": 2`:       text(`{`, `  "a": 1,`, `  "o": {`, `    "p": { "theirs": 2`, `    }`, `  }`, `}`),
		`"theirs": 2, "k": "x"`:       text(`{`, `  "a": 1,`, `  "o": {`, `    "p": {`, `      "theirs": 2`, `    }`, `  }`, `}`),
		"// note\n      \"k\": \"x\"": text(`{`, `  "a": 1,`, `  "o": {`, `    "p": {`, `      // note`, `    }`, `  }`, `}`),
	} {
		now := strings.Replace(string(doc), `"k": "x"`, with, 1)
		was, err := undo([]byte(now), ch)
		if err != nil || !was.inherit || string(was.doc) != want {
			t.Errorf("%+v, %v\n%s\nwant\n%s", was, err, was.doc, want)
		}
	}
}

// Several settings in an object that the first of them made: in whatever
// order they are undone, the last one takes the object away.
func TestTheLastUndoTakesAwayWhatTheFirstSettingMade(t *testing.T) {
	for _, before := range []string{text(`{`, `  "a": 1`, `}`), text(`{`, `  "credHelpers": { },`, `  "a": 1`, `}`), `{}`, ``, "{ // c\n}"} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}} {
			doc := []byte(before)
			var changes []*Change
			for _, host := range []string{"one", "two", "three"} {
				out, ch, _, err := set(doc, true, []string{"credHelpers", host}, "spendonce", "  ")
				if err != nil {
					t.Fatal(err)
				}
				doc, changes = out, append(changes, &ch)
			}
			for n, i := range order {
				was, err := undo(doc, *changes[i])
				if err != nil {
					t.Fatal(err)
				}
				doc = was.doc
				if was.inherit {
					var heirs []*Change
					for _, j := range order[n+1:] {
						heirs = append(heirs, changes[j])
					}
					inherit(*changes[i], heirs)
				}
			}
			if string(doc) != before {
				t.Errorf("%q, in the order %v: %q", before, order, doc)
			}
		}
	}
}
