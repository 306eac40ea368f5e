//go:build linux

package leasecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/cli/program"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/lease"
)

func (a *App) runCommand() *cobra.Command {
	r := runner{app: a}
	cmd := &cobra.Command{
		Use:   "run [--stay] [--subreaper] [--no-start] [--generation N] -- COMMAND [ARG]...",
		Short: "Run a command as the anchor of a session",
		Long: `Become the anchor of a new session and run COMMAND in place of this process: its pid
stays, so COMMAND is the anchor, and it and all that it starts are members. The
session ends with it. A broker is started if none runs.

COMMAND finds SPENDONCE_SOCKET, SPENDONCE_SESSION_ID and SPENDONCE_GENERATION in its
environment. None of them lets anybody else in.

A member whose parent ends before it does is given to another one, usually outside,
and is no member any more. With --subreaper it is given to the anchor, which then has
to wait for children it did not start; shells and init programs do.

With --stay this process remains, as the anchor and the parent of COMMAND. It passes
SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR2, SIGALRM and SIGCONT on, but for an
interrupt from the terminal, which COMMAND gets anyway. SIGUSR1 raises the generation
by one, which revokes every token of before: COMMAND says 'kill -USR1 $PPID'.
SPENDONCE_GENERATION_FILE then names a file that always holds the current generation
and wins over SPENDONCE_GENERATION.

COMMAND is given descriptors and limits as they are, and SIGHUP and SIGINT ignored if
they were. No other signal is ignored, and none blocked that ends a program.

The exit status is that of COMMAND, or 128+N if signal N ended it; 125 if this program
fails, 126 if COMMAND cannot be run, 127 if there is no such command.`,
		Example: `  spendonce lease run -- sh
  spendonce lease run --stay --generation 3 -- sh -c 'kill -USR1 $PPID; sleep 1; cat "$SPENDONCE_GENERATION_FILE"'`,
		DisableFlagsInUseLine: true, // they stand before the command
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return failed(errors.New("there is no command to run: 'spendonce lease run -- COMMAND'"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.args = args
			return failed(r.run(cmd.Context()))
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return failed(fmt.Errorf("%w: see '%s --help'", err, cmd.CommandPath()))
	})
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&r.first, "generation", "0", "the session's first generation")
	flags.BoolVar(&r.subreaper, "subreaper", false, "keep members whose parents end inside the session")
	flags.BoolVar(&r.stay, "stay", false, "stay as the anchor and parent of COMMAND")
	flags.BoolVar(&r.noStart, "no-start", false, "fail if no broker runs")
	return cmd
}

// failed gives an error that has no exit code yet the one of ours.
func failed(err error) error {
	var exit *streams.Exit
	if errors.As(err, &exit) {
		return err
	}
	return program.Own(err)
}

// runner is one 'lease run'.
type runner struct {
	app       *App
	args      []string
	first     string // generation
	subreaper bool
	stay      bool
	noStart   bool

	socket  string
	client  *lease.Client
	session lease.Session
}

func (r *runner) run(ctx context.Context) error {
	generation, err := lease.ParseGeneration(r.first)
	if err != nil {
		return fmt.Errorf("--generation: %w", err)
	}
	path, err := program.Find(r.args[0])
	if err != nil {
		return err
	}
	if r.socket, err = r.app.socketPath(); err != nil {
		return err
	}
	if err := showToBroker(); err != nil {
		return err
	}
	r.client = &lease.Client{Socket: r.socket}
	if err := r.register(ctx, generation); err != nil {
		return err
	}
	if r.subreaper {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("becoming the reaper of descendants: %w", err)
		}
	}
	if r.stay {
		return r.stayWith(ctx, path)
	}
	// This puts back the limit of open files that Go raised.
	return program.CannotRun(r.args[0], syscall.Exec(path, r.args, r.environment()))
}

// environment is what the command is given.
func (r *runner) environment(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains([]string{lease.SocketVariable, lease.SessionVariable, lease.GenerationVariable, lease.GenerationFileVariable}, name)
	})
	return append(append(env,
		lease.SocketVariable+"="+r.socket,
		lease.SessionVariable+"="+r.session.ID.Reveal(),
		lease.GenerationVariable+"="+strconv.FormatUint(r.session.Generation, 10),
	), more...)
}
