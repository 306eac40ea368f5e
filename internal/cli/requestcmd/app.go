// Package requestcmd holds the commands that send HTTP requests with a
// session, their own and other programs': request and proxy.
package requestcmd

import (
	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
)

type app struct{ *credcmd.App }

// Commands returns the commands of this package.
func Commands(a *credcmd.App) []*cobra.Command {
	x := &app{a}
	return []*cobra.Command{x.requestCommand(), x.proxyCommand()}
}
