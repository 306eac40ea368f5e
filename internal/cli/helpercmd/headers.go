package helpercmd

import (
	"context"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"os"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/helper"
)

func (a *app) headersCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "headers TARGET",
		Short: "Print the headers of a request, for Claude Code's headersHelper",
		Long: `Print a JSON object with the header Authorization, as headersHelper in the MCP settings
of Claude Code expects it. Claude Code says which server the headers are for; one that is
neither the target's URL nor one of its hosts gets none.`,
		Example:           "  spendonce credential headers example\n  spendonce credential headers example --min-valid 10m",
		Args:              credcmd.TargetArg("say"),
		ValidArgsFunction: a.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.target = args[0]
			return a.headers(cmd.Context(), o)
		},
	}
	o.minValidFlag(cmd)
	return cmd
}

func (a *app) headers(ctx context.Context, o output) error {
	return a.named(ctx, o, os.Getenv(helper.HeadersServerVariable), func(c helper.Credential) error {
		return helper.WriteHeaders(a.Streams.Out, c)
	})
}
