package clientconf

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

func TestAnEntryIsSetLikeTheLinesAroundIt(t *testing.T) {
	e := Entry{Type: "stdio", Command: "/usr/bin/x", Args: []string{"mcp", "<&>\""}}
	for name, tt := range map[string]struct{ before, want string }{
		"no file": {"", text(`{`, `  "servers": {`, `    "w": {`, `      "type": "stdio",`, `      "command": "/usr/bin/x",`, `      "args": ["mcp", "<&>\""]`, `    }`, `  }`, `}`) + "\n"},
		"tabs and comments": {
			text(`{ // mine`, "\t\"servers\": {", "\t\t// a's", "\t\t\"a\": {\"url\": \"u\"}, // last", "\t},", "\t\"inputs\": []", `}`),
			text(`{ // mine`, "\t\"servers\": {", "\t\t// a's", "\t\t\"a\": {\"url\": \"u\"}, // last",
				"\t\t\"w\": {", "\t\t\t\"type\": \"stdio\",", "\t\t\t\"command\": \"/usr/bin/x\",", "\t\t\t\"args\": [\"mcp\", \"<&>\\\"\"]", "\t\t},",
				"\t},", "\t\"inputs\": []", `}`),
		},
		"one line": {`{"servers":{"a":{}}}`, `{"servers":{"a":{},"w":{"type":"stdio", "command":"/usr/bin/x", "args":["mcp", "<&>\""]}}}`},
		"CRLF":     {"{\r\n \"servers\": {}\r\n}", "{\r\n \"servers\": {\r\n  \"w\": {\r\n   \"type\": \"stdio\",\r\n   \"command\": \"/usr/bin/x\",\r\n   \"args\": [\"mcp\", \"<&>\\\"\"]\r\n  }\r\n }\r\n}"},
	} {
		out, ch, changed, err := setValue([]byte(tt.before), true, []string{"servers", "w"}, e, "  ")
		if err != nil || !changed || string(out) != tt.want || !strings.Contains(tt.want, ch.New) {
			t.Errorf("%s: %v\n%s\nwant\n%s\nnoted as\n%s", name, err, out, tt.want, ch.New)
		}
		if _, _, changed, err := setValue(out, true, []string{"servers", "w"}, e, "  "); changed || err != nil {
			t.Errorf("%s, twice: %v, %v", name, changed, err)
		}
		if was, err := undo(out, ch); err != nil || string(was.doc) != tt.before {
			t.Errorf("%s: back to %q, %v", name, was.doc, err)
		}
	}
}

func TestAnEntryIsOursAsLongAsItMeansTheSame(t *testing.T) {
	e := Entry{Type: "stdio", Command: "x", Args: []string{"mcp"}}
	ours := e.write(layout{newline: "\n", unit: "\t", colon: ": "}, "")
	for raw, want := range map[string]struct{ is, same bool }{
		ours: {true, true},
		`{"command":"x","args":["mcp"],"type":"stdio"}`:                            {true, true},
		`{"type":"stdio","command":"x","args":["mcp"],"env":{}}`:                   {true, true},
		`{"type":"stdio","command":"x","args":["mcp"],"env":{},"cwd":null,"t":[]}`: {true, true},
		`{"type":"stdio","command":"x","args":["mcp"],"env":{"A":"b"}}`:            {true, false},
		`{"type":"stdio","command":"x","args":["mcp"],"disabled":true}`:            {true, false},
		`{"type":"stdio","command":"x","args":["mcp"] /* mine */}`:                 {true, false},
		`{"command":"x","args":["mcp"]}`:                                           {true, false},
		`{"type":"stdio","command":"y","args":["mcp"]}`:                            {false, false},
		`{"type":"stdio","command":"x","args":["mcp","y"]}`:                        {false, false},
		`{"type":"stdio","command":"x"}`:                                           {false, false},
		`{"type":"http","command":"x","args":["mcp"]}`:                             {false, false},
		`{"type":"stdio","command":"x","args":["mcp"],"url":"u"}`:                  {false, false},
		`"x"`:  {false, false},
		`null`: {false, false},
		`{}`:   {false, false},
		`[]`:   {false, false},
	} {
		if e.is(raw) != want.is || sameValue(raw, ours) != want.same {
			t.Errorf("%s: is %v, same %v; want %+v", raw, e.is(raw), sameValue(raw, ours), want)
		}
	}
}

