//go:build !linux

package leasecmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// App is what the commands share.
type App struct {
	Streams  *streams.Streams
	StateDir func() string
	Arm      func()
}

// Commands returns the command that says where the broker runs.
func (a *App) Commands() []*cobra.Command {
	return []*cobra.Command{{
		Use:                "lease",
		Short:              "Tokens that work once, for one agent session (Linux only)",
		Long:               "The lease broker asks the Linux kernel who is calling; it does not run on this system.",
		Example:            "  spendonce lease",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("the lease broker runs on Linux only: it asks that kernel who is calling")
		},
	}}
}

// ConformanceCommands returns nothing: there is no broker to judge here.
func (a *App) ConformanceCommands() []*cobra.Command { return nil }

// ExitCode knows no error of its own here.
func ExitCode(error) (int, bool) { return 0, false }
