package lockfile

import (
	"fmt"
	"time"
)

// HeldError says who stands in the way. Nothing was changed.
type HeldError struct {
	Path    string        // of the lock file
	Since   time.Time     // when the lock file was made; zero if unknown
	Watched time.Duration // how long this process watched the same holder at the same step
	PID     int           // of the guard's holder where the kernel tells (Linux), for the message only; 0 if unknown
	Stopped bool          // that process is stopped (SIGSTOP, SIGTSTP)
	Guarded bool          // a living process keeps the guard; else a lock file of unknown origin stands there
}

func (e *HeldError) Error() string {
	s := fmt.Sprintf("lock %s is held", e.Path)
	if !e.Since.IsZero() {
		s += " since " + e.Since.UTC().Format(time.RFC3339)
		if e.Since.After(time.Now()) {
			s += " (in the future: a clock was set back)"
		}
	}
	switch {
	case e.PID != 0 && e.Stopped:
		s += fmt.Sprintf(" by process %d, which is stopped: continue it (kill -CONT %d) or kill it", e.PID, e.PID)
	case e.PID != 0:
		s += fmt.Sprintf(" by process %d, at the same step for %s: wait for it or kill it", e.PID, e.Watched.Round(time.Millisecond))
	case e.Guarded:
		s += fmt.Sprintf(" by a living process, at the same step for %s: wait for it, or continue or kill it", e.Watched.Round(time.Millisecond))
	default:
		s += fmt.Sprintf(", watched for %s: try again", e.Watched.Round(time.Millisecond))
	}
	return s
}

// Is makes a HeldError an [ErrNotObtained].
func (e *HeldError) Is(target error) bool { return target == ErrNotObtained }
