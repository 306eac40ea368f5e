package clientconf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spendonce/spendonce/internal/durable"
)

// Client is a program that can ask this one for credentials, or start it.
type Client string

// The clients.
const (
	Git     Client = "git"
	Docker  Client = "docker"
	Kubectl Client = "kubectl"
	Claude  Client = "claude"
	Cursor  Client = "cursor"
	VSCode  Client = "vscode"
	Codex   Client = "codex"
)

// Clients are those that ask for credentials.
var Clients = []Client{Git, Docker, Kubectl, Claude}

// ServerClients are those that start MCP servers.
var ServerClients = []Client{Claude, Cursor, VSCode, Codex}

// Service is what a target's token is for.
type Service struct {
	Target  string
	URL     string   // may be empty
	Origins []string // as https://git.example.com:8443, each one once
}

// Setup makes clients ask for the tokens of services, and takes that back.
type Setup struct {
	Disk     durable.Disk
	StateDir string // where the journal is
	// Program is how clients start this program: its absolute path and
	// options that belong to every call.
	Program []string
	// Origin is the origin of a URL in the form that services have it in, or
	// "" if no token may go there.
	Origin func(raw string) string
	// Project is the directory whose settings are changed, an absolute path;
	// empty means those of the user.
	Project string
	// All are the services that there are.
	All []Service
}

// Step is one thing that is to be changed.
type Step struct {
	Targets  []string   `json:"targets"`
	File     string     `json:"file,omitempty"`     // which is edited
	Commands [][]string `json:"commands,omitempty"` // which are run
	Lines    []string   `json:"lines,omitempty"`    // what changes in the file, as in a diff

	do func(ctx context.Context, j *journal) error
}

// Plan is what is to be done, and what is not.
type Plan struct {
	Steps   []Step
	Already []string // what is set up, one sentence each
	Notes   []string // what the user should know

	adopt []func(j *journal) error
}

func (p *Plan) already(format string, args ...any) {
	p.Already = append(p.Already, fmt.Sprintf(format, args...))
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// Plan says what it takes to make client ask for the tokens of the services
// wanted. Named says that the user named them: then more is done for them,
// and what does not fit is told. Nothing is changed.
func (s *Setup) Plan(ctx context.Context, client Client, wanted []Service, named bool) (*Plan, error) {
	if err := checkProgram(s.Program); err != nil {
		return nil, err
	}
	known, err := readJournal(s.Disk, s.StateDir)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	switch client {
	case Git:
		err = s.planGit(ctx, p, known, wanted)
	case Docker:
		err = s.planDocker(p, known, wanted)
	case Kubectl:
		err = s.planKubectl(ctx, p, known, wanted, named)
	case Claude:
		err = s.planClaude(p, known, wanted, named)
	default:
		err = fmt.Errorf("there is no setup for a client %q", client)
	}
	return p, err
}

// Apply does what p says, in its order, and reports each step that is done.
// What was done before an error stays done, and is in the journal.
func (s *Setup) Apply(ctx context.Context, p *Plan, done func(Step)) error {
	if len(p.Steps) == 0 && len(p.adopt) == 0 {
		return nil
	}
	j, closeJournal, err := openJournal(s.Disk, s.StateDir)
	if err != nil {
		return err
	}
	defer closeJournal()
	for _, adopt := range p.adopt {
		if err := adopt(j); err != nil {
			return err
		}
	}
	for _, step := range p.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := step.do(ctx, j); err != nil {
			return err
		}
		done(step)
	}
	return nil
}

// PlanRemoval says what it takes to undo what was set up for client, for
// these targets or, if there are none, for all. Nothing is changed.
func (s *Setup) PlanRemoval(ctx context.Context, client Client, targets []string) (*Plan, error) {
	known, err := readJournal(s.Disk, s.StateDir)
	if err != nil {
		return nil, err
	}
	return s.planRemoval(ctx, slices.DeleteFunc(known, func(r record) bool { return r.Client != client }), targets)
}

