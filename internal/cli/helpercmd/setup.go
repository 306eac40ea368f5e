package helpercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/clientconf"
)

type setupFlags struct {
	targets []string
	scope   string
	dryRun  bool
	remove  bool
	asJSON  bool
}

// setupOutput is printed with --json.
type setupOutput struct {
	Version int               `json:"version"`
	Client  clientconf.Client `json:"client"`
	DryRun  bool              `json:"dry_run"`
	Changes []clientconf.Step `json:"changes"` // made, or with dry_run those that would be
	Already []string          `json:"already"`
	Notes   []string          `json:"notes"`
}

func (a *app) setupCommand() *cobra.Command {
	var f setupFlags
	names := make([]string, len(clientconf.Clients))
	for i, c := range clientconf.Clients {
		names[i] = string(c)
	}
	cmd := &cobra.Command{
		Use:   "setup " + strings.Join(names, "|"),
		Short: "Make a client ask here for its credentials, and undo that",
		Long: `Make git, docker, kubectl or Claude Code ask this program for the tokens of targets,
by their own settings: through the client's own tool where it has one, else by changing
the one setting in its file and not a byte beside it. Without --target, all targets are
set up whose origin is one that the client has to do with: for git and docker every
origin, for kubectl that of a cluster, for Claude Code that of an MCP server or of
ANTHROPIC_BASE_URL.

What changes is printed. --dry-run prints it and changes nothing; --remove puts back
what was there before, unless somebody has changed it since. What is needed for that is
kept in setup.json in the state directory. No token is ever written to a client's
settings.`,
		Example: `  spendonce credential setup git --dry-run
  spendonce credential setup docker --target example
  spendonce credential setup claude --remove`,
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return streams.Usage("say which client to set up: %s", strings.Join(names, ", "))
			case !slices.Contains(names, args[0]):
				return streams.Usage("%.40q cannot be set up: it is %s", args[0], strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setup(cmd, clientconf.Client(args[0]), f)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.targets, "target", nil, "set up this `TARGET` only (may be repeated)")
	flags.StringVar(&f.scope, "scope", "user", "whose settings: user, or project for those of the current directory (git, claude)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would change, and change nothing")
	flags.BoolVar(&f.remove, "remove", false, "put back what was there before")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("target", a.CompleteTargets)
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"user", "project"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) setup(cmd *cobra.Command, client clientconf.Client, f setupFlags) error {
	switch {
	case f.scope != "user" && f.scope != "project":
		return streams.Usage("--scope is user or project, not %.40q", f.scope)
	case f.scope == "project" && client != clientconf.Git && client != clientconf.Claude:
		return streams.Usage("%s has no settings of a project: leave --scope out", client)
	}
	s, err := ClientSetup(a.App, !f.remove)
	if err != nil {
		return err
	}
	if f.scope == "project" {
		if s.Project, err = os.Getwd(); err != nil {
			return err
		}
	}
	var plan *clientconf.Plan
	if f.remove {
		plan, err = s.PlanRemoval(cmd.Context(), client, f.targets)
	} else {
		var wanted []clientconf.Service
		if wanted, err = wantedOf(s.All, f.targets); err != nil {
			return err
		}
		plan, err = s.Plan(cmd.Context(), client, wanted, len(f.targets) > 0)
	}
	if err != nil {
		return err
	}
	return CarryOut{Client: client, DryRun: f.dryRun, Remove: f.remove, JSON: f.asJSON}.Do(cmd.Context(), a.App, s, plan)
}

// CarryOut says how a plan is carried out.
type CarryOut struct {
	Client clientconf.Client
	DryRun bool // it is only shown
	Remove bool // it undoes something
	JSON   bool
}

// Do does what a plan says, and prints what was done.
func (how CarryOut) Do(ctx context.Context, a *credcmd.App, s *clientconf.Setup, plan *clientconf.Plan) error {
	out := setupOutput{1, how.Client, how.DryRun, []clientconf.Step{}, append([]string{}, plan.Already...), append([]string{}, plan.Notes...)}
	var err error
	if how.DryRun {
		out.Changes = append(out.Changes, plan.Steps...)
	} else {
		a.Arm()
		err = s.Apply(ctx, plan, func(step clientconf.Step) { out.Changes = append(out.Changes, step) })
	}
	if how.JSON {
		if failed := json.NewEncoder(a.Streams.Out).Encode(out); err == nil {
			err = failed
		}
		return err
	}
	x := &app{a}
	x.printSetup(out)
	if err == nil {
		x.sayEnd(out, how.Remove)
	}
	return err
}

// ClientSetup collects what a change of clients' settings works with; the
// services only if they are needed.
func ClientSetup(a *credcmd.App, services bool) (*clientconf.Setup, error) {
	s := &clientconf.Setup{StateDir: a.StateDir, Origin: originText}
	var err error
	if s.StateDir == "" {
		if s.StateDir, err = credstore.DefaultDir(); err != nil {
			return nil, err
		}
	}
	if s.StateDir, err = filepath.Abs(s.StateDir); err != nil {
		return nil, err
	}
	if s.Program, err = (&app{a}).ownProgram(); err != nil || !services {
		return s, err
	}
	store, err := a.Open()
	if err != nil {
		return nil, err
	}
	defer credcmd.CloseStore(store)
	list, err := a.Places(store)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		service := clientconf.Service{Target: p.Target, URL: p.URL}
		for _, o := range p.Origins {
			service.Origins = append(service.Origins, o.String())
		}
		s.All = append(s.All, service)
	}
	return s, nil
}

