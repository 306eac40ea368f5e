package credcmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/config"
)

// storeFile is where a target is kept unless the configuration says else.
const storeFile = "file"

type moveOutput struct {
	Version int    `json:"version"`
	Target  string `json:"target"`
	To      string `json:"to"`
	Moved   bool   `json:"moved"` // false: it was there already
}

func (a *App) moveCommand() *cobra.Command {
	var to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "move TARGET",
		Short: "Take a session to where the configuration keeps its target",
		Long: `Take a target's session from this machine's file to etcd, or from etcd to the file.
The configuration says where a target is kept, and is yours to change: do that first,
and then run this. Until it has run nothing is refreshed: the new place has nothing, and
of the old one a token is used at most while it is fresh.

The session is not refreshed and nobody has to sign in anew. The command may be
interrupted at any point, by a kill or the power too: there is never more than one copy
that can be refreshed, and the same command finishes what was begun. With the
configuration changed back it takes that back instead.

Programs that were started before the change, and keep the old place in mind, find no
session any more: start them again.`,
		Example:           "  spendonce store move example --to etcd\n  spendonce store move example --to file",
		Args:              TargetArg("say"),
		ValidArgsFunction: a.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.move(cmd, args[0], to, asJSON)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "etcd or file; refused unless the configuration says the same (default: what that says)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{config.StoreEtcd, storeFile}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *App) move(cmd *cobra.Command, target, to string, asJSON bool) error {
	c, err := a.Config()
	if err != nil {
		return &streams.Exit{Code: 2, Err: err}
	}
	t, configured := c.Targets[target]
	place := cmp.Or(t.Store, storeFile)
	switch {
	case !configured:
		return streams.Usage("%s is not in the configuration %s, which says where targets are kept: add [targets.%s] with store = \"etcd\" or \"file\"", target, c.Path, target)
	case to != "" && to != config.StoreEtcd && to != storeFile:
		return streams.Usage("--to is \"etcd\" or \"file\"")
	case to != "" && to != place:
		return streams.Usage("the configuration keeps %s in %s: set store = %q under [targets.%s] in %s first, and keep the table [etcd]", target, placeName(place), to, target, c.Path)
	case len(c.Etcd.Endpoints) == 0 || c.EtcdIdentity() == "":
		return streams.Usage("it is not known where %s would come from: name endpoints and identity under [etcd] in %s", target, c.Path)
	case a.OpenShared == nil:
		return ErrElsewhere
	}
	set, err := a.Settings(target)
	if err != nil {
		return err
	}
	s, err := a.openBoth(c, target)
	if err != nil {
		return err
	}
	defer CloseStore(s)
	moved, err := s.Move(cmd.Context(), target, place == config.StoreEtcd, set)
	a.Progress.End()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(a.Streams.Out).Encode(moveOutput{1, target, place, moved})
	}
	words := "%s is in %s now\n"
	if !moved {
		words = "nothing to do: %s is in %s\n"
	}
	_, err = fmt.Fprintf(a.Streams.Out, words, target, placeName(place))
	return err
}

func placeName(place string) string {
	if place == config.StoreEtcd {
		return "etcd"
	}
	return "this machine's file"
}

// openBoth opens the store so that the target is within reach in etcd, too,
// whatever the configuration says of it.
func (a *App) openBoth(c *config.Config, target string) (*credstore.Store, error) {
	a.Arm()
	both := *c
	both.Targets = maps.Clone(c.Targets)
	t := both.Targets[target]
	t.Store = config.StoreEtcd
	both.Targets[target] = t
	return a.openWith(&both, a.changing(c))
}
