package helpercmd

import (
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/helper"
)

func (a *app) credentialCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credential",
		Short: "Answer other programs in their own credential protocols",
		Long: `Answer other programs in their own credential protocols, from the session that all
share. Each answer's token has more than a minute left, or half of its life if that is
shorter, and says its expiry where the protocol has a place for it.

Standard output carries the protocol and nothing else, whatever goes wrong.`,
		Example: `  git config --global credential.https://git.example.com.helper '!spendonce credential git'
  spendonce credential headers example`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.gitCommand(), a.dockerCommand(), a.kubectlCommand(), a.headersCommand(), a.envCommand(), a.setupCommand())
	return cmd
}

// output is what one answer is made with.
type output struct {
	target   string // of --target, or the argument
	username string // of --username
	minValid time.Duration
}

func (o *output) minValidFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().DurationVar(&o.minValid, "min-valid", 0, "refresh if less than this is left, for example 5m")
}

func (o *output) check() error {
	if o.minValid < 0 {
		return streams.Usage("--min-valid must not be negative")
	}
	return nil
}

// issue returns a token that is good for another program, which cannot be
// expected to ask again soon. A token that is valid and could not be saved is
// said, and served: an exit code other than 0 would make the other program
// throw it away.
func (a *app) issue(ctx context.Context, s *credstore.Store, target string, o output) (helper.Credential, error) {
	if err := o.check(); err != nil {
		return helper.Credential{}, err
	}
	return a.get(ctx, s, target, credstore.Request{Fresh: true, MinValid: o.minValid})
}

func (a *app) get(ctx context.Context, s *credstore.Store, target string, req credstore.Request) (helper.Credential, error) {
	source, err := a.Source(s, target)
	if err != nil {
		return helper.Credential{}, err
	}
	t, err := source.Get(ctx, req)
	a.Progress.End()
	if errors.Is(err, credstore.ErrNotSaved) {
		fmt.Fprintf(a.Streams.Err, "spendonce: %v\n", err)
		err = nil
	}
	if err != nil {
		return helper.Credential{}, err
	}
	return helper.Credential{Token: t.AccessToken, ExpiresAt: t.ExpiresAt}, nil
}

// named answers for a target that was named, and not found by a URL. Where
// the other program says for which URL it asks, that has to be the target's.
func (a *app) named(ctx context.Context, o output, url string, answer func(helper.Credential) error) error {
	s, err := a.Open()
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	if url != "" {
		if err := a.mayGo(s, o.target, url); err != nil {
			return err
		}
	}
	c, err := a.issue(ctx, s, o.target, o)
	if err != nil {
		return err
	}
	return answer(c)
}
