//go:build linux

package leasecmd

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

//go:embed units/spendonce-broker.socket
var socketUnit string

//go:embed units/spendonce-broker.service
var serviceUnit string

const (
	socketUnitName  = "spendonce-broker.socket"
	serviceUnitName = "spendonce-broker.service"
)

// unit is a file for systemd.
type unit struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"` // where it was written
	Text string `json:"text"`
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
		// Such a line would end early, go on in the next, or be left out.
		if strings.ContainsAny(path, "\n\r") || strings.TrimSpace(path) != path || strings.HasSuffix(path, `\`) || !utf8.ValidString(path) {
			return nil, streams.Usage("a unit cannot hold the path %q", path)
		}
	}
	if strings.ContainsAny(program, `'"\`) {
		return nil, streams.Usage("systemd runs no command whose path has a quote or a backslash, as %s has", program)
	}
	return []unit{
		{Name: socketUnitName, Text: strings.NewReplacer("@SOCKET@", strings.ReplaceAll(socket, "%", "%%")).Replace(socketUnit)},
		{Name: serviceUnitName, Text: strings.NewReplacer("@PROGRAM@", word(program), "@SOCKET@", argument(socket), "@STATE@", argument(state)).Replace(serviceUnit)},
	}, nil
}

// word writes a path as one word of a command line in a unit, see
// systemd.syntax(7).
func word(path string) string {
	return `"` + strings.NewReplacer("%", "%%", `\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

// argument is a word that is not the command itself: in those, a dollar begins
// a variable.
func argument(path string) string { return strings.ReplaceAll(word(path), "$", "$$") }

// unitDir is where systemd looks for units of this user, see
// systemd.unit(5).
func unitDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", streams.Usage("finding the place for units: %w", err)
	}
	return filepath.Join(dir, "systemd", "user"), nil
}