func originText(raw string) string {
	o, err := bearer.ParseOrigin(raw)
	if err != nil {
		return ""
	}
	return o.String()
}

// wantedOf are the services that were named, or all that have an origin.
func wantedOf(all []clientconf.Service, targets []string) ([]clientconf.Service, error) {
	if len(targets) == 0 {
		return slices.DeleteFunc(slices.Clone(all), func(s clientconf.Service) bool { return len(s.Origins) == 0 }), nil
	}
	var wanted []clientconf.Service
	for _, t := range targets {
		i := slices.IndexFunc(all, func(s clientconf.Service) bool { return s.Target == t })
		switch {
		case i < 0:
			return nil, streams.Usage("there is no target %.80q: 'spendonce list' shows them", t)
		case len(all[i].Origins) == 0:
			return nil, streams.Usage("target %s has no URL, so no client can be told when to ask for it: 'spendonce login %s --url URL' or url in the configuration gives it one", t, t)
		case !slices.ContainsFunc(wanted, func(s clientconf.Service) bool { return s.Target == t }):
			wanted = append(wanted, all[i])
		}
	}
	return wanted, nil
}

// ownProgram is how another program starts this one. A link on PATH that leads
// here is taken rather than what it leads to, which may be gone after the next
// update.
func (a *app) ownProgram() ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	if linked, err := exec.LookPath("spendonce"); err == nil && filepath.IsAbs(linked) {
		here, err1 := os.Stat(path)
		there, err2 := os.Stat(linked)
		if err1 == nil && err2 == nil && os.SameFile(here, there) {
			path = linked
		}
	}
	program := []string{path}
	for _, o := range []struct{ flag, value string }{{"--state-dir", a.StateDir}, {"--config", a.ConfigPath}} {
		if o.value == "" {
			continue
		}
		abs, err := filepath.Abs(o.value)
		if err != nil {
			return nil, err
		}
		program = append(program, o.flag, abs)
	}
	return program, nil
}

// printSetup says what was changed, or would be.
func (a *app) printSetup(out setupOutput) {
	for _, c := range out.Changes {
		where := string(out.Client)
		if c.File != "" {
			where = c.File
		}
		fmt.Fprintf(a.Streams.Out, "%s: %s\n", strings.Join(c.Targets, ", "), where)
		for _, line := range c.Lines {
			fmt.Fprintf(a.Streams.Out, "  %s\n", line)
		}
		for _, argv := range c.Commands {
			fmt.Fprintf(a.Streams.Out, "  $ %s\n", clientconf.ShellLine(argv...))
		}
	}
	for _, line := range out.Already {
		fmt.Fprintln(a.Streams.Out, line)
	}
	for _, note := range out.Notes {
		a.Streams.Warn(note)
	}
}

// sayEnd says what no line of the result says.
func (a *app) sayEnd(out setupOutput, remove bool) {
	switch {
	case len(out.Changes) > 0 && out.DryRun:
		a.Say("nothing was changed")
	case len(out.Changes) == 0 && len(out.Already) == 0 && remove:
		a.Say("nothing to undo: %s was not set up from here", out.Client)
	case len(out.Changes) == 0 && len(out.Already) == 0:
		a.Say("nothing to do: no target's origin is one that %s has to do with", out.Client)
	}
}
