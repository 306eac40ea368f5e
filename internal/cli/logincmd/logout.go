package logincmd

import (
	"errors"
	"github.com/spendonce/spendonce/internal/cli/credcmd"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

func (a *app) logoutCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "logout TARGET",
		Short: "Sign out: remove what is stored for a target and revoke it",
		Long: `Remove what is stored for a target, then revoke both tokens at the server that
issued them (RFC 7009). A server that cannot be reached, or that offers no
revocation, does not keep you signed in here; you are told. A refresh that is under
way elsewhere does not bring the session back, and revokes what it gets.`,
		Example:           "  spendonce logout example\n  spendonce logout --all",
		ValidArgsFunction: a.CompleteTargets,
		Args: func(cmd *cobra.Command, args []string) error {
			if all && len(args) == 0 {
				return nil
			}
			if all {
				return streams.Usage("--all and a target exclude each other")
			}
			return credcmd.TargetArg("say")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.OpenForChange()
			if err != nil {
				return err
			}
			defer credcmd.CloseStore(s)
			if all {
				entries, err := s.List()
				if err != nil {
					return err
				}
				args = args[:0]
				for _, e := range entries {
					if e.Usable {
						args = append(args, e.Target)
					}
				}
			}
			var failed []error
			for _, target := range args {
				removed, err := s.Remove(cmd.Context(), target)
				if all && errors.Is(err, credstore.ErrNoCredential) {
					continue // somebody else was quicker
				}
				if err != nil {
					failed = append(failed, err)
					continue
				}
				if err := a.mover(s).Forget(target); err != nil {
					a.Streams.Warn("what the import of " + target + " left could not be removed: " + err.Error())
				}
				a.Say("signed out of %s%s", target, a.revoke(cmd.Context(), target, removed))
			}
			return errors.Join(failed...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all targets that this program can use")
	return cmd
}
