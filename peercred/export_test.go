//go:build linux

package peercred

import "github.com/spendonce/spendonce/internal/procfs"

// SetPause has f run after each reading of a first pass and before the second.
func (pr *Prover) SetPause(f func(pass, hop int)) { pr.pause = f }

// Table is where a walk looks processes up.
type Table = table

// MaxHops and KeptEntries are the bounds of a walk.
const (
	MaxHops     = maxHops
	KeptEntries = keptEntries
)

// Walk is a walk over any table.
func Walk(t Table, pid int, anchor Process) (Chain, error) {
	w := walk{table: t, anchor: anchor}
	err := w.run(pid, procfs.Stat{}, procfs.Entry{})
	return w.chain, err
}

// AsOldKernel makes a listener do without SO_PEERPIDFD.
func (l *Listener) AsOldKernel(fs *procfs.FS) { l.proc = fs }

// As makes a listener one of another user, or with another overflow uid.
func (l *Listener) As(uid, overflow uint32) { l.rules = rules{uid, overflow} }
