package helpercmd

import (
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/helper"
)

func (a *app) gitCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "git",
		Short: "Be a credential helper of git",
		Long: `Be a credential helper of git (gitcredentials(7)).

The target is the one whose URL or hosts have the origin that git asks for. With
credential.useHttpPath, git also says the path; of several targets of one origin, the
one whose URL leads there is taken. An origin that no target has gets no answer, so
that git asks its next helper. An origin that several have is an error until --target
says which.

A git that can send "Authorization: Bearer" (2.46 and later) does so where the server
takes that; else the token is the password of a user name: that of the URL, of
--username, of the target's configuration, or oauth2.

An erase means that the server refused this token. If it is the one that is stored, it
is refreshed, once for all who say so. No session is ever deleted.`,
		Example: `  git config --global credential.https://git.example.com.helper '!spendonce credential git'
  git config --global credential.https://git.example.com.helper '!spendonce credential git --target example'`,
		// gitcredentials(7): other operations are to be ignored.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return nil
		},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.target, "target", "", "answer for this `TARGET` only")
	flags.StringVar(&o.username, "username", "", "the user `NAME` beside the token, where git has none")
	o.minValidFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("target", a.CompleteTargets)
	const example = "  printf 'protocol=https\\nhost=git.example.com\\n' | spendonce credential git "
	cmd.AddCommand(
		&cobra.Command{
			Use: "get", Short: "Answer git with a token", Example: example + "get", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.gitGet(cmd.Context(), o) },
		},
		&cobra.Command{
			Use: "store", Short: "Do nothing: the token came from here", Example: example + "store", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := helper.ReadGit(a.Streams.In)
				return badInput(err)
			},
		},
		&cobra.Command{
			Use: "erase", Short: "Refresh a token that the server refused", Example: example + "erase", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.gitErase(cmd.Context(), o) },
		},
		&cobra.Command{
			Use: "capability", Short: "Say what of the protocol is understood", Example: "  spendonce credential git capability", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return helper.WriteGitCapabilities(a.Streams.Out) },
		},
	)
	return cmd
}

// badInput is a usage error: whoever called us did it wrong.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	return &streams.Exit{Code: 2, Err: err}
}

func (a *app) gitGet(ctx context.Context, o output) error {
	if err := a.Here(); err != nil { // before what is read is gone
		return err
	}
	req, err := helper.ReadGit(a.Streams.In)
	if err != nil {
		return badInput(err)
	}
	if req.Protocol != "https" && req.Protocol != "http" {
		a.nothing(errors.New("only https and http have tokens"))
		return nil
	}
	s, p, err := a.gitPlace(req, o.target)
	if errors.Is(err, errNoTarget) {
		a.nothing(err)
		return nil
	}
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	c, err := a.issue(ctx, s, p.Target, o)
	if err != nil {
		return err
	}
	username := o.username
	if username == "" {
		username = p.Username
	}
	return req.Answer(a.Streams.Out, c, username, p.Target)
}

// nothing says why there is no answer, which is none of git's business.
func (a *app) nothing(err error) {
	if !a.Streams.Quiet {
		fmt.Fprintf(a.Streams.Err, "spendonce: nothing for git here: %v\n", err)
	}
}

// gitPlace finds the target that git means. Where no token may go is decided
// before anything is read.
func (a *app) gitPlace(req helper.GitRequest, target string) (*credstore.Store, credcmd.Place, error) {
	raw, err := req.URL()
	if err != nil {
		return nil, credcmd.Place{}, badInput(err)
	}
	origin, err := bearer.ParseOrigin(raw)
	if err != nil {
		return nil, credcmd.Place{}, badInput(fmt.Errorf("git asks for a token: %w", err))
	}
	s, err := a.Open()
	if err != nil {
		return nil, credcmd.Place{}, err
	}
	list, err := a.Places(s)
	if err == nil {
		if target == "" && known(list, req.Target) {
			target = req.Target // we said so ourselves; it must be one of the origin's all the same
		}
		var p credcmd.Place
		if p, err = choose(list, want{[]bearer.Origin{origin}, req.Path, target}); err == nil {
			return s, p, nil
		}
	}
	credcmd.CloseStore(s)
	return nil, credcmd.Place{}, err
}

func (a *app) gitErase(ctx context.Context, o output) error {
	req, err := helper.ReadGit(a.Streams.In)
	if err != nil {
		return badInput(err)
	}
	if req.Rejected.Empty() || req.Protocol != "https" && req.Protocol != "http" {
		return nil
	}
	s, p, err := a.gitPlace(req, o.target)
	if errors.Is(err, errNoTarget) {
		return nil
	}
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	source, err := a.Source(s, p.Target)
	if err != nil {
		return err
	}
	if held, err := source.Holds(req.Rejected); err != nil || !held {
		return err
	}
	_, err = a.get(ctx, s, p.Target, credstore.Request{Rejected: req.Rejected})
	return err
}