// planRemoval says what it takes to undo records, for these targets or for
// all.
func (s *Setup) planRemoval(ctx context.Context, records []record, targets []string) (*Plan, error) {
	p := &Plan{}
	for _, r := range slices.Backward(records) {
		if len(targets) > 0 && !slices.ContainsFunc(r.Targets, func(t string) bool { return slices.Contains(targets, t) }) {
			continue
		}
		stay := slices.DeleteFunc(slices.Clone(r.Targets), func(t string) bool { return len(targets) == 0 || slices.Contains(targets, t) })
		if len(stay) > 0 {
			p.note("%s is needed for %s too, and stays", r.name(), strings.Join(stay, ", "))
			r.Targets = stay
			p.adopt = append(p.adopt, func(j *journal) error { return j.note(r) })
			continue
		}
		var err error
		switch {
		case r.Tool != nil:
			err = s.planToolUndo(ctx, p, r)
		case r.Table != nil:
			err = s.planTableUndo(p, r)
		default:
			err = s.planUndo(p, r)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// name says in a message what a record is about.
func (r record) name() string {
	switch {
	case r.Change != nil:
		return pathText(r.Change.Path) + " in " + r.File
	case r.Table != nil:
		return "[" + r.Table.header() + "] in " + r.File
	}
	return fmt.Sprintf("%s's %s", r.Client, r.Tool.Key)
}

// planFile plans that the setting at path in a file gets a string value.
func (s *Setup) planFile(p *Plan, known []record, r record, path []string, value, unit string) error {
	return s.planValue(p, known, r, path, stringValue(value), unit)
}

// planValue plans that the setting at path in a file gets a value.
func (s *Setup) planValue(p *Plan, known []record, r record, path []string, v value, unit string) error {
	doc, existed, err := read(s.Disk, r.File)
	if err != nil {
		return err
	}
	_, ch, changed, err := setValue(doc, existed, path, v, unit)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", r.File, err)
	}
	if !changed {
		p.already("%s is already set up: %s in %s", strings.Join(r.Targets, ", "), pathText(path), r.File)
		r.Change = &Change{Path: path}
		s.adopt(p, known, r)
		return nil
	}
	lines := []string{"+ " + printable(pathText(path)) + ": " + oneLine(ch.New)}
	if ch.Old != nil {
		lines = slices.Insert(lines, 0, "- "+printable(pathText(path))+": "+oneLine(*ch.Old))
	}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, File: r.File, Lines: lines, do: func(_ context.Context, j *journal) error {
		err := edit(s.Disk, r.File, func(doc []byte, existed bool) ([]byte, error) {
			out, ch, changed, err := setValue(doc, existed, path, v, unit)
			if err != nil || !changed {
				return doc, err
			}
			r.Change = &ch
			return out, j.note(j.merged(r))
		})
		if err != nil {
			return err
		}
		return s.verify(r.File, path, v)
	}})
	return nil
}

// verify reads a setting back.
func (s *Setup) verify(file string, path []string, v value) error {
	doc, _, err := read(s.Disk, file)
	if err != nil {
		return fmt.Errorf("reading back what was set up: %w", err)
	}
	got, ok, err := rawAt(doc, path...)
	if err == nil && (!ok || !v.is(got)) {
		err = fmt.Errorf("%s: %w", pathText(path), ErrAltered)
	}
	if err != nil {
		return fmt.Errorf("reading %s back: %w", file, err)
	}
	return nil
}

// merged is r with what an earlier record knows of how it was before us.
func (j *journal) merged(r record) record {
	i := slices.IndexFunc(j.records, r.same)
	if i < 0 {
		return r
	}
	was := j.records[i]
	r.Targets = union(was.Targets, r.Targets)
	if r.Change != nil && r.Change.Old != nil && was.Change.ours(*r.Change.Old) {
		ch := *r.Change
		ch.Ours, ch.Old, ch.Made = ch.Old, was.Change.Old, was.Change.Made
		r.Change = &ch
	}
	return r
}

// adopt notes that what is set up already is needed for more targets.
func (s *Setup) adopt(p *Plan, known []record, r record) {
	i := slices.IndexFunc(known, r.same)
	if i < 0 {
		return
	}
	was := known[i]
	was.Targets = union(was.Targets, r.Targets)
	if len(was.Targets) > len(known[i].Targets) {
		p.adopt = append(p.adopt, func(j *journal) error { return j.note(was) })
	}
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// planUndo plans that a change in a file is taken back.
func (s *Setup) planUndo(p *Plan, r record) error {
	doc, existed, err := read(s.Disk, r.File)
	if err != nil {
		return err
	}
	was, err := undo(doc, *r.Change)
	switch {
	case errors.Is(err, ErrAltered):
		p.note("%s was left alone: somebody has changed it since it was set up", r.name())
		p.adopt = append(p.adopt, func(j *journal) error { return j.strike(r) })
		return nil
	case err != nil:
		return fmt.Errorf("%s was left as it is: %w", r.File, err)
	case !existed, was.gone:
		p.already("%s is gone already", r.name())
		p.adopt = append(p.adopt, func(j *journal) error { return j.strike(r) })
		return nil
	}
	lines := []string{"- " + printable(pathText(r.Change.Path)) + ": " + oneLine(r.Change.New)}
	if r.Change.Old != nil {
		lines = append(lines, "+ "+printable(pathText(r.Change.Path))+": "+oneLine(*r.Change.Old))
	}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, File: r.File, Lines: lines, do: func(_ context.Context, j *journal) error {
		var was undone
		if i := slices.IndexFunc(j.records, r.same); i >= 0 {
			r = j.records[i] // what an undo before this one handed on
		}
		err := edit(s.Disk, r.File, func(doc []byte, _ bool) ([]byte, error) {
			was, err = undo(doc, *r.Change)
			switch {
			case err != nil || was.noFile || r.leavesNothing(was.doc):
				return nil, err
			case was.doc == nil:
				was.doc = []byte{}
			}
			return was.doc, nil
		})
		if err != nil {
			return err
		}
		if was.inherit {
			j.handOn(r)
		}
		return j.strike(r)
	}})
	return nil
}

// handOn gives what a change made to another one in the same file.
func (j *journal) handOn(r record) {
	var heirs []*Change
	for i, o := range j.records {
		if o.Change != nil && o.File == r.File && !o.same(r) {
			ch := *o.Change
			j.records[i].Change = &ch
			heirs = append(heirs, &ch)
		}
	}
	inherit(*r.Change, heirs)
}
