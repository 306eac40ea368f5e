package clientconf

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

var wikiEntry = Entry{Type: "stdio", Command: "/opt/my tools/spendonce", Args: []string{"mcp", "proxy", "wiki"}}

const wikiTable = `[mcp_servers.wiki]
command = "/opt/my tools/spendonce"
args = ["mcp", "proxy", "wiki"]
`

func TestATableGoesToTheEndAndComesOutByteForByte(t *testing.T) {
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	for name, tt := range map[string]struct{ before, lead, table string }{
		"nothing":                  {"", "", wikiTable},
		"a byte order mark":        {"\xef\xbb\xbf", "", wikiTable},
		"a comment":                {"# mine", "\n\n", wikiTable},
		"a last line without end":  {"model = \"x\" # c", "\n\n", wikiTable},
		"a last line with its end": {"model = \"x\" # c\n", "\n", wikiTable},
		"a blank line at the end":  {"model = \"x\"\n\n", "", wikiTable},
		"other servers":            {"[mcp_servers.a] # a\ncommand=  'x' # x\n[mcp_servers.a.env]\nK = 'v'\n", "\n", wikiTable},
		"servers in one line":      {"[mcp_servers]\na = { command = 'x' } # c\n", "\n", wikiTable},
		"servers and none of them": {"[mcp_servers]\n", "\n", wikiTable},
		"CRLF":                     {"model = \"x\"\r\n", "\r\n", crlf(wikiTable)},
		"CRLF, no end":             {"a = 1\r\nmodel = \"x\"", "\r\n\r\n", crlf(wikiTable)},
		"the table as a text":      {"doc = '''\n\n" + wikiTable + "'''\n", "\n", wikiTable},
		"nan and dates":            {"a = nan\nb = 2020-01-01T00:00:00Z\nc = 07:00:00\nd = -0.0\n", "\n", wikiTable},
	} {
		out, table, err := appendTable([]byte(tt.before), true, "wiki", wikiEntry)
		if want := tt.before + tt.lead + tt.table; err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", name, out, err, want)
			continue
		}
		was, err := cutTable(out, table)
		if err != nil || string(was.doc) != tt.before || was.noFile {
			t.Errorf("%s: back to %q (%+v, %v)", name, was.doc, was, err)
		}
		if _, _, err := appendTable(out, true, "wiki", wikiEntry); !errors.Is(err, ErrAltered) {
			t.Errorf("%s, twice: %v", name, err)
		}
	}
}

func TestATableIsNotPutWhereItWouldNotBeOneOfItsOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		doc  string
		kind error
		says string
	}{
		"no TOML":           {"a = 1\nb = = 2\n", ErrNotTOML, "line 2, column 5"},
		"an open text":      {"a = '''\n", ErrNotTOML, "line 1"},
		"a name twice":      {"a = 1\na = 2\n", ErrNotTOML, "a"},
		"servers closed":    {"mcp_servers = { a = { command = 'x' } }\n", ErrNotTOML, "with the new table"},
		"servers as a list": {"[[mcp_servers]]\ncommand = 'x'\n", ErrShape, "mcp_servers"},
		"servers as a text": {"mcp_servers = 'x'\n", ErrShape, "mcp_servers"},
		"the same name":     {"[mcp_servers.\"wiki\"]\ncommand = 'x'\n", ErrAltered, "mcp_servers.wiki"},
		"the name, dotted":  {"mcp_servers.wiki.command = 'x'\n", ErrAltered, "mcp_servers.wiki"},
		"only its env":      {"[mcp_servers.wiki.env]\nK = 'v'\n", ErrAltered, "mcp_servers.wiki"},
		"too much":          {strings.Repeat("# x\n", maxTOML/4) + "#", ErrNotTOML, "larger"},
		"deep lists":        {"a = " + strings.Repeat("[", maxTOML-8), ErrNotTOML, "line 1"},
	} {
		out, _, err := appendTable([]byte(tt.doc), true, "wiki", wikiEntry)
		if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) || out != nil {
			t.Errorf("%s: %q, %v; want %v and %q", name, out, err, tt.kind, tt.says)
		}
	}
}

