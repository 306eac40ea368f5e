package helpercmd

import (
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"slices"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/helper"
)

// tokenVariable is the variable that env and exec set unless told otherwise.
const tokenVariable = "ACCESS_TOKEN"

func (a *app) envCommand() *cobra.Command {
	var (
		o            output
		name, format string
	)
	cmd := &cobra.Command{
		Use:   "env TARGET",
		Short: "Print what sets a variable to a token in a shell",
		Long: `Print what sets a variable to a token in a shell, and a second one, NAME_EXPIRES_AT, to
its expiry; where that is unknown, an older value is taken away. Whatever runs in that
shell can read the token: 'spendonce exec' gives it to one command only.`,
		Example: `  eval "$(spendonce credential env example)"
  spendonce credential env example --name GITLAB_TOKEN --format fish | source`,
		Args:              credcmd.TargetArg("say"),
		ValidArgsFunction: a.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target = args[0]
			switch {
			case !helper.VariableName(name):
				return streams.Usage("--name: %.80q is no name of a variable: use letters, digits and '_'", name)
			case !slices.Contains(helper.Formats(), format):
				return streams.Usage("--format: %.40q is none of sh, fish, json and dotenv", format)
			}
			return a.named(cmd.Context(), o, "", func(c helper.Credential) error {
				return helper.WriteEnvironment(a.Streams.Out, helper.Format(format), name, c)
			})
		},
	}
	o.minValidFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&name, "name", tokenVariable, "the `NAME` of the variable")
	flags.StringVar(&format, "format", string(helper.FormatShell), "the language: sh, fish, json or dotenv")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(helper.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