// FuzzEntry holds for an entry what FuzzSet holds for a string.
func FuzzEntry(f *testing.F) {
	for _, doc := range []string{
		"", "{}", "{ // c\n}", `{"a":1}`, "{\n  \"a\": 1, // c\n}\n", `{"o":{"k":{"command":"x"},},}`, "{\r\n\t\"o\": {}\r\n}", "\xef\xbb\xbf{}",
		"/* a */ {\"a\" /*b*/ : [1,2,], // d\n \"o\": {\"x\": 1 // e\n , \"y\": 2 /* f */, // g\n } /* h */ } // i\n",
	} {
		f.Add([]byte(doc), "/usr/bin/x", "arg")
	}
	f.Fuzz(func(t *testing.T, doc []byte, command, arg string) {
		if notUTF8([]byte(command+"|"+arg)) >= 0 {
			t.Skip() // JSON has no such strings
		}
		before := bytes.Clone(doc)
		e := Entry{Type: "stdio", Command: command, Args: []string{arg}}
		out, ch, changed, err := setValue(doc, true, []string{"o", "k"}, e, "  ")
		if err != nil || !changed {
			return
		}
		want, _ := meaning(t, doc).(map[string]any)
		inner, ok := want["o"].(map[string]any)
		if !ok {
			inner = map[string]any{}
			want["o"] = inner
		}
		inner["k"] = map[string]any{"type": "stdio", "command": command, "args": []any{arg}}
		if got := meaning(t, out); !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("%q\nbecame\n%q\nwhich means %v, want %v", doc, out, got, want)
		}
		was, err := undo(out, ch)
		if err != nil || !bytes.Equal(was.doc, before) || was.inherit {
			t.Fatalf("%q\nbecame\n%q\nand back\n%q (%+v, %v)", before, out, was.doc, was, err)
		}
	})
}

// serverGround is a home without any client's tool, with a file of the
// client's, and a setup in it.
func serverGround(t *testing.T, client Client, content string) (*Setup, Server, string) {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{"HOME": home, "CODEX_HOME": "", "CLAUDE_CONFIG_DIR": "", "XDG_CONFIG_HOME": "", "PATH": filepath.Join(home, "bin")} {
		t.Setenv(name, value)
	}
	s := &Setup{StateDir: filepath.Join(home, "state"), Program: []string{"/usr/bin/spendonce"}}
	sv := Server{Client: client, Target: "wiki", Name: "wiki", Scope: ScopeUser}
	at, err := s.place(sv)
	if err != nil {
		t.Fatal(err)
	}
	if content != "(no file)" {
		if err := os.MkdirAll(filepath.Dir(at.file), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, at.file, content, 0o600)
	}
	return s, sv, at.file
}

func (s *Setup) install(t *testing.T, sv Server) (*Plan, error) {
	t.Helper()
	p, err := s.PlanInstall(sv)
	if err != nil {
		return nil, err
	}
	return p, s.Apply(t.Context(), p, func(Step) {})
}

func (s *Setup) uninstall(t *testing.T, sv Server) (*Plan, error) {
	t.Helper()
	p, err := s.PlanUninstall(t.Context(), sv.Client, sv.Target, sv.Name)
	if err != nil {
		return nil, err
	}
	return p, s.Apply(t.Context(), p, func(Step) {})
}

