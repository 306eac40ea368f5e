// Package program finds the program that a command line names to be run in
// place of ours, and words why one cannot be run. Its exit codes are those of
// env(1) and of shells, so that a caller can tell them from the program's own.
package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

const (
	exitOwn       = 125 // we failed before the program began
	exitCannotRun = 126
	exitNotFound  = 127
)

// Own gives an error of ours the exit code that tells it from the program's
// own, whatever the code would be elsewhere.
func Own(err error) error {
	if err == nil {
		return nil
	}
	return &streams.Exit{Code: exitOwn, Err: err}
}

// Find looks a program up on PATH before anything is begun.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // the user's PATH is the user's to choose
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		if there := onPath(name); there != "" {
			return "", &streams.Exit{Code: exitCannotRun, Err: fmt.Errorf("%s cannot be run: %s is not executable", name, there)}
		}
		return "", &streams.Exit{Code: exitNotFound, Err: fmt.Errorf("there is no command %q", name)}
	default:
		var inner *exec.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return "", &streams.Exit{Code: exitCannotRun, Err: fmt.Errorf("%s cannot be run: %w", name, err)}
	}
}

// onPath finds a file of a command's name that may not be executed.
func onPath(name string) string {
	if name == "" || strings.ContainsRune(name, '/') {
		return ""
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// CannotRun judges why the system does not run the program.
func CannotRun(name string, err error) error {
	code := exitCannotRun
	if errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound // it has gone, or the interpreter in its first line is not there
	}
	return &streams.Exit{Code: code, Err: fmt.Errorf("running %s: %w", name, err)}
}
