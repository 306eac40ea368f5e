package clientconf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// planCodex gives Codex a table [mcp_servers.NAME] in config.toml. 'codex mcp
// add' writes all tables of servers anew, without the comments and the members
// that it does not know, all lines with LF, and over a server of that name.
// So it is used where there are no other servers whose tables could suffer.
func (s *Setup) planCodex(p *Plan, known []record, sv Server, at place, e Entry) error {
	doc, existed, err := read(s.Disk, at.file)
	if err != nil {
		return err
	}
	d, err := parseTOML(doc)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", at.file, err)
	}
	now, there, err := d.server(sv.Name)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", at.file, err)
	}
	r := record{Client: sv.owner(), Targets: []string{sv.Target}, File: at.file, Table: &Table{Name: sv.Name}}
	i := slices.IndexFunc(known, r.same)
	if there {
		switch {
		case i >= 0 && !slices.Contains(known[i].Targets, sv.Target):
			return s.foreign(sv, at, "is for target "+strings.Join(known[i].Targets, ", "))
		case e.startedBy(now):
			p.already("%s is already set up: [%s] in %s", sv.Target, r.Table.header(), at.file)
			return nil
		case i < 0:
			return s.foreign(sv, at, "is not from here")
		}
	}
	var old *Table
	if there {
		old = known[i].Table
	}
	_, t, err := replaceTable(doc, existed, old, sv.Name, e)
	switch {
	case errors.Is(err, ErrAltered):
		return s.foreign(sv, at, "was changed since it was installed")
	case err != nil:
		return fmt.Errorf("%s was left as it is: %w", at.file, err)
	}
	r.Table = &t
	if _, err := exec.LookPath("codex"); err == nil && sv.Scope == ScopeUser && !bytes.Contains(doc, []byte(servers)) && !bytes.Contains(doc, []byte("\r")) {
		p.Steps = append(p.Steps, s.codexStep(r, doc, e))
		return nil
	}
	var lines []string
	if old != nil {
		lines = append(lines, tableLines("- ", old.Text)...)
	}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, File: at.file, Lines: append(lines, tableLines("+ ", t.Text)...), do: func(_ context.Context, j *journal) error {
		err := edit(s.Disk, at.file, func(doc []byte, existed bool) ([]byte, error) {
			out, t, err := replaceTable(doc, existed, old, sv.Name, e)
			if err != nil {
				return nil, err
			}
			r.Table = &t
			return out, j.note(r)
		})
		if err != nil {
			return err
		}
		return s.verifyTable(at.file, sv.Name, e)
	}})
	return nil
}

// replaceTable is [appendTable], after the old one is taken out, if there is
// one.
func replaceTable(doc []byte, existed bool, old *Table, name string, e Entry) ([]byte, Table, error) {
	if old == nil {
		return appendTable(doc, existed, name, e)
	}
	was, err := cutTable(doc, *old)
	if err != nil {
		return nil, Table{}, err
	}
	out, t, err := appendTable(was.doc, existed, name, e)
	t.Ours, t.Made = &was.text, old.Made
	return out, t, err
}

func tableLines(mark, text string) []string {
	var lines []string
	for _, line := range strings.Split(strings.Trim(text, "\r\n"), "\n") {
		lines = append(lines, mark+printable(strings.TrimSuffix(line, "\r")))
	}
	return lines
}

func (s *Setup) verifyTable(file, name string, e Entry) error {
	doc, _, err := read(s.Disk, file)
	if err != nil {
		return fmt.Errorf("reading back what was set up: %w", err)
	}
	d, err := parseTOML(doc)
	if err != nil {
		return fmt.Errorf("reading %s back: %w", file, err)
	}
	if now, _, err := d.server(name); err != nil || !e.startedBy(now) {
		return fmt.Errorf("reading %s back: [%s.%s]: %w", file, servers, name, ErrAltered)
	}
	return nil
}

// codexStep lets 'codex mcp add' make the table, and learns from the file which
// bytes it put in.
func (s *Setup) codexStep(r record, before []byte, e Entry) Step {
	argv := slices.Concat([]string{"codex", "mcp", "add", r.Table.Name, "--", e.Command}, e.Args)
	env := map[string]string{"CODEX_HOME": filepath.Dir(r.File)}
	return Step{Targets: r.Targets, Commands: [][]string{argv}, do: func(ctx context.Context, j *journal) error {
		if err := j.note(r); err != nil {
			return err
		}
		if err := s.makeDir(filepath.Dir(r.File)); err != nil { // codex wants it there
			return err
		}
		if _, err := run(ctx, "", env, argv...); err != nil {
			return err
		}
		if err := s.verifyTable(r.File, r.Table.Name, e); err != nil {
			return err
		}
		after, _, err := read(s.Disk, r.File)
		if err != nil {
			return err
		}
		t := *r.Table
		t.Text = inserted(before, after)
		if was, err := cutTable(after, t); err == nil && bytes.Equal(was.doc, before) && t.Text != r.Table.Text {
			r.Table = &t
			return j.note(r)
		}
		return nil
	}}
}

func (s *Setup) makeDir(path string) error {
	dir, err := s.Disk.OpenSettingsDir(path)
	if err != nil {
		dir, err = s.Disk.MakeDir(path)
	}
	if err == nil {
		dir.Close()
	}
	return err
}

// inserted is what after has more than before, at one place; empty if that is
// not all.
func inserted(before, after []byte) string {
	n := 0
	for n < len(before) && n < len(after) && before[n] == after[n] {
		n++
	}
	if more := len(after) - len(before); more > 0 && bytes.Equal(before[n:], after[n+more:]) {
		return string(after[n : n+more])
	}
	return ""
}

// planTableUndo plans that a table is taken out.
func (s *Setup) planTableUndo(p *Plan, r record) error {
	doc, existed, err := read(s.Disk, r.File)
	if err != nil {
		return err
	}
	was, err := cutTable(doc, *r.Table)
	switch {
	case errors.Is(err, ErrRewritten):
		p.note("%s was left alone: somebody has written it anew, so that its bytes are not known; 'codex mcp remove %s' takes it out", r.name(), r.Table.Name)
		p.adopt = append(p.adopt, func(j *journal) error { return j.strike(r) })
		return nil
	case err != nil && !errors.Is(err, ErrAltered):
		return fmt.Errorf("%s was left as it is: %w", r.File, err)
	case s.undoIsDone(p, r, !existed || was.gone, err == nil):
		return nil
	}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, File: r.File, Lines: tableLines("- ", r.Table.Text), do: func(_ context.Context, j *journal) error {
		err := edit(s.Disk, r.File, func(doc []byte, _ bool) ([]byte, error) {
			was, err := cutTable(doc, *r.Table)
			switch {
			case err != nil || was.noFile:
				return nil, err
			case was.doc == nil:
				return []byte{}, nil
			}
			return was.doc, nil
		})
		if err != nil {
			return err
		}
		return j.strike(r)
	}})
	return nil
}
