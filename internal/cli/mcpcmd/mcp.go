// Package mcpcmd holds the commands for MCP servers and their clients.
package mcpcmd

import (
	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// oneTarget demands one argument, a target.
func oneTarget(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return streams.Usage("say which target, and one: see '%s --help'", cmd.CommandPath())
	}
	return nil
}

// Command returns "spendonce mcp".
func Command(app *credcmd.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Use remote MCP servers with the session that all share",
		Long: `Use remote MCP servers (Model Context Protocol) with the session that all programs
share: sign in once with 'spendonce login', then let every client start
'spendonce mcp proxy TARGET' as its server.`,
		Example: `  spendonce login example --url https://mcp.example.com/mcp
  spendonce mcp install claude example
  spendonce mcp tools example`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(proxyCommand(app), installCommand(app), toolsCommand(app), callCommand(app))
	return cmd
}
