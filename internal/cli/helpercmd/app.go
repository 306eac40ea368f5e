// Package helpercmd holds the commands that hand a token to another program:
// credential and exec.
package helpercmd

import (
	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
)

type app struct{ *credcmd.App }

// Commands returns the commands of this package.
func Commands(a *credcmd.App) []*cobra.Command {
	x := &app{a}
	return []*cobra.Command{x.credentialCommand(), x.execCommand()}
}
