//go:build linux

package leasecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/lease"
)

// startPatience bounds the wait for a broker that somebody else is starting.
const startPatience = 10 * time.Second

func (a *App) runCommand() *cobra.Command {
	var r runner
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG]...",
		Short: "Run a command as the anchor of a session",
		Long: `Become the anchor of a new session and run COMMAND in place of this process: its pid
stays, so COMMAND is the anchor, and it and all that it starts are members. The
session ends with it. A broker is started if none runs.

COMMAND finds SPENDONCE_SOCKET, SPENDONCE_SESSION_ID and SPENDONCE_GENERATION in its
environment. None of them lets anybody else in.

With --stay this process remains, as the anchor and the parent of COMMAND: it passes
signals on and returns COMMAND's exit status, and SIGUSR1 raises the generation by
one, which revokes every token of before. SPENDONCE_GENERATION_FILE then names a file
that always holds the current generation.

The exit status is that of COMMAND; 125 if this program fails, 126 if COMMAND cannot
be run, 127 if there is no such command.`,
		Example: `  spendonce lease run -- sh
  spendonce lease run --stay --generation 3 -- claude`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return streams.Usage("there is no command to run: 'spendonce lease run -- COMMAND'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.app, r.args = a, args
			err := r.run(cmd.Context())
			var exit *streams.Exit
			if err == nil || errors.As(err, &exit) {
				return err
			}
			return &streams.Exit{Code: exitOwn, Err: err}
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.Uint64Var(&r.generation, "generation", 0, "the session's first generation")
	flags.BoolVar(&r.subreaper, "subreaper", false, "keep descendants whose parents end inside the session")
	flags.BoolVar(&r.stay, "stay", false, "stay as the anchor and parent of COMMAND")
	flags.BoolVar(&r.noStart, "no-start", false, "fail if no broker runs")
	return cmd
}

// runner is one 'lease run'.
type runner struct {
	app        *App
	args       []string
	generation uint64
	subreaper  bool
	stay       bool
	noStart    bool

	socket  string
	client  *lease.Client
	session lease.Session
}

func (r *runner) run(ctx context.Context) error {
	if r.generation > lease.MaxInteger {
		return &streams.Exit{Code: exitOwn, Err: fmt.Errorf("--generation is over %d", uint64(lease.MaxInteger))}
	}
	program, err := lookUp(r.args[0])
	if err != nil {
		return err
	}
	if r.socket, err = r.app.socketPath(); err != nil {
		return err
	}
	r.client = &lease.Client{Socket: r.socket}
	if err := r.register(ctx); err != nil {
		return err
	}
	if r.subreaper {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("becoming the reaper of descendants: %w", err)
		}
	}
	if r.stay {
		return r.stayWith(ctx, program)
	}
	err = syscall.Exec(program, r.args, r.environment()) // puts back the limit of open files, which unix.Exec does not
	return &streams.Exit{Code: exitCannotRun, Err: fmt.Errorf("running %s: %w", r.args[0], err)}
}

// lookUp finds the command before anything is begun.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &streams.Exit{Code: exitNotFound, Err: fmt.Errorf("there is no command %s", name)}
	default:
		return "", &streams.Exit{Code: exitCannotRun, Err: fmt.Errorf("%s cannot be run: %w", name, err)}
	}
}

// register makes this process the anchor, starting a broker if it has to. Of
// several that start one together, one broker stays, and all find it.
func (r *runner) register(ctx context.Context) error {
	var err error
	if r.session, err = r.client.RegisterAnchor(ctx, r.generation); err == nil || r.noStart || !errors.Is(err, lease.ErrNoBroker) {
		return err
	}
	progress := streams.NewProgress(r.app.Streams)
	defer progress.End()
	progress.Stage("starting a broker")
	started := r.start(ctx)
	var exit *streams.Exit
	if started != nil && (!errors.As(started, &exit) || exit.Code != exitRunning) {
		return fmt.Errorf("no broker is running, and none could be started: %w", started)
	}
	for end := time.Now().Add(startPatience); ; {
		r.session, err = r.client.RegisterAnchor(ctx, r.generation)
		if err == nil || !errors.Is(err, lease.ErrNoBroker) {
			return err
		}
		if time.Now().After(end) {
			return errors.Join(err, started)
		}
		select {
		case <-time.After(20 * time.Millisecond): // the other one has its locks, and not yet its socket
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// start has another process start the broker, so that the broker is not a
// child of what this process becomes.
func (r *runner) start(ctx context.Context) error {
	program, err := self()
	if err != nil {
		return err
	}
	state, err := r.app.statePath()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, "lease", "serve", "--detach", "--socket", r.socket, "--state-dir", state).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return &streams.Exit{Code: exit.ExitCode(), Err: errors.New(strings.TrimPrefix(strings.TrimSpace(string(out)), "spendonce: "))}
	}
	return err
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
