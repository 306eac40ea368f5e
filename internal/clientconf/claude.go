package clientconf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// planClaude names the helper in Claude Code's settings, for each server and
// gateway that is a target's:
//
//	~/.claude.json or .mcp.json   {"mcpServers": {NAME: {"url": URL, "headersHelper": COMMAND}}}
//	~/.claude/settings.json       {"env": {"ANTHROPIC_BASE_URL": URL}, "apiKeyHelper": COMMAND}
//
// Both commands go to a shell. 'claude mcp' can add a server and not change
// one, so it is used for the first and the file edited for the second. A helper
// that somebody else wrote is never replaced: it may hold a secret, which has
// no place in our journal.
func (s *Setup) planClaude(p *Plan, known []record, wanted []Service, named bool) error {
	file, err := s.claudeFile()
	if err != nil {
		return err
	}
	doc, _, err := read(s.Disk, file)
	if err != nil {
		return err
	}
	servers, err := claudeServers(doc)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", file, err)
	}
	found := map[string]bool{}
	for _, server := range servers {
		service, ok := s.serviceAt(p, server.url, wanted, pathText(server.path))
		if !ok {
			continue
		}
		found[service.Target] = true
		path := slices.Concat(server.path, []string{"headersHelper"})
		if err := s.planHelper(p, known, file, path, service.Target, s.claudeCommand("credential", "headers", service.Target)); err != nil {
			return err
		}
	}
	if s.Project == "" {
		if err := s.planGateway(p, known, wanted, found); err != nil {
			return err
		}
	}
	for _, service := range wanted {
		if named && !found[service.Target] {
			s.planClaudeServer(p, file, service)
		}
	}
	return nil
}

// claudeFile is where MCP servers are set.
func (s *Setup) claudeFile() (string, error) {
	if s.Project != "" {
		return filepath.Join(s.Project, ".mcp.json"), nil
	}
	return inHome(os.Getenv("CLAUDE_CONFIG_DIR"), "", ".claude.json")
}

// claudeCommand is a call of this program for a shell. A project's file is
// shared: there the program is the one on each reader's PATH.
func (s *Setup) claudeCommand(args ...string) string {
	program := s.Program
	if s.Project != "" {
		program = []string{"spendonce"}
	}
	return ShellLine(slices.Concat(program, args)...)
}

// mcpServer is an entry of Claude Code's settings.
type mcpServer struct {
	path []string
	url  string
}

// claudeServers lists the remote servers, those of all projects included.
func claudeServers(doc []byte) ([]mcpServer, error) {
	d, err := parse(doc) // once: the file is large
	if err != nil {
		return nil, err
	}
	places := [][]string{{"mcpServers"}}
	projects, err := d.names("projects")
	if err != nil {
		return nil, err
	}
	for _, project := range projects {
		places = append(places, []string{"projects", project, "mcpServers"})
	}
	var servers []mcpServer
	for _, place := range places {
		names, err := d.names(place...)
		if err != nil && !errors.Is(err, ErrShape) {
			return nil, err
		}
		for _, name := range names {
			path := slices.Concat(place, []string{name})
			url, ok, err := d.get(slices.Concat(path, []string{"url"})...)
			if err != nil && !errors.Is(err, ErrShape) {
				return nil, err
			}
			if ok {
				servers = append(servers, mcpServer{path, url})
			}
		}
	}
	return servers, nil
}

// serviceAt is the wanted service at a URL: of several at its origin the one
// whose URL it is. Where none or several are, there is none.
func (s *Setup) serviceAt(p *Plan, url string, wanted []Service, where string) (Service, bool) {
	o := s.Origin(url)
	if o == "" {
		return Service{}, false
	}
	same := func(u string) bool { return strings.TrimSuffix(u, "/") == strings.TrimSuffix(url, "/") }
	there := slices.DeleteFunc(slices.Clone(s.All), func(x Service) bool { return !slices.Contains(x.Origins, o) })
	if exact := slices.DeleteFunc(slices.Clone(there), func(x Service) bool { return !same(x.URL) }); len(exact) == 1 {
		there = exact
	}
	there = slices.DeleteFunc(there, func(x Service) bool {
		return len(wanted) < len(s.All) && !slices.ContainsFunc(wanted, func(w Service) bool { return w.Target == x.Target })
	})
	if len(there) > 1 {
		p.note("%s is at the origin of several targets (%s), and is left alone: say which with --target", printable(where), strings.Join(targetsAt(there, o), ", "))
	}
	if len(there) != 1 {
		return Service{}, false
	}
	return there[0], true
}

