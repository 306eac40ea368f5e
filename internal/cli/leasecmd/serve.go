//go:build linux

package leasecmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// readyVariable names the descriptor on which a detached broker says that it
// accepts requests.
const readyVariable = "SPENDONCE_READY_FD"

func (a *App) serveCommand() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker",
		Long: `Run the broker of this user until SIGTERM or SIGINT: then the running commit is
finished, its callers are answered, and the exit code is 0.

It takes its socket from a service manager that offers one ('spendonce lease install'
sets that up), else makes it, in a directory that only this user can enter. There is
one broker for each socket and each state directory: another ends with exit code 7.
What it cannot trust, a directory, a damaged state file or /proc, ends it with exit
code 6 and leaves everything as it is.`,
		Example: `  spendonce lease serve
  spendonce lease serve --detach`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			socket, err := a.socketPath()
			if err != nil {
				return err
			}
			state, err := a.statePath()
			if err != nil {
				return err
			}
			if detach {
				return a.detach(cmd.Context(), socket, state)
			}
			a.Arm()
			return a.serve(cmd.Context(), broker.Config{Socket: socket, StateDir: state, Warn: a.Streams.Warn})
		},
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "go on in the background as soon as requests are accepted")
	return cmd
}

func (a *App) serve(ctx context.Context, cfg broker.Config) error {
	sockets := activation.Files(true)
	if len(sockets) > 1 {
		return streams.Usage("the service manager handed over %d sockets, and a broker serves one", len(sockets))
	}
	if len(sockets) == 1 {
		cfg.Activated = sockets[0]
	}
	server, err := broker.Open(cfg)
	if err != nil {
		return err
	}
	a.announce(cfg.Socket)
	go watchdog(ctx)
	err = server.Serve(ctx)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	if errors.Is(context.Cause(ctx), streams.ErrInterrupted) && err == nil {
		return nil
	}
	return err
}

// announce says that requests are accepted, to whoever waits for that.
func (a *App) announce(socket string) {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	if text := os.Getenv(readyVariable); text != "" {
		_ = os.Unsetenv(readyVariable)
		if ready := os.NewFile(3, "ready"); ready != nil {
			_, _ = ready.WriteString("ready\n")
			_ = ready.Close()
		}
		// Whoever started us goes; its terminal is not ours to write to.
		a.Streams.Quiet = true
		if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Dup3(null, 2, 0)
			_ = unix.Close(null)
		}
		return
	}
	if !a.Streams.Quiet {
		fmt.Fprintf(a.Streams.Err, "spendonce: the broker listens at %s\n", socket)
	}
}

// watchdog tells the service manager that we live, twice as often as it asks.
func watchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(true)
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			return
		}
	}
}

// detach starts a broker in a session of its own and returns when it accepts
// requests, or with its error. Nothing of our environment goes along but
// where its files are.
func (a *App) detach(ctx context.Context, socket, state string) error {
	program, err := self()
	if err != nil {
		return err
	}
	ready, told, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting a broker: %w", err)
	}
	defer ready.Close()
	complaints, complain, err := os.Pipe()
	if err != nil {
		_ = told.Close()
		return fmt.Errorf("starting a broker: %w", err)
	}
	defer complaints.Close()
	cmd := exec.Command(program, "lease", "serve", "--socket", socket, "--state-dir", state) //nolint:noctx // it outlives us
	cmd.Dir = "/"
	cmd.Env = []string{readyVariable + "=3", "PATH=/usr/bin:/bin"}
	cmd.ExtraFiles = []*os.File{told}
	cmd.Stderr = complain
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = told.Close()
	_ = complain.Close()
	if err != nil {
		return fmt.Errorf("starting a broker: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	line, _ := bufio.NewReader(ready).ReadString('\n')
	if line == "ready\n" && stop() {
		return cmd.Process.Release()
	}
	said, _ := io.ReadAll(complaints)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		text := strings.TrimPrefix(strings.TrimSpace(string(said)), "spendonce: ")
		return &streams.Exit{Code: exit.ExitCode(), Err: errors.New(text)}
	}
	return fmt.Errorf("the broker ended before it accepted requests: %w", errors.Join(err, errors.New(strings.TrimSpace(string(said)))))
}