// Killed or failed at any step: the file is the old one or the new one, and
// both installing again and taking it back work.
func TestAFaultAtAnyStepOfAnInstallLeavesTheOldOrTheNewFileAndAWayBack(t *testing.T) {
	for _, tt := range []struct {
		client Client
		old    string
		verbs  []string
	}{
		{Codex, "(no file)", []string{"install", "remove"}},
		{Codex, "# mine\r\n[mcp_servers.a] # a\r\ncommand = 'x'", []string{"install", "update", "remove"}},
		{Cursor, "{\n\t\"mcpServers\": {\n\t\t\"a\": {} // mine\n\t}\n}\n", []string{"update"}},
	} {
		if testing.Short() && tt.old == "(no file)" {
			continue
		}
		for _, verb := range tt.verbs {
			var plain *Setup
			var sv Server
			var file, installed string
			steps := durabletest.Sweep(t, func(disk durable.Disk) error {
				plain, sv, file = serverGround(t, tt.client, tt.old)
				s := *plain
				s.Disk = disk
				if verb != "install" {
					if _, err := plain.install(t, sv); err != nil {
						t.Fatal(err)
					}
					installed = contentOf(t, file)
				}
				var err error
				switch verb {
				case "remove":
					_, err = s.uninstall(t, sv)
				case "update":
					plain.Program = []string{"/opt/spendonce"}
					s.Program = plain.Program
					_, err = s.install(t, sv)
				default:
					_, err = s.install(t, sv)
				}
				return err
			}, func(f *durabletest.Fault, err error) {
				got := contentOf(t, file)
				isNew := got != tt.old && got != installed
				if isNew && (!strings.Contains(got, plain.Program[0]) || tt.old != "(no file)" && !strings.Contains(got, "mine")) {
					t.Errorf("%s: %s left %q", verb, f, got)
				}
				if done := map[string]bool{"install": isNew, "update": isNew, "remove": got == tt.old}[verb]; err == nil && !done {
					t.Errorf("%s: %s was not told, and left %q", verb, f, got)
				}
				if _, err := plain.install(t, sv); err != nil || !strings.Contains(contentOf(t, file), plain.Program[0]) {
					t.Errorf("%s: installed after %s: %v, %q", verb, f, err, contentOf(t, file))
				}
				if _, err := plain.uninstall(t, sv); err != nil || contentOf(t, file) != tt.old {
					t.Errorf("%s: taken back after %s: %v, %q, want %q", verb, f, err, contentOf(t, file), tt.old)
				}
			})
			if steps < 15 {
				t.Errorf("%s: only %d steps were swept", verb, steps)
			}
		}
	}
}

func TestAServerOfSomebodyElseIsNeverReplaced(t *testing.T) {
	for client, theirs := range map[Client]string{
		Cursor: `{"mcpServers": {"wiki": {"command": "/usr/bin/spendonce", "args": ["hunter2"]}}}`,
		Claude: `{"mcpServers": {"wiki": {"type": "http", "url": "https://wiki.example.com"}}}`,
		VSCode: `{"servers": {"wiki": "x"}}`,
		Codex:  "[mcp_servers.wiki]\nurl = \"https://wiki.example.com\"\n",
	} {
		s, sv, file := serverGround(t, client, theirs)
		_, err := s.install(t, sv)
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "--name") || strings.Contains(err.Error(), "hunter2") || contentOf(t, file) != theirs {
			t.Errorf("%s: %v, %q", client, err, contentOf(t, file))
		}
		sv.Name = "wiki-2"
		if _, err := s.install(t, sv); err != nil {
			t.Errorf("%s under another name: %v", client, err)
		}
		// Ours for one target is somebody else's for another one.
		other := sv
		other.Target = "other"
		if _, err := s.install(t, other); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "target wiki") {
			t.Errorf("%s for another target: %v", client, err)
		}
		if _, err := s.uninstall(t, sv); err != nil || contentOf(t, file) != theirs {
			t.Errorf("%s: back to %q, %v", client, contentOf(t, file), err)
		}
	}
}

