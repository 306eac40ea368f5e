//go:build linux

package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
)

// Whoever holds the lock is the only writer: every temporary file is a dead
// one's, whatever its date says.
var sweepAt = time.Unix(0, 0)

const sweepAge = time.Duration(math.MinInt64)

// readState reads the state file, and returns nil if there is none.
func readState(dir *durable.Dir, lim limits) (*state, error) {
	f, err := dir.Read(StateFile, int64(lim.bytes))
	path := dir.Join(StateFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // no file, no state
	case errors.Is(err, durable.ErrTooLarge):
		return nil, damaged(path, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, unreadable(path, err)
	case err != nil:
		return nil, unsafe(err)
	}
	// What the name leads to now is the very file that was read, or nothing is
	// believed.
	look, err := dir.Look(StateFile)
	switch {
	case err != nil:
		return nil, unsafe(err)
	case look.ID != f.ID:
		return nil, fmt.Errorf("%w: %s changes while it is read", ErrUnsafe, path)
	case look.Mode != 0o600:
		return nil, fmt.Errorf("%w: %s has mode %04o, not 0600: others may have read or written it (if you know that they did not: chmod 600 %s)", ErrUnsafe, path, look.Mode, path)
	case look.Links != 1:
		return nil, fmt.Errorf("%w: %s has %d names (find and remove the others)", ErrUnsafe, path, look.Links)
	}
	s, err := parseState(f.Bytes, lim)
	if err != nil {
		return nil, damaged(path, err)
	}
	return s, nil
}

// unsafe gives an error of the file room our name for it.
func unsafe(err error) error {
	if errors.Is(err, durable.ErrUnsafe) || errors.Is(err, durable.ErrNotRegular) {
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	return err
}

// unreadable is for a file whose mode or owner keeps us from it.
func unreadable(path string, err error) error {
	return fmt.Errorf("%w: %w; it was left as it is: %s", ErrUnsafe, err, moveAside(path, "unreadable"))
}

func damaged(path string, err error) error {
	return fmt.Errorf("%w: %s: %w; it was left as it is: %s", ErrDamaged, path, err, moveAside(path, "damaged"))
}

func moveAside(path, as string) string {
	return fmt.Sprintf("move it aside (mv %s %s.%s), and agents register anew", path, path, as)
}
