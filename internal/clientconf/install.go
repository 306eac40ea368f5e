package clientconf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Scope says whose settings are changed.
type Scope string

// The scopes.
const (
	ScopeUser    Scope = "user"
	ScopeProject Scope = "project" // shared by all who work on it
	ScopeLocal   Scope = "local"   // the user's for one project; Claude Code has that
)

// Scopes lists those of a client that starts servers, the usual one first.
func Scopes(client Client) []Scope {
	if client == Claude {
		return []Scope{ScopeUser, ScopeProject, ScopeLocal}
	}
	return []Scope{ScopeUser, ScopeProject}
}

// ErrForeign says that a name is taken by a server that is not from here.
var ErrForeign = errors.New("not from here")

// Server is one that a client is to start: this program, as the proxy in front
// of a target.
type Server struct {
	Client Client
	Target string
	Name   string // in the client's settings
	Scope  Scope
}

// ServerName is the name that a server has if nobody gives it another one.
func ServerName(target string) string { return strings.ReplaceAll(target, ".", "-") }

// CheckServerName reports a name that not every client takes.
func CheckServerName(name string) error {
	good := name != "" && len(name) <= 64 && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", r)
	})
	if !good {
		return fmt.Errorf("%.80q is no name that all clients take: use letters, digits, '_' and '-', up to 64", name)
	}
	return nil
}

// owner tells in the journal what was installed from what was set up.
func (sv Server) owner() Client { return "mcp-" + sv.Client }

// place is where a client keeps a server.
type place struct {
	file string
	path []string // in a JSON file
	unit string   // of the client's own indentation
}

// entry is what the client gets. A project's file is shared: there the program
// is the one on each reader's PATH.
func (s *Setup) entry(sv Server) (Entry, error) {
	program := s.Program
	if sv.Scope == ScopeProject {
		program = []string{"spendonce"}
	}
	args := slices.Concat(program[1:], []string{"mcp", "proxy", sv.Target})
	for _, w := range slices.Concat(program, args) {
		if strings.Contains(w, "${") {
			return Entry{}, fmt.Errorf("%q has a ${, for which clients put a variable's value: move it", w)
		}
	}
	return Entry{Type: "stdio", Command: program[0], Args: args}, nil
}

func (s *Setup) place(sv Server) (place, error) {
	p := place{path: []string{"mcpServers", sv.Name}, unit: "  "}
	var err error
	switch project := sv.Scope == ScopeProject; {
	case sv.Client == Claude && project:
		p.file = filepath.Join(s.Project, ".mcp.json")
	case sv.Client == Claude:
		p.file, err = inHome(os.Getenv("CLAUDE_CONFIG_DIR"), "", ".claude.json")
		if sv.Scope == ScopeLocal {
			p.path = []string{"projects", s.Project, "mcpServers", sv.Name}
		}
	case sv.Client == Cursor && project:
		p.file = filepath.Join(s.Project, ".cursor", "mcp.json")
	case sv.Client == Cursor:
		p.file, err = inHome("", ".cursor", "mcp.json")
	case sv.Client == VSCode && project:
		p.file, p.path, p.unit = filepath.Join(s.Project, ".vscode", "mcp.json"), []string{"servers", sv.Name}, "\t"
	case sv.Client == VSCode:
		p.file, err = vscodeFile()
		p.path, p.unit = []string{"servers", sv.Name}, "\t"
	case sv.Client == Codex && project:
		p.file, p.path = filepath.Join(s.Project, ".codex", "config.toml"), nil
	case sv.Client == Codex:
		p.file, err = inHome(os.Getenv("CODEX_HOME"), ".codex", "config.toml")
		p.path = nil
	default:
		err = fmt.Errorf("there is no client %q", sv.Client)
	}
	return p, err
}

// vscodeFile is where VS Code keeps the servers of its default profile.
func vscodeFile() (string, error) {
	if runtime.GOOS == "darwin" {
		return inHome("", filepath.Join("Library", "Application Support", "Code", "User"), "mcp.json")
	}
	if xdg := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(xdg) {
		return filepath.Join(xdg, "Code", "User", "mcp.json"), nil
	}
	return inHome("", filepath.Join(".config", "Code", "User"), "mcp.json")
}

