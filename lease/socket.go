//go:build linux

package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/peercred"
)

// MaxSocketPath is how long a socket's path may be, in bytes: what the kernel
// takes, less its final zero.
const MaxSocketPath = peercred.MaxPath

// The variables that 'spendonce lease run' sets for the command it starts.
const (
	SocketVariable         = "SPENDONCE_SOCKET"
	SessionVariable        = "SPENDONCE_SESSION_ID"
	GenerationVariable     = "SPENDONCE_GENERATION"
	GenerationFileVariable = "SPENDONCE_GENERATION_FILE" // wins over GenerationVariable
)

var (
	// ErrNoSession says that the environment names no session, or one that
	// cannot be read.
	ErrNoSession = errors.New("no session in the environment")
	// ErrSocketPath says that a path cannot be a socket's: over
	// [MaxSocketPath], or not absolute.
	ErrSocketPath = errors.New("no path for a socket")
)

// DefaultSocket returns where the broker of this user listens:
// SPENDONCE_SOCKET; else spendonce/broker.sock in XDG_RUNTIME_DIR, else in
// /run/user/<uid> if that exists, else broker.sock in the state directory.
func DefaultSocket() (string, error) { return DefaultSocketIn("") }

// DefaultSocketIn is [DefaultSocket] with another state directory than that of
// the environment, unless it is empty.
func DefaultSocketIn(stateDir string) (string, error) {
	path := os.Getenv(SocketVariable)
	if path == "" {
		dir := os.Getenv("XDG_RUNTIME_DIR")
		if !filepath.IsAbs(dir) {
			dir = "/run/user/" + strconv.Itoa(os.Geteuid())
			if f, err := durable.LookAt(dir); err != nil || !f.Type.IsDir() || int(f.UID) != os.Geteuid() {
				dir = ""
			}
		}
		var err error
		switch {
		case dir != "":
			dir = filepath.Join(dir, "spendonce")
		case stateDir != "":
			dir = stateDir
		default:
			dir, err = durable.StateDir()
		}
		if err != nil {
			return "", fmt.Errorf("finding a place for the broker's socket: XDG_RUNTIME_DIR is not set, there is no /run/user/%d, and %w", os.Geteuid(), err)
		}
		path = filepath.Join(dir, "broker.sock")
	}
	return path, CheckSocketPath(path)
}

// CheckSocketPath refuses with [ErrSocketPath] what no socket can be bound to.
func CheckSocketPath(path string) error {
	switch {
	case !filepath.IsAbs(path): // "@…" would be the abstract namespace, which has no owner and no mode
		return fmt.Errorf("%w: %q is not absolute", ErrSocketPath, path)
	case len(path) > MaxSocketPath:
		return fmt.Errorf("%w: %s has %d bytes, and the kernel takes %d: choose a shorter one with --socket or %s",
			ErrSocketPath, path, len(path), MaxSocketPath, SocketVariable)
	}
	return nil
}

// FromEnvironment returns the session that 'spendonce lease run' put into the
// environment. The generation is read anew at each call, for it may have been
// raised since. [ErrNoSession] says what is missing.
func FromEnvironment() (Session, error) {
	id := os.Getenv(SessionVariable)
	if id == "" {
		return Session{}, fmt.Errorf("%w: %s is not set; start this below 'spendonce lease run -- COMMAND'", ErrNoSession, SessionVariable)
	}
	text, from := os.Getenv(GenerationVariable), GenerationVariable
	if path := os.Getenv(GenerationFileVariable); path != "" {
		b, err := readGenerationFile(path)
		if err != nil {
			return Session{}, fmt.Errorf("%w: the file that %s names: %w", ErrNoSession, GenerationFileVariable, err)
		}
		text, from = strings.TrimSuffix(string(b), "\n"), path
	}
	generation, err := ParseGeneration(text)
	if err != nil {
		return Session{}, fmt.Errorf("%w: %s: %w", ErrNoSession, from, err)
	}
	return Session{ID: NewSecret(id), Generation: generation}, nil
}

// ParseGeneration reads a generation as the protocol spells it: decimal, no
// sign, no leading zero, at most [MaxInteger].
func ParseGeneration(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > MaxInteger || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%q is not a generation: an integer from 0 to %d", text, uint64(MaxInteger))
	}
	return n, nil
}

// readGenerationFile reads a file that only we may have written.
func readGenerationFile(path string) ([]byte, error) {
	dir, err := durable.Disk{}.OpenDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.Read(filepath.Base(path), 64)
	if err != nil {
		return nil, err
	}
	if f.Mode.Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s may be written to by others: %w", path, fs.ErrPermission)
	}
	return f.Bytes, nil
}
