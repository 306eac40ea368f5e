//go:build linux

package peercred

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/procfs"
)

// SetPause has f run after each reading of a first pass and before each of the
// second.
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

// AsOldKernel makes a listener do without SO_PEERPIDFD; pause runs before the
// pidfd is opened.
func (l *Listener) AsOldKernel(t testing.TB, pause func()) {
	fs, err := procfs.Open()
	if err != nil {
		t.Fatal(err)
	}
	l.old = &oldKernel{proc: fs, pause: pause}
}

// WithoutCredentials makes a listener forget who writes.
func (l *Listener) WithoutCredentials(t testing.TB) {
	raw, err := l.socket.SyscallConn()
	if err == nil {
		err = onFD(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 0) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// As makes a listener one of another user, or with another overflow uid.
func (l *Listener) As(uid, overflow uint32) { l.rules = rules{uid, overflow} }
