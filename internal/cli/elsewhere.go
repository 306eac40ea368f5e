package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/program"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// sharedProgram reaches the targets that are kept in etcd: this program with
// etcd's client in it, which is half as large again.
const sharedProgram = "spendonce-etcd"

// without are the commands that never look at a target.
var without = map[string]bool{"completion": true, "version": true, "demo": true, "lease": true, "conformance": true, "help": true}

// here ends a command that another program has to run, before it has read or
// written anything.
func here(app *credcmd.App, cmd *cobra.Command) error {
	top := cmd
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	if without[top.Name()] || !top.HasParent() || strings.HasPrefix(top.Name(), "__") {
		return nil
	}
	return app.Here()
}

// elsewhere reports whether err says that another program has to run. The
// calls that come before every request do without the configuration while
// their token is fresh, and find out late; they have read and written nothing
// until then.
func elsewhere(app *credcmd.App, err error) bool {
	return errors.Is(err, credcmd.ErrElsewhere) || errors.Is(err, credstore.ErrNoCredential) && app.Here() != nil
}

// runElsewhere runs the other program in this one's place. It returns only if
// that cannot be done.
func runElsewhere(app *credcmd.App, argv []string) error {
	path := ""
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), sharedProgram); isFile(beside) {
			path = beside
		}
	}
	if path == "" {
		var err error
		if path, err = program.Find(sharedProgram); err != nil {
			return streams.Usage("a target is kept in etcd, and %s, which reaches it, is neither beside this program nor on PATH: install it, or change store in the configuration", sharedProgram)
		}
	}
	app.Disarm()
	return fmt.Errorf("running %s: %w", path, syscall.Exec(path, argv, os.Environ()))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
