//go:build linux

package leasecmd

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/durable"
)

//go:embed units/spendonce-broker.socket
var socketUnit string

//go:embed units/spendonce-broker.service
var serviceUnit string

const unitName = "spendonce-broker"

type unit struct{ name, text string }

func (a *App) installCommand() *cobra.Command {
	var user, printOnly, remove bool
	cmd := &cobra.Command{
		Use:   "install --user | --print",
		Short: "Let systemd start the broker at the first request",
		Long: `With --user, write a socket and a service unit for this user's systemd and start the
socket; the broker starts at the first request, and again when it fails. --remove
takes both away again. With --print, only show the units.`,
		Example: `  spendonce lease install --print
  spendonce lease install --user`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !user && !printOnly {
				return streams.Usage("say --user to install for this user's systemd, or --print to see the units")
			}
			units, err := a.units()
			if err != nil {
				return err
			}
			if printOnly {
				for _, u := range units {
					fmt.Fprintf(a.Streams.Out, "# %s\n%s\n", u.name, u.text)
				}
				return nil
			}
			dir, err := unitDir()
			if err != nil {
				return err
			}
			if remove {
				return a.uninstall(dir, units)
			}
			return a.install(dir, units)
		},
	}
	cmd.Flags().BoolVar(&user, "user", false, "install for this user's systemd")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the units and change nothing")
	cmd.Flags().BoolVar(&remove, "remove", false, "with --user, take the units away again")
	return cmd
}

// units fills the templates in with this program and its places.
func (a *App) units() ([]unit, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	socket, err := a.socketPath()
	if err != nil {
		return nil, err
	}
	state, err := a.statePath()
	if err != nil {
		return nil, err
	}
	for _, path := range []string{program, socket, state} {
		if strings.ContainsAny(path, "\n\r") {
			return nil, streams.Usage("a unit cannot hold the path %q", path)
		}
	}
	// In a unit, % begins a specifier, and in a command line $ a variable; a
	// path with a space stands in quotes there, and as it is in ListenStream.
	percent := strings.NewReplacer("%", "%%")
	word := func(path string) string {
		path = strings.NewReplacer("%", "%%", "$", "$$", `\`, `\\`, `"`, `\"`).Replace(path)
		if strings.ContainsAny(path, " \t'\";\\") {
			return `"` + path + `"`
		}
		return path
	}
	return []unit{
		{unitName + ".socket", strings.NewReplacer("@SOCKET@", percent.Replace(socket)).Replace(socketUnit)},
		{unitName + ".service", strings.NewReplacer("@PROGRAM@", word(program), "@SOCKET@", word(socket), "@STATE@", word(state)).Replace(serviceUnit)},
	}, nil
}

// unitDir is where systemd looks for units of this user, see
// systemd.unit(5).
func unitDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", streams.Usage("finding the place for units: %w", err)
	}
	return filepath.Join(dir, "systemd", "user"), nil
}

func (a *App) install(path string, units []unit) error {
	dir, err := durable.Disk{}.MakeDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, u := range units {
		if err := dir.Replace(u.name, []byte(u.text)); err != nil {
			return err
		}
		fmt.Fprintf(a.Streams.Out, "wrote %s\n", dir.Join(u.name))
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", "--now", unitName + ".socket"}} {
		if err := a.systemctl(args...); err != nil {
			return fmt.Errorf("the units are in place, but systemd did not take them: %w; where this user's systemd runs, 'systemctl --user enable --now %s.socket' does", err, unitName)
		}
	}
	return nil
}

func (a *App) uninstall(path string, units []unit) error {
	stopped := a.systemctl("disable", "--now", unitName+".socket", unitName+".service")
	dir, err := durable.Disk{}.OpenDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(a.Streams.Out, "nothing was installed")
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, u := range units {
		switch err := dir.Remove(u.name); {
		case err == nil:
			fmt.Fprintf(a.Streams.Out, "removed %s\n", dir.Join(u.name))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if stopped != nil {
		a.Streams.Warn(fmt.Sprintf("systemd was not told: %v", stopped))
		return nil
	}
	return a.systemctl("daemon-reload")
}

func (a *App) systemctl(args ...string) error {
	out, err := exec.Command("systemctl", append([]string{"--user", "--quiet"}, args...)...).CombinedOutput() //nolint:noctx // ends by itself
	if err != nil {
		if text := strings.TrimSpace(string(out)); text != "" {
			return fmt.Errorf("systemctl --user %s: %s", strings.Join(args, " "), text)
		}
		return fmt.Errorf("systemctl --user %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
