//go:build linux

package leasecmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lease"
)

// App is what the commands share.
type App struct {
	Streams *streams.Streams
	// StateDir tells what --state-dir says.
	StateDir func() string
	// Arm begins to listen for signals; before, they end the process.
	Arm func()

	socket string // of --socket
}

// Exit codes of this half; spendonce(1) lists them.
const (
	exitUsage       = 2
	exitUnsafe      = 6
	exitRunning     = 7
	exitRefused     = 9
	exitUnreachable = 10
)

var exitCodes = []struct {
	kind error
	code int
}{
	{lease.ErrSocketPath, exitUsage},
	{lease.ErrNoSession, exitUsage},
	{durable.ErrNoHome, exitUsage},
	{broker.ErrUnsafe, exitUnsafe},
	{broker.ErrNotCommitted, exitUnsafe},
	{broker.ErrRunning, exitRunning},
	{lease.ErrUnsafeServer, exitUnreachable},
	{lease.ErrNoBroker, exitUnreachable},
	{lease.ErrOutcomeUnknown, exitUnreachable},
}

// asked sorts the errors of a call: what is neither the broker's refusal nor
// about how we were called says that there was no answer to be had.
func asked(err error) error {
	if _, known := ExitCode(err); err == nil || known {
		return err
	}
	return &streams.Exit{Code: exitUnreachable, Err: err}
}

// ExitCode returns the exit code of an error of this half.
func ExitCode(err error) (int, bool) {
	var refusal lease.Refusal
	if errors.As(err, &refusal) {
		return exitRefused, true
	}
	for _, e := range exitCodes {
		if errors.Is(err, e.kind) {
			return e.code, true
		}
	}
	return 0, false
}

// Commands returns "spendonce lease" with all below it.
func (a *App) Commands() []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Tokens that work once, for one agent session",
		Long: `Start a broker, make a process the anchor of a session, and mint and consume tokens
that work exactly once. Which session a process belongs to is learnt from the
kernel: the anchor and its descendants are members, nobody else is.`,
		Example: `  spendonce lease run -- sh
  echo "$BINDING" | spendonce lease mint | spendonce lease consume`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&a.socket, "socket", "", "the broker's socket (default $SPENDONCE_SOCKET, or spendonce/broker.sock in $XDG_RUNTIME_DIR)")
	cmd.AddCommand(a.serveCommand(), a.runCommand(), a.authCommand(), a.mintCommand(), a.consumeCommand(),
		a.whyCommand(), a.statusCommand(), a.installCommand())
	return []*cobra.Command{cmd}
}

// socketPath returns the socket's absolute path.
func (a *App) socketPath() (string, error) {
	if a.socket != "" {
		path, err := filepath.Abs(a.socket)
		if err != nil {
			return "", fmt.Errorf("finding the socket's absolute path: %w", err)
		}
		return path, lease.CheckSocketPath(path)
	}
	state, err := a.statePath()
	if err != nil {
		state = "" // it is the last place, and may not be needed
	}
	return lease.DefaultSocketIn(state)
}

// statePath returns the state directory's absolute path.
func (a *App) statePath() (string, error) {
	dir := a.StateDir()
	if dir == "" {
		var err error
		if dir, err = durable.StateDir(); err != nil {
			return "", err
		}
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the state directory's absolute path: %w", err)
	}
	return path, nil
}

func (a *App) client() (*lease.Client, error) {
	path, err := a.socketPath()
	if err != nil {
		return nil, err
	}
	return &lease.Client{Socket: path}, nil
}

// showToBroker lets the broker look this process up where /proc hides what is
// not dumpable (hidepid). A process of this half holds no refresh token, and
// what it does hold is worth nothing outside its session.
func showToBroker() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("letting the broker look this process up: %w", err)
	}
	return nil
}

// member returns the client and the session of the environment.
func (a *App) member() (*lease.Client, lease.Session, error) {
	if err := showToBroker(); err != nil {
		return nil, lease.Session{}, err
	}
	client, err := a.client()
	if err != nil {
		return nil, lease.Session{}, err
	}
	session, err := lease.FromEnvironment()
	return client, session, err
}

// input reads at most limit bytes of standard input, less one newline at
// their end.
func (a *App) input(what string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(a.Streams.In, limit+2)) // one is the newline, one is too many
	if err != nil {
		return nil, fmt.Errorf("reading the %s from standard input: %w", what, err)
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	switch {
	case len(b) == 0:
		return nil, streams.Usage("there is no %s on standard input", what)
	case int64(len(b)) > limit:
		return nil, streams.Usage("standard input has more than %d bytes: that is not a %s", limit, what)
	}
	return b, nil
}

func (a *App) printJSON(v any) error {
	return json.NewEncoder(a.Streams.Out).Encode(v)
}

func self() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	return path, nil
}
