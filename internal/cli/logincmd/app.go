// Package logincmd holds the commands by which a session comes and goes:
// login, import, logout.
package logincmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
)

type app struct{ *credcmd.App }

// Commands returns the commands of this package.
func Commands(a *credcmd.App) []*cobra.Command {
	x := &app{a}
	return []*cobra.Command{x.loginCommand(), x.importCommand(), x.logoutCommand()}
}

// SignIn signs in to a target as "spendonce login TARGET" does.
func SignIn(ctx context.Context, a *credcmd.App, s *credstore.Store, target string) error {
	return (&app{a}).signIn(ctx, s, target, loginFlags{})
}
