package clientconf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// planGit gives each origin a section of its own in git's configuration:
//
//	[credential "https://git.example.com/"]
//		helper =
//		helper = /usr/bin/spendonce credential git
//
// The empty value forgets the helpers that come before it. Without it git would
// ask them first, and hand our token to those that store what works. The slash
// at the end makes the section ours alone: git matches it like the origin
// without one, which is what others write, so that theirs need not be touched.
func (s *Setup) planGit(ctx context.Context, p *Plan, known []record, wanted []Service) error {
	helper := ShellLine(slices.Concat(s.Program, []string{"credential", "git"})...)
	if s.Project != "" {
		if _, err := s.git(ctx, setting{Local: true, Dir: s.Project}, "rev-parse", "--git-dir"); err != nil {
			return fmt.Errorf("%s is no git repository: %w", s.Project, err)
		}
	}
	for _, o := range originsOf(wanted) {
		r := record{Client: Git, Targets: o.targets, Tool: &setting{
			Key: "credential." + o.origin + "/.helper", Values: []string{"", helper},
		}}
		if err := s.planGitKey(ctx, p, known, r); err != nil {
			return err
		}
		if sharing := targetsAt(s.All, o.origin); len(sharing) > 1 {
			p.note("%s share %s: git tells the path of a repository, so that the right one is chosen", strings.Join(sharing, " and "), o.origin)
			r.Tool = &setting{Key: "credential." + o.origin + "/.useHttpPath", Values: []string{"true"}}
			if err := s.planGitKey(ctx, p, known, r); err != nil {
				return err
			}
		}
	}
	return s.warnOfLaterHelpers(ctx, p)
}

func (s *Setup) planGitKey(ctx context.Context, p *Plan, known []record, r record) error {
	t := r.Tool
	t.Local, t.Dir = s.Project != "", s.Project
	if file := os.Getenv("GIT_CONFIG_GLOBAL"); file != "" && !t.Local {
		t.Env = map[string]string{"GIT_CONFIG_GLOBAL": file}
	}
	t.Made = madeByGit(known, t)
	now, err := s.gitValues(ctx, *t)
	if err != nil {
		return err
	}
	if slices.Equal(now, t.Values) {
		p.already("%s is already set up: git has %s", strings.Join(r.Targets, ", "), t.Key)
		s.adopt(p, known, r)
		return nil
	}
	var commands [][]string
	if len(now) > 0 {
		i := slices.IndexFunc(known, r.same)
		// What we had set, or the beginning of it, if that was interrupted.
		if i < 0 || !begins(known[i].Tool.Values, now) && !begins(t.Values, now) {
			return fmt.Errorf("git has %s already, and not from here: see 'git config --get-all %s', take it out and try again", t.Key, t.Key)
		}
		commands = append(commands, gitArgv(*t, "--unset-all", t.Key))
	}
	for _, v := range t.Values {
		commands = append(commands, gitArgv(*t, "--add", t.Key, v))
	}
	p.Steps = append(p.Steps, Step{Targets: r.Targets, Commands: commands, do: func(ctx context.Context, j *journal) error {
		if err := j.note(j.merged(r)); err != nil {
			return err
		}
		for _, argv := range commands {
			if _, err := run(ctx, t.Dir, t.Env, argv...); err != nil {
				return err
			}
		}
		now, err := s.gitValues(ctx, *t)
		if err == nil && !slices.Equal(now, t.Values) {
			err = fmt.Errorf("reading git's %s back: %w", t.Key, ErrAltered)
		}
		return err
	}})
	return nil
}

// begins reports whether now is whole or its beginning.
func begins(whole, now []string) bool {
	return len(now) <= len(whole) && slices.Equal(whole[:len(now)], now)
}

func gitArgv(t setting, args ...string) []string {
	place := "--global"
	if t.Local {
		place = "--local"
	}
	return slices.Concat([]string{"git", "config", place}, args)
}

func (s *Setup) git(ctx context.Context, t setting, args ...string) ([]byte, error) {
	return run(ctx, t.Dir, t.Env, slices.Concat([]string{"git"}, args)...)
}