func TestATableComesOutOfWhatHasBecomeOfTheFile(t *testing.T) {
	const before = "a = 1"
	_, table, err := appendTable([]byte(before), true, "wiki", wikiEntry)
	if err != nil {
		t.Fatal(err)
	}
	crlf := table
	crlf.Text = strings.ReplaceAll(table.Text, "\n", "\r\n")
	newer := table
	newer.Text, newer.Ours = strings.ReplaceAll(table.Text, "/opt", "/usr"), &table.Text
	for name, tt := range map[string]struct {
		doc   string
		table Table
		want  string
		kind  error
	}{
		"more behind it":         {before + table.Text + "[z]\nb = 2\n", table, "a = 1\n[z]\nb = 2\n", nil},
		"a comment behind it":    {before + table.Text + "# mine\n", table, "a = 1\n# mine\n", nil},
		"moved to the top":       {wikiTable + "[z]\nb = 2\n", table, "[z]\nb = 2\n", nil},
		"line ends changed":      {"a = 1\n\n" + wikiTable, crlf, "a = 1", nil},
		"an update that stopped": {before + table.Text, newer, before, nil},
		"a member of the user's": {before + table.Text + "enabled = false\n", table, "", ErrAltered},
		"a table of the user's":  {before + table.Text + "[mcp_servers.wiki.env]\nK = 'v'\n", table, "", ErrAltered},
		"another program":        {strings.ReplaceAll(before+table.Text, "/opt", "/home"), table, "", ErrAltered},
		"written anew":           {strings.ReplaceAll(before+table.Text, " = ", "="), table, "", ErrRewritten},
		"a comment in it":        {strings.ReplaceAll(before+table.Text, "args", "# why\nargs"), table, "", ErrRewritten},
		"not TOML any more":      {before + table.Text + "[", table, "", ErrNotTOML},
	} {
		was, err := cutTable([]byte(tt.doc), tt.table)
		if !errors.Is(err, tt.kind) || string(was.doc) != tt.want {
			t.Errorf("%s: %q, %v; want %q, %v", name, was.doc, err, tt.want, tt.kind)
		}
	}
	if was, err := cutTable([]byte(before), table); err != nil || !was.gone {
		t.Errorf("gone: %+v, %v", was, err)
	}
}

// FuzzTable holds what putting a table in does to any document at all: it is
// there, all else means what it meant, not a byte of it has changed, and it
// comes out again with nothing but its own bytes.
func FuzzTable(f *testing.F) {
	for _, doc := range []string{
		"", "# c", "a = 1\n", "a = 1\r\n", "[mcp_servers]\n", "[mcp_servers.a]\nb = 1 # c\n", "mcp_servers.a.b = 1\n", "mcp_servers = {}\n", "[[x]]\ny = '''\n'''\n",
		"\xef\xbb\xbfa = nan", "a = \"\"\"\n" + wikiTable + "\"\"\"", "[a]\n[[b]]\n[b.c]\nd = [1, # e\n]",
	} {
		f.Add([]byte(doc), []byte("[z]\n"), "/usr/bin/x", "arg")
	}
	f.Fuzz(func(t *testing.T, doc, behind []byte, command, arg string) {
		if notUTF8([]byte(command+"|"+arg)) >= 0 {
			t.Skip() // TOML has no such strings
		}
		before := bytes.Clone(doc)
		e := Entry{Type: "stdio", Command: command, Args: []string{arg, "proxy"}}
		out, table, err := appendTable(doc, true, "wiki", e)
		if !bytes.Equal(before, doc) {
			t.Fatal("the input was written to")
		}
		if err != nil {
			return
		}
		if !bytes.HasPrefix(out, before) || string(out[len(before):]) != table.Text {
			t.Fatalf("%q\nbecame\n%q", before, out)
		}
		was, err := cutTable(out, table)
		if err != nil || !bytes.Equal(was.doc, before) {
			t.Fatalf("%q\nbecame\n%q\nand back\n%q (%v)", before, out, was.doc, err)
		}
		// Somebody writes behind it: their bytes stay.
		more := append(bytes.Clone(out), behind...)
		was, err = cutTable(more, table)
		if err != nil || was.gone {
			return
		}
		if !bytes.HasPrefix(was.doc, before) || !bytes.HasSuffix(was.doc, behind) || len(was.doc) > len(before)+2+len(behind) {
			t.Fatalf("%q\nbecame\n%q", more, was.doc)
		}
		full, err1 := parseTOML(more)
		rest, err2 := parseTOML(was.doc)
		if err1 != nil || err2 != nil || meaningOf(full.without("wiki")) != meaningOf(rest.without("wiki")) || rest.has("wiki") {
			t.Fatalf("%q\nbecame\n%q (%v, %v)", more, was.doc, err1, err2)
		}
	})
}