// Snippet is what somebody would write into the client's file by hand.
func (s *Setup) Snippet(sv Server) (snippet, file string, err error) {
	if err := checkProgram(s.Program); err != nil {
		return "", "", err
	}
	e, err := s.entry(sv)
	if err != nil {
		return "", "", err
	}
	p, err := s.place(sv)
	if err != nil {
		return "", "", err
	}
	if p.path == nil {
		return strings.Join(e.lines(sv.Name), "\n") + "\n", p.file, nil
	}
	b, err := json.Marshal(map[string]any{p.path[len(p.path)-2]: map[string]Entry{sv.Name: e}}, jsontext.WithIndent("  "), jsontext.EscapeForHTML(false))
	return string(b) + "\n", p.file, err
}

// PlanInstall says what it takes to make a client start this program for a
// target. Nothing is changed. A server of that name which is not from here is
// an error, [ErrForeign].
func (s *Setup) PlanInstall(sv Server) (*Plan, error) {
	if err := errors.Join(checkProgram(s.Program), CheckServerName(sv.Name)); err != nil {
		return nil, err
	}
	known, err := readJournal(s.Disk, s.StateDir)
	if err != nil {
		return nil, err
	}
	e, err := s.entry(sv)
	if err != nil {
		return nil, err
	}
	at, err := s.place(sv)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if sv.Scope == ScopeProject {
		s.noteShared(p)
	}
	if at.path == nil {
		return p, s.planCodex(p, known, sv, at, e)
	}
	return p, s.planServer(p, known, sv, at, e)
}

// noteShared says what the entry of a shared file cannot hold.
func (s *Setup) noteShared(p *Plan) {
	if len(s.Program) > 1 {
		p.note("a project's file is shared, so --state-dir and --config are not written to it: set SPENDONCE_STATE_DIR in the client's environment, and keep the configuration where it is looked for")
	}
	if _, err := exec.LookPath("spendonce"); err != nil {
		p.note("a project's file is shared, so it names the spendonce on each reader's PATH, and here there is none yet")
	}
}

// planServer plans an entry of a JSON file, by the client's tool or by an edit.
func (s *Setup) planServer(p *Plan, known []record, sv Server, at place, e Entry) error {
	doc, existed, err := read(s.Disk, at.file)
	if err != nil {
		return err
	}
	raw, there, err := rawAt(doc, at.path...)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", at.file, err)
	}
	r := record{Client: sv.owner(), Targets: []string{sv.Target}, File: at.file, Change: &Change{Path: at.path}}
	i := slices.IndexFunc(known, r.same)
	switch {
	case there && i >= 0 && !slices.Contains(known[i].Targets, sv.Target):
		return s.foreign(sv, at, "is for target "+strings.Join(known[i].Targets, ", "))
	case there && !e.is(raw) && (i < 0 || !known[i].Change.ours(raw)):
		return s.foreign(sv, at, "is not from here")
	}
	if !there || !e.is(raw) {
		_, ch, _, err := setValue(doc, existed, at.path, e, at.unit)
		if err != nil {
			return fmt.Errorf("%s was left as it is: %w", at.file, err)
		}
		r.Change = &ch
		if step, ok := s.toolStep(sv, at, e, r, doc, there); ok {
			p.Steps = append(p.Steps, step)
			return nil
		}
		if sv.Client == VSCode && sv.Scope == ScopeUser && !isDir(filepath.Dir(at.file)) {
			return fmt.Errorf("VS Code was not found: code is not on PATH, and there is no %s; --scope project writes .vscode/mcp.json here, and --print shows the entry", filepath.Dir(at.file))
		}
	}
	return s.planValue(p, known, r, at.path, e, at.unit)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (s *Setup) foreign(sv Server, at place, why string) error {
	return fmt.Errorf("%s has a server %s, which %s (%w), and it was left as it is: install this one under another name with --name", at.file, sv.Name, why, ErrForeign)
}

