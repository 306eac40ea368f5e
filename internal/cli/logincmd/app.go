// Package logincmd holds the commands by which a session comes and goes:
// login, import, logout.
package logincmd

import (
	"context"
	"errors"
	"time"

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

// Pause is how long nobody is asked again after a sign-in that has failed: who
// has closed a browser's window does not want the next one.
const Pause = time.Minute

// ErrAskedAlready ends a sign-in that nobody was asked for.
var ErrAskedAlready = errors.New("a sign-in has failed less than a minute ago, and nobody is asked again so soon")

// SignIn signs in to a target as "spendonce login TARGET" does, for a program
// that nobody has told to: of all that do so one asks, for as long as that
// takes, and after one that has failed none does within [Pause].
func SignIn(ctx context.Context, a *credcmd.App, s *credstore.Store, target string) error {
	return (&app{a}).signIn(ctx, s, target, loginFlags{unasked: true})
}
