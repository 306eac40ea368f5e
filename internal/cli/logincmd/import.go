package logincmd

import (
	"context"
	"encoding/json"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/movein"
	"github.com/spendonce/spendonce/internal/takeover"
)

type importFlags struct {
	login             loginFlags // those of them that name the server and the client
	source            string
	cache, file, use  string
	yes, dryRun, undo bool
	asJSON            bool
}

func (a *app) importCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import mcp-remote|kubelogin|FILE TARGET",
		Short: "Take over a session that another program is signed in to",
		Long: `Take over a session that another program is signed in to, by moving it: two holders
of one refresh token would log each other out. The other program has it no more,
and --undo gives it back with the tokens that are current then.

mcp-remote's session is found by the --url that it was given. kubelogin's is the
one in its cache, or the one that --issuer and --client-id choose; its target hands
out ID tokens. A FILE is JSON, an OAuth token response with the issuer, client_id
and url beside it: docs/moving-in.md shows one. - is no FILE: it could not be moved.

What will be done is shown first. Nothing is sent to the token endpoint. An import
that was cut short is completed by the same command.`,
		Example: `  spendonce import mcp-remote example --url https://mcp.example.com/sse --dry-run
  spendonce import kubelogin cluster --yes
  spendonce import session.json example
  spendonce import --undo example`,
		Args: func(cmd *cobra.Command, args []string) error {
			want := 2
			if f.undo {
				want = 1
			}
			if len(args) != want {
				return streams.Usage("say what to import and as which target, or --undo and a target: see '%s --help'", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			switch {
			case f.undo && len(args) == 0:
				return a.CompleteTargets(cmd, args, word)
			case !f.undo && len(args) == 0:
				return []string{string(movein.MCPRemote), string(movein.Kubelogin)}, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.undo {
				return a.importUndo(cmd.Context(), args[0], f)
			}
			f.source = args[0]
			return a.importInto(cmd.Context(), args[1], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.login.url, "url", "", "the service that the token is for; mcp-remote's session is found by it")
	flags.StringVar(&f.login.issuer, "issuer", "", "the authorization server, if neither the session nor the service names it")
	flags.StringVar(&f.login.clientID, "client-id", "", "the client's id at the authorization server, if the session does not name it")
	flags.StringVar(&f.login.clientSecretFile, "client-secret-file", "", "the client's secret is in `FILE` (or - for standard input)")
	flags.StringVar(&f.login.resource, "resource", "", "the resource that the token is for (RFC 8707)")
	flags.StringArrayVar(&f.login.scopes, "scope", nil, "a `SCOPE` that was granted, if the session does not say; may be repeated")
	flags.StringVar(&f.cache, "cache", "", "the `DIR` in which the other program keeps its sessions, if it is not the usual one")
	flags.StringVar(&f.file, "file", "", "the other program's `FILE` with the tokens, if it is not found by itself")
	flags.StringVar(&f.use, "use", "", "which token to hand out, access-token or id-token (default: id-token for kubelogin)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show what would be done, and do nothing")
	flags.BoolVar(&f.asJSON, "json", false, "with --dry-run, print JSON")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.undo, "undo", false, "give the session of the target back to the program that it came from")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("undo", "url")
	cmd.MarkFlagsMutuallyExclusive("undo", "file")
	_ = cmd.RegisterFlagCompletionFunc("use", cobra.FixedCompletions([]string{"access-token", "id-token"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) mover(s *credstore.Store) *takeover.Mover {
	return &takeover.Mover{Store: s, StateDir: filepath.Dir(s.Path())}
}

func (a *app) importInto(ctx context.Context, target string, f importFlags) error {
	if f.asJSON && !f.dryRun {
		return streams.Usage("--json prints what --dry-run would do")
	}
	s, err := a.OpenForChange()
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	if err := credstore.CheckName(target); err != nil {
		return err
	}
	m := a.mover(s)
	where, err := a.findSource(m, target, f)
	if err != nil {
		return err
	}
	if err := untaken(s, target); err != nil && !where.resumed {
		return err
	}
	to, err := a.importPlan(ctx, target, where, f)
	if err != nil {
		return err
	}
	if f.dryRun {
		if f.asJSON {
			return json.NewEncoder(a.Streams.Out).Encode(to.output())
		}
		return to.print(a.Streams.Out)
	}
	if !a.Streams.Quiet || !f.yes {
		if err := to.print(a.Streams.Err); err != nil {
			return err
		}
	}
	if err := a.agreed(ctx, "Move it?", f.yes); err != nil {
		return err
	}
	if err := m.In(ctx, target, where.place, to.login); err != nil {
		return err
	}
	a.Say("moved the session of %s into %s; 'spendonce import --undo %s' gives it back", where.place.Program.Words(), target, target)
	return nil
}

// untaken refuses a target for which something is stored. The move itself asks
// again, under the lock.
func untaken(s *credstore.Store, target string) error {
	entries, err := s.List()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Target == target {
			return streams.Usage("something is stored for %s already, and nothing was moved: 'spendonce logout %s' ends it, or choose another name", target, target)
		}
	}
	return nil
}

func (a *app) importUndo(ctx context.Context, target string, f importFlags) error {
	s, err := a.OpenForChange()
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	m := a.mover(s)
	j, err := m.Journal(target)
	if err != nil {
		return err
	}
	if j != nil {
		words := "The session of " + target + " goes back to " + j.Program.Words() + ", into " + credcmd.Printable(j.Place().Path()) + "; it is no more to be had here."
		switch {
		case f.dryRun:
			_, err := a.Streams.Out.Write([]byte(words + "\n"))
			return err
		case !f.yes:
			a.Say("%s", words)
		}
		if err := a.agreed(ctx, "Give it back?", f.yes); err != nil {
			return err
		}
	}
	p, err := m.Out(ctx, target)
	if err != nil {
		return err
	}
	a.Say("gave the session of %s back to %s", target, p.Program.Words())
	return nil
}
