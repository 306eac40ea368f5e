//go:build linux

package leasecmd

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

func (a *App) serveCommand() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker",
		Long: `Run the broker of this user until SIGTERM, SIGINT or SIGHUP: then the running commit
is finished, its callers are answered, and the exit code is 0.

It takes its socket from a service manager that offers one ('spendonce lease install'
sets that up), else makes it, in a directory that only this user can enter. There is
one broker for each socket and each state directory: another ends with exit code 7.
A directory or a state file that it cannot trust ends it with exit code 6 and is left
as it is.`,
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
			a.Arm()
			if detach {
				return a.detach(cmd.Context(), socket, state)
			}
			return a.serve(cmd.Context(), broker.Config{Socket: socket, StateDir: state})
		},
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "go on in the background as soon as requests are accepted")
	return cmd
}

func (a *App) serve(ctx context.Context, cfg broker.Config) error {
	ready := starter()
	sockets := activation.Files(true)
	if len(sockets) > 1 {
		return streams.Usage("the service manager handed over %d sockets, and a broker serves one", len(sockets))
	}
	if len(sockets) == 1 {
		cfg.Activated = sockets[0]
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forgoing core dumps: %w", err)
	}
	unix.Umask(0o077)
	var flush func()
	cfg.Warn, flush = a.warnings()
	defer flush()
	server, err := broker.Open(cfg)
	if err != nil {
		return err
	}
	a.announce(ready, cfg.Socket)
	defer tellStopping(ctx)()
	go watchdog(ctx)
	return server.Serve(ctx)
}

// tellStopping tells the service manager when ctx ends, or at the latest when
// the function that it returns is called.
func tellStopping(ctx context.Context) func() {
	told := make(chan struct{})
	tell := func() {
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
		close(told)
	}
	stop := context.AfterFunc(ctx, tell)
	return func() {
		if stop() {
			tell()
		}
		<-told
	}
}

// warnings returns where a broker may leave what it has to say without ever
// waiting for whoever reads our standard error, which may be a paused
// terminal; and how to print the rest at the end.
func (a *App) warnings() (warn func(string), flush func()) {
	texts := make(chan string, 32)
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		for text := range texts {
			if text == "" {
				return
			}
			a.Streams.Warn(text)
		}
	}()
	warn = func(text string) {
		select {
		case texts <- text:
		default:
		}
	}
	return warn, func() {
		select {
		case texts <- "":
		default:
		}
		select {
		case <-printed:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// announce says that requests are accepted, to whoever waits for that.
func (a *App) announce(ready *os.File, socket string) {
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	if ready != nil {
		release(ready)
	} else if !a.Streams.Quiet {
		fmt.Fprintf(a.Streams.Err, "spendonce: the broker listens at %s\n", socket)
	}
}

// starter returns the pipe on which a detached broker says that it is ready;
// nil: nobody waits.
func starter() *os.File {
	value := os.Getenv(readyVariable)
	_ = os.Unsetenv(readyVariable)
	var st unix.Stat_t
	if value != "3" || unix.Fstat(3, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	unix.CloseOnExec(3)
	return os.NewFile(3, "ready")
}

// release tells the starter, who goes; what was its terminal is not ours to
// write to.
func release(ready *os.File) {
	_, _ = ready.WriteString("ready\n")
	_ = ready.Close()
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Dup3(null, 2, 0)
		_ = unix.Close(null)
	}
}

// watchdog tells the service manager that we live, twice as often as it asks.
func watchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(true)
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(max(every/2, time.Millisecond))
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
