// Package takeover moves a session from another program's file into the store,
// and back. At every moment, whatever crashes, one of the two can use it and
// not both: two holders of one refresh token would be the very race that the
// store is there to end.
//
// Into the store, each step durable before the next one begins:
//
//  1. the journal: imports/<target>.json in the state directory, no secret
//  2. the file is renamed, beside where it was: the other program does not
//     find it any more, and nobody but this package looks for the new name
//  3. the login of the store, under an id that stands in the journal
//  4. the renamed file is removed
//
// Back, under the locks of a refresh: the renamed file is written with the
// tokens that are current, the record leaves the store, the file gets its name
// back. So the session belongs to the other program while its file has its
// name, to the store while that holds the login of the journal, and in between
// it lies in the renamed file, which the next call goes on with. Where the
// store holds the login and the renamed file stands too, that file is stale.
package takeover

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/movein"
)

var (
	// ErrNothing: there is no session to be moved.
	ErrNothing = errors.New("no session to be moved")
	// ErrInUse: the other program is at work with the session.
	ErrInUse = errors.New("session in use")
	// ErrOccupied: the other program has a session of its own again.
	ErrOccupied = errors.New("another session in its place")
	// ErrUnusable: what the file holds cannot be continued.
	ErrUnusable = errors.New("unusable session")
	// ErrCutShort: an earlier move has to be completed first.
	ErrCutShort = errors.New("a move was cut short")
)

// fault is an error with a sentence of its own and its kind behind it.
type fault struct {
	text  string
	kinds []error
}

func (f *fault) Error() string   { return f.text }
func (f *fault) Unwrap() []error { return f.kinds }

func failing(kind, cause error, format string, args ...any) error {
	kinds := []error{kind}
	if cause != nil {
		kinds = append(kinds, cause)
	}
	return &fault{fmt.Sprintf(format, args...), kinds}
}

// Place is where another program keeps a session.
type Place struct {
	Program movein.Program
	Dir     string // absolute
	Name    string // of the file with the tokens
	Client  string // of mcp-remote's registration; "" if there is none
	URL     string // of the server, as the other program was given it; may be empty
}

// Path is that of the file with the tokens.
func (p Place) Path() string { return filepath.Join(p.Dir, p.Name) }

func (p Place) same(o Place) bool {
	return p.Program == o.Program && p.Dir == o.Dir && p.Name == o.Name
}

// Mover moves sessions of one store.
type Mover struct {
	Store    *credstore.Store
	StateDir string // the store's
	Disk     durable.Disk
}

// Read reads the session at a place, and changes nothing.
func (m *Mover) Read(p Place) (movein.Session, error) {
	dir, err := m.openPlace(p)
	if err != nil {
		return movein.Session{}, err
	}
	defer dir.Close()
	return readIn(dir, p, p.Name)
}

// Cut returns the journal and the session of a move into the target that was
// cut short; nil if there is none.
func (m *Mover) Cut(target string) (*Journal, movein.Session, error) {
	j, err := m.Journal(target)
	if err != nil || j == nil {
		return nil, movein.Session{}, err
	}
	dir, err := m.Disk.OpenDir(j.Dir)
	if err != nil {
		return nil, movein.Session{}, nil // what is gone was not cut short
	}
	defer dir.Close()
	if !exists(dir, j.Moved) {
		return nil, movein.Session{}, nil
	}
	s, err := readIn(dir, j.Place(), j.Moved)
	return j, s, err
}

func (m *Mover) openPlace(p Place) (*durable.Dir, error) {
	dir, err := m.Disk.OpenDir(p.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, failing(ErrNothing, err, "there is no directory %s, so there is no session of %s to be moved", p.Dir, p.Program.Words())
	case err != nil:
		return nil, unreadable(err)
	}
	return dir, nil
}

// readIn reads the session from the file called name, which is p.Name or what
// that was renamed to.
func readIn(dir *durable.Dir, p Place, name string) (movein.Session, error) {
	tokens, err := dir.Read(name, movein.Limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return movein.Session{}, failing(ErrNothing, err, "there is no file %s, so there is no session of %s to be moved", dir.Join(name), p.Program.Words())
	case err != nil:
		return movein.Session{}, unreadable(err)
	}
	look, err := dir.Look(name)
	if err != nil {
		return movein.Session{}, err
	}
	files := movein.Files{Tokens: tokens.Bytes, Mtime: look.Mtime()}
	if p.Client != "" {
		client, err := dir.Read(p.Client, movein.Limit)
		switch {
		case err == nil:
			files.Client = client.Bytes
		case !errors.Is(err, fs.ErrNotExist):
			return movein.Session{}, unreadable(err)
		}
	}
	s, err := movein.Read(p.Program, files)
	if err != nil {
		return movein.Session{}, failing(ErrUnusable, err, "%s cannot be taken over: %v", dir.Join(name), err)
	}
	return s, nil
}

// unreadable words what the disk says of a file that is to be moved.
func unreadable(err error) error {
	if errors.Is(err, durable.ErrUnsafe) || errors.Is(err, durable.ErrNotRegular) || errors.Is(err, durable.ErrTooLarge) {
		return failing(credstore.ErrUnsafe, err, "the session cannot be taken over: %v", err)
	}
	return fmt.Errorf("the session cannot be read: %w", err)
}

func exists(dir *durable.Dir, name string) bool {
	_, err := dir.Look(name)
	return err == nil
}
