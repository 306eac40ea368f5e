package canary

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Places says where to look.
type Places struct {
	// Outputs are bytes under a name: what a program printed.
	Outputs map[string][]byte
	// Files are read, Dirs walked with everything below them; symbolic links
	// are not followed, but looked at. Names count like contents.
	Files, Dirs []string
	// Allow lists files that may hold the secrets: paths, or patterns of
	// [filepath.Match] for the whole path or, without a slash, for the name.
	Allow []string
	// Cmdlines looks at the arguments of every process that runs now (Linux).
	Cmdlines bool
}

// Finding says which secret stands where, without showing it.
type Finding struct {
	Value string // its name
	Form  string // "plain", "base64", "hex", ...
	Where string
	At    int // offset in bytes
}

func (f Finding) String() string {
	return fmt.Sprintf("the value %q stands in %s at byte %d (%s)", f.Value, f.Where, f.At, f.Form)
}

// Absent fails the test for every finding.
func Absent(tb testing.TB, values []Value, in Places) {
	tb.Helper()
	for _, f := range Search(tb, values, in) {
		tb.Errorf("a secret leaked: %v", f)
	}
}

// Search returns all findings, at most one for a value and place. A search
// that cannot find anything, for want of values or places, ends the test.
func Search(tb testing.TB, values []Value, in Places) []Finding {
	tb.Helper()
	found, err := Find(values, in)
	if err != nil {
		tb.Fatalf("searching for secrets: %v", err)
	}
	return found
}

// Find is [Search] without a test.
func Find(values []Value, in Places) ([]Finding, error) {
	if len(values) == 0 || (len(in.Outputs) == 0 && len(in.Files) == 0 && len(in.Dirs) == 0 && !in.Cmdlines) {
		return nil, errors.New("there is nothing to look for, or nowhere to look")
	}
	s := search{allow: in.Allow}
	for _, pattern := range in.Allow {
		if _, err := filepath.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("allowed file %q: %w", pattern, err)
		}
	}
	for _, v := range values {
		forms, err := v.forms()
		if err != nil {
			return nil, err
		}
		s.values = append(s.values, sought{v.Name, forms})
	}
	for name, b := range in.Outputs {
		s.look(name, b)
	}
	for _, path := range in.Files {
		if err := s.file(path); err != nil {
			return nil, err
		}
	}
	for _, dir := range in.Dirs {
		if err := s.dir(dir); err != nil {
			return nil, err
		}
	}
	if in.Cmdlines {
		if err := s.cmdlines(); err != nil {
			return nil, err
		}
	}
	return s.found, nil
}

type sought struct {
	name  string
	forms []form
}

type search struct {
	values []sought
	allow  []string
	found  []Finding
}

func (s *search) look(where string, b []byte) {
	for _, v := range s.values {
		for _, f := range v.forms {
			if at := bytes.Index(b, []byte(f.text)); at >= 0 {
				s.found = append(s.found, Finding{Value: v.name, Form: f.name, Where: s.clean(where), At: at})
				break
			}
		}
	}
}

// clean keeps a place whose very name holds a secret from showing it.
func (s *search) clean(where string) string {
	for _, v := range s.values {
		for _, f := range v.forms {
			where = strings.ReplaceAll(where, f.text, "[redacted]")
		}
	}
	return where
}

func (s *search) dir(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && path != dir {
				return nil // temporary files come and go
			}
			return s.unread(err)
		}
		if path != dir {
			s.look("the name "+path, []byte(d.Name()))
		}
		if d.IsDir() {
			return nil
		}
		if err := s.file(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (s *search) file(path string) error {
	if s.allowed(path) {
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return s.unread(err)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return s.unread(err)
		}
		s.look("the link "+path, []byte(target))
	case info.Mode().IsRegular():
		b, err := os.ReadFile(path)
		if err != nil {
			return s.unread(err)
		}
		s.look(path, b)
	}
	return nil
}

// unread keeps a path out of errors if it holds a secret.
func (s *search) unread(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("reading %s: %w", s.clean(pe.Path), pe.Err)
	}
	return err
}

func (s *search) allowed(path string) bool {
	for _, pattern := range s.allow {
		name := path
		if !strings.Contains(pattern, "/") {
			name = filepath.Base(path)
		}
		if ok, _ := filepath.Match(pattern, name); ok || filepath.Clean(pattern) == filepath.Clean(path) {
			return true
		}
	}
	return false
}

func (s *search) cmdlines() error {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errors.New("/proc shows no processes")
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended, or it is not ours to see
		}
		if err != nil {
			return err
		}
		s.look(path, b)
	}
	return nil
}
