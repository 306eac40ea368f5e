//go:build linux

package leasecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/durable"
)

func (a *App) installCommand() *cobra.Command {
	var user, printOnly, remove, asJSON bool
	cmd := &cobra.Command{
		Use:   "install --user | --print",
		Short: "Let systemd start the broker at the first request",
		Long: `With --user, write a socket and a service unit for this user's systemd and start the
socket; the broker starts at the first request, and again when it fails. A broker that
was started otherwise must be ended before. --remove takes the units away again. With
--print, only show them.`,
		Example: `  spendonce lease install --print
  spendonce lease install --user`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done installed
			var err error
			switch {
			case user == printOnly:
				return streams.Usage("say either --user, to install for this user's systemd, or --print, to see the units")
			case remove && printOnly:
				return streams.Usage("--remove goes with --user")
			case printOnly:
				done.Units, err = a.units()
			case remove:
				done.Removed, err = a.removeUnits(cmd.Context())
			default:
				done.Units, err = a.installUnits(cmd.Context())
			}
			if err != nil && len(done.Units)+len(done.Removed) == 0 {
				return err
			}
			return errors.Join(a.report(done, asJSON), err) // also what was done before it failed
		},
	}
	cmd.Flags().BoolVar(&user, "user", false, "install for this user's systemd")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the units and change nothing")
	cmd.Flags().BoolVar(&remove, "remove", false, "with --user, take the units away again")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: version, units (name, path, text), removed (paths)")
	return cmd
}

// installed is what 'lease install' did.
type installed struct {
	Version int      `json:"version"`
	Units   []unit   `json:"units,omitempty"` // those without a path were only printed
	Removed []string `json:"removed,omitempty"`
}

func (a *App) report(done installed, asJSON bool) error {
	if asJSON {
		done.Version = 1
		return a.printJSON(done)
	}
	var text strings.Builder
	for _, u := range done.Units {
		if u.Path == "" {
			fmt.Fprintf(&text, "# %s\n%s\n", u.Name, u.Text)
		} else {
			fmt.Fprintf(&text, "wrote %s\n", u.Path)
		}
	}
	for _, path := range done.Removed {
		fmt.Fprintf(&text, "removed %s\n", path)
	}
	_, err := io.WriteString(a.Streams.Out, text.String())
	return err
}

// installUnits returns the units that it wrote.
func (a *App) installUnits(ctx context.Context) (wrote []unit, err error) {
	units, err := a.units()
	if err != nil {
		return nil, err
	}
	path, err := unitDir()
	if err != nil {
		return nil, err
	}
	if err := a.alone(ctx); err != nil {
		return nil, err
	}
	dir, err := durable.Disk{}.MakeDir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for _, u := range units {
		if err := dir.Replace(u.Name, []byte(u.Text)); err != nil {
			return wrote, err
		}
		u.Path = dir.Join(u.Name)
		wrote = append(wrote, u)
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", "--now", socketUnitName}} {
		if err := systemctl(ctx, args...); err != nil {
			return wrote, fmt.Errorf("the units are in place, but systemd did not take them: %w; where this user's systemd runs, 'systemctl --user enable --now %s' does", err, socketUnitName)
		}
	}
	return wrote, nil
}

// alone refuses while a broker runs that systemd did not start: its socket
// would be taken from it, and nobody could take its place.
func (a *App) alone(ctx context.Context) error {
	socket, err := a.socketPath()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	st, noBroker := broker.QueryStatus(ctx, socket)
	if noBroker != nil || systemctl(ctx, "is-active", socketUnitName) == nil {
		return nil
	}
	return &streams.Exit{Code: exitRunning, Err: fmt.Errorf(
		"a broker that systemd did not start is running: 'kill %d' ends it, and its sessions go on under the next one", st.PID)}
}

// removeUnits returns the paths of what it removed.
func (a *App) removeUnits(ctx context.Context) (removed []string, err error) {
	path, err := unitDir()
	if err != nil {
		return nil, err
	}
	dir, err := durable.Disk{}.OpenDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var stopped error
	if err == nil {
		defer dir.Close()
		stopped = systemctl(ctx, "disable", "--now", socketUnitName, serviceUnitName)
		for _, name := range []string{socketUnitName, serviceUnitName} {
			switch err := dir.Remove(name); {
			case err == nil:
				removed = append(removed, dir.Join(name))
			case !errors.Is(err, fs.ErrNotExist):
				return removed, err
			}
		}
	}
	switch {
	case len(removed) == 0:
		if !a.Streams.Quiet {
			fmt.Fprintln(a.Streams.Err, "spendonce: nothing is installed")
		}
		return nil, nil
	case stopped != nil:
		a.Streams.Warn(fmt.Sprintf("systemd was not told: %v", stopped))
		return removed, nil
	default:
		return removed, systemctl(ctx, "daemon-reload")
	}
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", append([]string{"--user", "--quiet"}, args...)...).CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return fmt.Errorf("systemctl --user %s: %s", strings.Join(args, " "), text)
	}
	if err != nil {
		return fmt.Errorf("systemctl --user %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
