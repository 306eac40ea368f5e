// Package cli is the command line: it parses, connects streams and signals to
// the packages that do the work, and turns errors into exit codes.
package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/democmd"
	"github.com/spendonce/spendonce/internal/cli/doctorcmd"
	"github.com/spendonce/spendonce/internal/cli/helpercmd"
	"github.com/spendonce/spendonce/internal/cli/leasecmd"
	"github.com/spendonce/spendonce/internal/cli/logincmd"
	"github.com/spendonce/spendonce/internal/cli/mcpcmd"
	"github.com/spendonce/spendonce/internal/cli/program"
	"github.com/spendonce/spendonce/internal/cli/requestcmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// Main runs the command that argv names and returns its exit code. Its first
// word is the name by which the program was started.
func Main(argv []string) int { return MainWith(argv, nil) }

// MainWith is Main with a way to the targets that are kept in etcd. Without
// one, another program is run in this one's place where that is needed.
func MainWith(argv []string, shared credcmd.OpenShared) int {
	args := arguments(argv)
	if err := harden(); err != nil {
		fmt.Fprintf(os.Stderr, "spendonce: %v\n", err)
		return exitOther
	}
	s := streams.Standard()
	ctx, signals := newSignals(s)
	app := &credcmd.App{Streams: s, Arm: signals.arm, Disarm: signals.disarm, Version: Version, Interrupter: signals.set, Hold: signals.hold, OpenShared: shared}
	var err error
	var ran *cobra.Command
	if run := helpercmd.Fast(app, args); run != nil {
		err = run(ctx)
	} else {
		root := newRoot(app)
		root.SetArgs(args)
		ran, err = root.ExecuteContextC(ctx)
	}
	if elsewhere(app, err) {
		err = runElsewhere(app, argv)
		if ran != nil && ran.Name() == "exec" {
			err = program.Own(err)
		}
	}
	if sig := signals.ended(); sig != 0 && err != nil {
		return 128 + sig
	}
	if err != nil {
		var exit *streams.Exit
		if !errors.As(err, &exit) || exit.Err != nil {
			fmt.Fprintf(s.Err, "spendonce: %s\n", streams.Printable(err.Error()))
		}
		return exitCode(err)
	}
	return 0
}

// arguments are the words behind the program's name, which may stand for some
// itself.
func arguments(argv []string) []string {
	switch {
	case len(argv) == 0:
		return nil
	case filepath.Base(argv[0]) == helpercmd.DockerProgram:
		return append([]string{"credential", "docker"}, argv[1:]...)
	default:
		return argv[1:]
	}
}

func newRoot(app *credcmd.App) *cobra.Command {
	s := app.Streams
	root := &cobra.Command{
		Use:   "spendonce",
		Short: "Secrets that may be spent only once, shared safely by many processes",
		Long: `spendonce keeps one signed-in session for all command lines, MCP clients and
agents of one user. Refresh tokens that rotate are spent by exactly one process,
everybody else gets the result, and nobody is logged out.`,
		Example:           "  spendonce login example --issuer https://login.example.com --client-id abc\n  curl -H \"Authorization: Bearer $(spendonce token example)\" https://api.example.com",
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return streams.Usage("there is no command %q: 'spendonce --help' lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return here(app, cmd) }
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return streams.Usage("%w: see '%s --help'", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.BoolVarP(&s.Quiet, "quiet", "q", false, "print no warnings and no progress")
	flags.BoolVarP(&s.Verbose, "verbose", "v", false, "print more: doctor shows what is right, too")
	flags.StringVar(&app.StateDir, "state-dir", "", "the state directory (default $SPENDONCE_STATE_DIR or ~/.local/state/spendonce)")
	flags.StringVar(&app.ConfigPath, "config", "", "the configuration file (default ~/.config/spendonce/config.toml)")
	root.AddCommand(logincmd.Commands(app)...)
	root.AddCommand(app.Commands()...)
	root.AddCommand(requestcmd.Commands(app)...)
	root.AddCommand(helpercmd.Commands(app)...)
	root.AddCommand(doctorcmd.Commands(app, Version)...)
	root.AddCommand(mcpcmd.Command(app))
	leases := &leasecmd.App{Streams: s, StateDir: func() string { return app.StateDir }, Arm: app.Arm}
	root.AddCommand(leases.Commands()...)
	for _, cmd := range root.Commands() {
		if cmd.Name() == "conformance" {
			cmd.AddCommand(leases.ConformanceCommands()...)
		}
	}
	root.AddCommand(democmd.Command(s, app.Arm), completionCommand(s), versionCommand(s))
	wrapArgs(root)
	return root
}

// wrapArgs makes a wrong number of arguments a usage error like any other.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			var exit *streams.Exit
			if err == nil || errors.As(err, &exit) {
				return err
			}
			return streams.Usage("%w: see '%s --help'", err, cmd.CommandPath())
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}
