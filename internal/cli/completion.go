package cli

import (
	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// completionCommand stands in for the one that cobra would add at every
// start: that one is a tree of its own, has no examples, and knows a shell
// that does not run here.
func completionCommand(s *streams.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes commands and targets in a shell",
		Long: `Print a script that completes commands, flags and the names of targets in a shell.
'make install' and the packages put it where the shells look for it. The script for
bash needs the package bash-completion.`,
		Example: `  . <(spendonce completion bash)
  spendonce completion zsh > "${fpath[1]}/_spendonce"
  spendonce completion fish > ~/.config/fish/completions/spendonce.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(s.Out, true)
			case "zsh":
				return root.GenZshCompletion(s.Out)
			default:
				return root.GenFishCompletion(s.Out, true)
			}
		},
	}
}