// toolStep is how the client's own tool puts the entry in, if it has one that
// does and that is here. VS Code's writes the file anew, with the servers and
// inputs that it knows and without comments: it is used where there is nothing
// yet.
func (s *Setup) toolStep(sv Server, at place, e Entry, r record, doc []byte, there bool) (Step, bool) {
	var commands [][]string
	var env map[string]string
	switch {
	case sv.Client == Claude:
		scope := string(sv.Scope)
		if there { // what was ours: it adds and does not change
			commands = append(commands, []string{"claude", "mcp", "remove", "--scope", scope, sv.Name})
		}
		commands = append(commands, slices.Concat([]string{"claude", "mcp", "add", "--transport", "stdio", "--scope", scope, sv.Name, "--", e.Command}, e.Args))
		if dir := os.Getenv("CLAUDE_CONFIG_DIR"); dir != "" && sv.Scope != ScopeProject {
			env = map[string]string{"CLAUDE_CONFIG_DIR": filepath.Dir(at.file)}
		}
		r.Tool = &setting{Key: sv.Name, Scope: sv.Scope, Dir: s.Project, Env: env}
	case sv.Client == VSCode && sv.Scope == ScopeUser && squeeze(string(doc)) == "":
		named, _ := json.Marshal(struct { // strings can always be encoded
			Name string `json:"name"`
			Entry
		}{sv.Name, e}, jsontext.EscapeForHTML(false))
		commands = append(commands, []string{"code", "--add-mcp", string(named)})
	default:
		return Step{}, false
	}
	if _, err := exec.LookPath(commands[0][0]); err != nil {
		return Step{}, false
	}
	return Step{Targets: r.Targets, Commands: commands, do: func(ctx context.Context, j *journal) error {
		if err := j.note(j.merged(r)); err != nil {
			return err
		}
		for _, argv := range commands {
			if _, err := run(ctx, s.Project, env, argv...); err != nil {
				return err
			}
		}
		if err := s.verify(at.file, at.path, e); err != nil {
			return fmt.Errorf("%s has taken it, and it is not where it was looked for: %w; --print shows the entry to put in by hand", commands[0][0], err)
		}
		return nil
	}}, true
}

// PlanUninstall says what it takes to undo what was installed in a client, for
// one target or, if that is empty, for all; of one name, or of any. Nothing is
// changed.
func (s *Setup) PlanUninstall(ctx context.Context, client Client, target, name string) (*Plan, error) {
	known, err := readJournal(s.Disk, s.StateDir)
	if err != nil {
		return nil, err
	}
	owner := Server{Client: client}.owner()
	known = slices.DeleteFunc(known, func(r record) bool { return r.Client != owner || name != "" && r.serverName() != name })
	if target == "" {
		return s.planRemoval(ctx, known, nil)
	}
	return s.planRemoval(ctx, known, []string{target})
}

func (r record) serverName() string {
	switch {
	case r.Table != nil:
		return r.Table.Name
	case r.Change != nil:
		return r.Change.Path[len(r.Change.Path)-1]
	}
	return ""
}

// planServerUndo takes a server out with Claude Code's tool, which put it in;
// by an edit if the tool is gone, or the project in which it has to be started.
func (s *Setup) planServerUndo(p *Plan, r record) error {
	t := r.Tool
	if _, err := exec.LookPath("claude"); err != nil || t.Dir != "" && !isDir(t.Dir) {
		r.Tool = nil
		return s.planUndo(p, r)
	}
	doc, _, err := read(s.Disk, r.File)
	if err != nil {
		return err
	}
	raw, there, err := rawAt(doc, r.Change.Path...)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", r.File, err)
	}
	if s.undoIsDone(p, r, !there, r.Change.ours(raw)) {
		return nil
	}
	argv := []string{"claude", "mcp", "remove", "--scope", string(t.Scope), t.Key}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, Commands: [][]string{argv}, do: func(ctx context.Context, j *journal) error {
		if _, err := run(ctx, t.Dir, t.Env, argv...); err != nil {
			return err
		}
		if err := s.dropEmpty(r); err != nil {
			return err
		}
		doc, _, err := read(s.Disk, r.File)
		if err != nil {
			return err
		}
		if _, there, err := rawAt(doc, r.Change.Path...); err != nil || there {
			return errors.Join(err, fmt.Errorf("claude has removed a server %s, and %s still has one", t.Key, r.File))
		}
		return j.strike(r)
	}})
	return nil
}

// leavesNothing reports whether a file that VS Code made for a server has only
// its empty list of inputs without it.
func (r record) leavesNothing(doc []byte) bool {
	made := r.Change.Made
	return r.Client == Server{Client: VSCode}.owner() && made != nil && made.Depth == 0 && made.Old == nil && squeeze(string(doc)) == `{"inputs":[]}`
}

// dropEmpty removes a project's file that was made for the server and is empty
// without it.
func (s *Setup) dropEmpty(r record) error {
	if r.Tool.Scope != ScopeProject || r.Change.Made == nil || r.Change.Made.Depth != 0 || r.Change.Made.Old != nil {
		return nil
	}
	return edit(s.Disk, r.File, func(doc []byte, _ bool) ([]byte, error) {
		if squeeze(string(doc)) == `{"mcpServers":{}}` {
			return nil, nil
		}
		return doc, nil
	})
}
