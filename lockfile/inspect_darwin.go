package lockfile

import "github.com/spendonce/spendonce/internal/durable"

// guardKept: macOS does not tell who holds a flock.
func guardKept(*durable.Kept) (held bool, by Process, unsure bool) { return false, Process{}, true }
