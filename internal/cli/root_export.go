package cli

import (
	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// Root returns the tree of all commands, to describe it in a manual. It is
// not for running: nothing listens for signals.
func Root() *cobra.Command {
	return newRoot(&credcmd.App{Streams: &streams.Streams{}})
}