func TestWhatItsUserMadeOfAServerStays(t *testing.T) {
	for client, add := range map[Client]func(string) string{
		Cursor: func(doc string) string {
			return strings.Replace(doc, `"type": "stdio"`, `"type": "stdio", "disabled": true`, 1)
		},
		Codex: func(doc string) string { return doc + "enabled = false\n" },
	} {
		s, sv, file := serverGround(t, client, "(no file)")
		if _, err := s.install(t, sv); err != nil {
			t.Fatal(err)
		}
		put(t, file, add(contentOf(t, file)), 0o600)
		before := contentOf(t, file)
		if p, err := s.install(t, sv); err != nil || len(p.Already) != 1 || contentOf(t, file) != before {
			t.Errorf("%s, again: %+v, %v", client, p, err)
		}
		s.Program = []string{"/opt/spendonce"} // theirs is not ours to bring up to date
		if _, err := s.install(t, sv); !errors.Is(err, ErrForeign) || contentOf(t, file) != before {
			t.Errorf("%s, from elsewhere: %v", client, err)
		}
		p, err := s.uninstall(t, sv)
		if err != nil || len(p.Steps) != 0 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "left alone") || contentOf(t, file) != before {
			t.Errorf("%s: %+v, %v, %q", client, p, err, contentOf(t, file))
		}
	}
}

func TestWhatCannotStandInEveryClientsFileIsRefused(t *testing.T) {
	for _, name := range []string{"", "-x", "a.b", "a b", "ä", "a\n", "a\"", "a]", strings.Repeat("x", 65)} {
		s, sv, file := serverGround(t, Codex, "(no file)")
		sv.Name = name
		if _, err := s.install(t, sv); err == nil || contentOf(t, file) != "(no file)" {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, program := range []string{"spendonce", "/opt/${HOME}/x", "/opt/a\nb", "/opt/\xff"} {
		s, sv, file := serverGround(t, Cursor, "(no file)")
		s.Program = []string{program}
		if _, err := s.install(t, sv); err == nil || contentOf(t, file) != "(no file)" {
			t.Errorf("program %q: %v", program, err)
		}
	}
	if got := ServerName("wiki.example.com"); CheckServerName(got) != nil || got != "wiki-example-com" {
		t.Errorf("a target's name becomes %q", got)
	}
}

// A setup for credentials and an install share the journal, and undo only
// their own.
func TestAnInstallAndACredentialSetupDoNotUndoEachOther(t *testing.T) {
	s, sv, file := serverGround(t, Claude, `{"mcpServers": {"w": {"type": "http", "url": "https://wiki.example.com/mcp"}}}`)
	before := contentOf(t, file)
	s.Origin = func(string) string { return "https://wiki.example.com" }
	s.All = []Service{{Target: "wiki", URL: "https://wiki.example.com/mcp", Origins: []string{"https://wiki.example.com"}}}
	p, err := s.Plan(t.Context(), Claude, s.All, true)
	if err == nil {
		err = s.Apply(t.Context(), p, func(Step) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	helper := contentOf(t, file)
	if _, err := s.install(t, sv); err != nil {
		t.Fatal(err)
	}
	if p, err := s.uninstall(t, sv); err != nil || len(p.Steps) != 1 || contentOf(t, file) != helper {
		t.Errorf("%v, %q, want %q", err, contentOf(t, file), helper)
	}
	if _, err := s.install(t, sv); err != nil {
		t.Fatal(err)
	}
	if p, err = s.PlanRemoval(t.Context(), Claude, nil); err == nil {
		err = s.Apply(t.Context(), p, func(Step) {})
	}
	if err != nil || len(p.Steps) != 1 || !strings.Contains(contentOf(t, file), `"proxy"`) || strings.Contains(contentOf(t, file), "headersHelper") {
		t.Errorf("%v, %q", err, contentOf(t, file))
	}
	if _, err := s.uninstall(t, sv); err != nil || contentOf(t, file) != before {
		t.Errorf("%v, %q, want %q", err, contentOf(t, file), before)
	}
}