// planHelper plans that a helper's command is set, if there is none of
// somebody else's.
func (s *Setup) planHelper(p *Plan, known []record, file string, path []string, target, command string) error {
	r := record{Client: Claude, Targets: []string{target}, File: file, Change: &Change{Path: path}}
	doc, _, err := read(s.Disk, file)
	if err != nil {
		return err
	}
	now, ok, err := Get(doc, path...)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", file, err)
	}
	if ok && now != command {
		i := slices.IndexFunc(known, r.same)
		ours := i >= 0 && known[i].Change.ours(quote(now))
		if !ours {
			p.note("%s in %s names another helper, and is left alone: take it out and try again", printable(pathText(path)), file)
			return nil
		}
	}
	return s.planFile(p, known, r, path, command, "  ")
}

// planGateway sets the helper for requests to the model, where they go to a
// target's origin.
func (s *Setup) planGateway(p *Plan, known []record, wanted []Service, found map[string]bool) error {
	file, err := inHome(os.Getenv("CLAUDE_CONFIG_DIR"), ".claude", "settings.json")
	if err != nil {
		return err
	}
	doc, _, err := read(s.Disk, file)
	if err != nil {
		return err
	}
	url, ok, err := Get(doc, "env", "ANTHROPIC_BASE_URL")
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", file, err)
	}
	if !ok {
		return nil
	}
	service, ok := s.serviceAt(p, url, wanted, "ANTHROPIC_BASE_URL in "+file)
	if !ok {
		return nil
	}
	found[service.Target] = true
	return s.planHelper(p, known, file, []string{"apiKeyHelper"}, service.Target, s.claudeCommand("token", service.Target, "--min-valid", "1m"))
}

// planClaudeServer plans that Claude Code adds a server for a target that has
// none, through its own tool.
func (s *Setup) planClaudeServer(p *Plan, file string, service Service) {
	if service.URL == "" {
		p.note("%s has no URL, so no server of Claude Code's is its", service.Target)
		return
	}
	entry, _ := json.Marshal(struct { // strings can always be encoded
		Type   string `json:"type"`
		URL    string `json:"url"`
		Helper string `json:"headersHelper"`
	}{"http", service.URL, s.claudeCommand("credential", "headers", service.Target)})
	scope := "user"
	if s.Project != "" {
		scope = "project"
	}
	argv := []string{"claude", "mcp", "add-json", "--scope", scope, service.Target, string(entry)}
	if _, err := exec.LookPath("claude"); err != nil {
		p.note("no MCP server in %s has the URL of %s, and claude is not on PATH to add one: where it is, say %s", file, service.Target, ShellLine(argv...))
		return
	}
	command := s.claudeCommand("credential", "headers", service.Target)
	r := record{Client: Claude, Targets: []string{service.Target}, File: file, Tool: &setting{
		Key: service.Target, Values: []string{command}, Local: s.Project != "", Dir: s.Project,
	}}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, Commands: [][]string{argv}, do: func(ctx context.Context, j *journal) error {
		if err := j.note(r); err != nil {
			return err
		}
		if _, err := run(ctx, s.Project, nil, argv...); err != nil {
			return err
		}
		return s.verify(file, []string{"mcpServers", service.Target, "headersHelper"}, stringValue(command))
	}})
}

func (s *Setup) planClaudeUndo(p *Plan, r record) error {
	t := r.Tool
	doc, _, err := read(s.Disk, r.File)
	if err != nil {
		return err
	}
	now, ok, err := Get(doc, "mcpServers", t.Key, "headersHelper")
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", r.File, err)
	}
	if s.undoIsDone(p, r, !ok, now == t.Values[0]) {
		return nil
	}
	scope := "user"
	if t.Local {
		scope = "project"
	}
	argv := []string{"claude", "mcp", "remove", "--scope", scope, t.Key}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, Commands: [][]string{argv}, do: func(ctx context.Context, j *journal) error {
		if _, err := run(ctx, t.Dir, nil, argv...); err != nil {
			return err
		}
		return j.strike(r)
	}})
	return nil
}
