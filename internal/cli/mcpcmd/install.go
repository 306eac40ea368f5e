package mcpcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/helpercmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/clientconf"
)

type installFlags struct {
	name   string
	scope  string
	show   bool
	dryRun bool
	remove bool
	asJSON bool
}

func installCommand(app *credcmd.App) *cobra.Command {
	var f installFlags
	clients := make([]string, len(clientconf.ServerClients))
	for i, c := range clientconf.ServerClients {
		clients[i] = string(c)
	}
	cmd := &cobra.Command{
		Use:   "install " + strings.Join(clients, "|") + " TARGET",
		Short: "Make a client use a target's MCP server, and undo that",
		Long: `Make Claude Code, Cursor, VS Code or Codex start 'spendonce mcp proxy TARGET' as one
of its MCP servers: through the client's own tool where it has one that changes nothing
else, else by adding the one entry to its file and not a byte beside it. No token is
written to a client's settings, and all clients use one session.

The entry has the name of the target, with '-' for '.', or --name. One of that name
which is not from here is never replaced. In the user's settings it names this program
by its path; a project's file is shared, so there it is the spendonce on PATH.

What changes is printed. --dry-run prints it and changes nothing; --print prints the
entry, for a client that is set up by hand. --remove takes the entry out again, unless
somebody has changed it since; without TARGET, all that were installed in the client.
What is needed for that is kept in setup.json in the state directory.`,
		Example: `  spendonce mcp install claude example
  spendonce mcp install vscode example --scope project --dry-run
  spendonce mcp install cursor example --print
  spendonce mcp install codex --remove`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return clients, cobra.ShellCompDirectiveNoFileComp
			case 1:
				return app.CompleteTargets(cmd, args, word)
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return streams.Usage("say which client to install in: %s", strings.Join(clients, ", "))
			case !slices.Contains(clients, args[0]):
				return streams.Usage("%.40q is no client that this can be installed in: it is %s; --print shows an entry for another one", args[0], strings.Join(clients, ", "))
			case len(args) == 1 && !f.remove:
				return streams.Usage("which target: see 'spendonce list' and '%s --help'", cmd.CommandPath())
			case len(args) > 2:
				return streams.Usage("one target at a time: see '%s --help'", cmd.CommandPath())
			}
			return f.check(clientconf.Client(args[0]))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sv := clientconf.Server{Client: clientconf.Client(args[0]), Name: f.name, Scope: clientconf.Scope(f.scope)}
			if len(args) == 2 {
				sv.Target = args[1]
			}
			if f.remove {
				return uninstall(cmd, app, sv, f)
			}
			return install(cmd, app, sv, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "the `NAME` of the entry (default that of the target)")
	flags.StringVar(&f.scope, "scope", "user", "whose settings: user, project for those of the current directory, which are shared, or local for one's own there (claude)")
	flags.BoolVar(&f.show, "print", false, "print the entry, and change nothing")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would change, and change nothing")
	flags.BoolVar(&f.remove, "remove", false, "take out what was installed")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"user", "project", "local"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	return cmd
}

// check refuses what does not go together.
func (f installFlags) check(client clientconf.Client) error {
	scopes := clientconf.Scopes(client)
	switch {
	case f.show && (f.dryRun || f.remove || f.asJSON):
		return streams.Usage("--print goes with none of --dry-run, --remove and --json: it changes nothing, and prints what the client reads")
	case !slices.Contains(scopes, clientconf.Scope(f.scope)):
		names := make([]string, len(scopes))
		for i, s := range scopes {
			names[i] = string(s)
		}
		return streams.Usage("--scope of %s is %s, not %.40q", client, strings.Join(names, " or "), f.scope)
	}
	if f.name != "" {
		if err := clientconf.CheckServerName(f.name); err != nil {
			return streams.Usage("--name: %w", err)
		}
	}
	return nil
}

func install(cmd *cobra.Command, app *credcmd.App, sv clientconf.Server, f installFlags) error {
	s, err := helpercmd.ClientSetup(app, true)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.All, func(known clientconf.Service) bool { return known.Target == sv.Target })
	switch {
	case i < 0:
		return streams.Usage("there is no target %.80q: 'spendonce login NAME --url URL' makes one, and 'spendonce list' shows them", sv.Target)
	case s.All[i].URL == "":
		return streams.Usage("target %s has no URL, so no server is its: 'spendonce login %s --url URL' or url in the configuration gives it one", sv.Target, sv.Target)
	}
	if sv.Name == "" {
		sv.Name = clientconf.ServerName(sv.Target)
	}
	if sv.Scope != clientconf.ScopeUser {
		if s.Project, err = here(); err != nil {
			return err
		}
	}
	if f.show {
		return show(app.Streams, s, sv)
	}
	plan, err := s.PlanInstall(sv)
	if err != nil {
		return err
	}
	return f.how(sv.Client).Do(cmd.Context(), app, s, plan)
}

func (f installFlags) how(client clientconf.Client) helpercmd.CarryOut {
	return helpercmd.CarryOut{Client: client, DryRun: f.dryRun, Remove: f.remove, JSON: f.asJSON}
}

// here is the current directory by the name that clients have for it.
func here() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the current directory: %w", err)
	}
	return filepath.EvalSymlinks(dir)
}

func show(out *streams.Streams, s *clientconf.Setup, sv clientconf.Server) error {
	snippet, file, err := s.Snippet(sv)
	if err != nil {
		return err
	}
	if !out.Quiet {
		fmt.Fprintf(out.Err, "spendonce: for %s\n", file)
	}
	_, err = fmt.Fprint(out.Out, snippet)
	return err
}

func uninstall(cmd *cobra.Command, app *credcmd.App, sv clientconf.Server, f installFlags) error {
	s, err := helpercmd.ClientSetup(app, false)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("scope") {
		return streams.Usage("--scope does not go with --remove: what was installed is known; --name chooses among several")
	}
	plan, err := s.PlanUninstall(cmd.Context(), sv.Client, sv.Target, sv.Name)
	if err != nil {
		return err
	}
	return f.how(sv.Client).Do(cmd.Context(), app, s, plan)
}