// gitValues are the values of a key, in their order.
func (s *Setup) gitValues(ctx context.Context, t setting) ([]string, error) {
	out, err := run(ctx, t.Dir, t.Env, gitArgv(t, "--null", "--get-all", t.Key)...)
	if exitCode(err) == 1 {
		return nil, nil // there is none
	}
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// warnOfLaterHelpers tells of helpers that git asks in addition, because they
// are set after ours. What they are is not shown: some hold a password.
func (s *Setup) warnOfLaterHelpers(ctx context.Context, p *Plan) error {
	out, err := s.git(ctx, setting{Dir: s.Project}, "config", "--null", "--get-regexp", `^credential\.(.*\.)?helper$`)
	if code := exitCode(err); code == 1 || errors.Is(err, ErrNoTool) {
		return nil
	}
	if err != nil {
		return err
	}
	ours := false
	for _, entry := range strings.Split(string(out), "\x00") {
		key, value, _ := strings.Cut(entry, "\n")
		switch {
		case strings.HasPrefix(key, "credential.") && strings.HasSuffix(value, " credential git"):
			ours = true
		case ours && key == "credential.helper" && value != "":
			p.note("another credential.helper is configured after ours: git asks it too, and hands it each token that worked; see 'git config --show-origin --get-all credential.helper', and move it to the top of its file")
			return nil
		}
	}
	return nil
}

// madeByGit is the file that git makes for the first setting, to be removed
// when it is empty again.
func madeByGit(known []record, t *setting) string {
	if t.Local {
		return ""
	}
	file := t.Env["GIT_CONFIG_GLOBAL"]
	if file == "" {
		home := os.Getenv("HOME")
		xdg := os.Getenv("XDG_CONFIG_HOME")
		if xdg == "" {
			xdg = filepath.Join(home, ".config")
		}
		if _, err := os.Lstat(filepath.Join(xdg, "git", "config")); err == nil || !filepath.IsAbs(home) {
			return ""
		}
		file = filepath.Join(home, ".gitconfig")
	}
	made := slices.ContainsFunc(known, func(r record) bool { return r.Tool != nil && r.Tool.Made == file })
	if _, err := os.Lstat(file); err == nil && !made {
		return ""
	}
	return file
}

func (s *Setup) planGitUndo(ctx context.Context, p *Plan, r record) error {
	t := r.Tool
	now, err := s.gitValues(ctx, *t)
	if err != nil {
		return err
	}
	if done := s.undoIsDone(p, r, len(now) == 0, begins(t.Values, now)); done {
		return nil
	}
	argv := gitArgv(*t, "--unset-all", t.Key)
	p.Steps = append(p.Steps, Step{Targets: r.Targets, Commands: [][]string{argv}, do: func(ctx context.Context, j *journal) error {
		if _, err := run(ctx, t.Dir, t.Env, argv...); err != nil {
			return err
		}
		if t.Made != "" {
			err := edit(s.Disk, t.Made, func(doc []byte, _ bool) ([]byte, error) {
				if len(doc) == 0 {
					return nil, nil
				}
				return doc, nil
			})
			if err != nil {
				return err
			}
		}
		return j.strike(r)
	}})
	return nil
}

// undoIsDone deals with what is gone or is not ours any more.
func (s *Setup) undoIsDone(p *Plan, r record, gone, ours bool) bool {
	switch {
	case gone:
		p.already("%s is gone already", r.name())
	case !ours:
		p.note("%s was left alone: somebody has changed it since it was set up", r.name())
	default:
		return false
	}
	p.adopt = append(p.adopt, func(j *journal) error { return j.strike(r) })
	return true
}

func (s *Setup) planToolUndo(ctx context.Context, p *Plan, r record) error {
	switch r.Client {
	case Server{Client: Claude}.owner():
		return s.planServerUndo(p, r)
	case Git:
		return s.planGitUndo(ctx, p, r)
	case Kubectl:
		return s.planKubectlUndo(ctx, p, r)
	case Claude:
		return s.planClaudeUndo(p, r)
	}
	return fmt.Errorf("the journal holds a record for %q, which is not known here: use the newer program", r.Client)
}

// origin is one, with the targets that are wanted there.
type origin struct {
	origin  string
	targets []string
}

// originsOf lists the origins of services, each once, in their order.
func originsOf(services []Service) []origin {
	var list []origin
	for _, s := range services {
		for _, o := range s.Origins {
			if !slices.ContainsFunc(list, func(have origin) bool { return have.origin == o }) {
				list = append(list, origin{o, targetsAt(services, o)})
			}
		}
	}
	return list
}

func targetsAt(services []Service, origin string) []string {
	var targets []string
	for _, s := range services {
		if slices.Contains(s.Origins, origin) {
			targets = append(targets, s.Target)
		}
	}
	return targets
}
