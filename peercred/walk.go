//go:build linux

package peercred

import (
	"errors"
	"fmt"

	"github.com/spendonce/spendonce/internal/procfs"
)

// Link is one process of a walk.
type Link struct {
	Process
	PPID int
	Comm string // chosen by the process: for people, and to be quoted
}

func (l Link) String() string { return fmt.Sprintf("%s (%q, parent %d)", l.Process, l.Comm, l.PPID) }

// Chain is a walk as far as it came, from the caller up.
type Chain []Link

const (
	// maxHops is how many steps from child to parent a walk may have.
	maxHops = 256
	// keptEntries is how many stat files a walk keeps open for its second
	// pass. It is cheaper than opening them again, and the kernel then answers
	// for that very process or not at all. More are opened again, so that deep
	// trees do not use up our descriptors.
	keptEntries = 16
)

// table is where a walk looks processes up.
type table interface {
	// Look reads one for the first time. The entry is zero unless it was asked
	// to be kept.
	Look(pid int, keep bool) (procfs.Stat, procfs.Entry, error)
	// Again reads the same one later. The name is left out.
	Again(pid int, kept procfs.Entry) (procfs.Stat, error)
}

// walk goes from a process to its parents until it finds the anchor, and then
// the same way again. It proves descent if the anchor had its pid all the time.
//
// The second pass asks from the caller up, each process for its start time and
// its parent: a kept process that answers had its pid since the first pass, so
// the child that was asked before it has it for a parent and no later holder of
// the pid. Start times alone would not do: when a parent dies between the first
// reading of its child and its own, and its pid is given to a child of the
// anchor, all that follows is steady and belongs to strangers.
type walk struct {
	table  table
	anchor Process
	// pause, for tests, runs after each reading of the first pass and before
	// each of the second.
	pause func(pass, hop int)

	chain Chain
	kept  [keptEntries]procfs.Entry
}

// run walks from pid, whose first reading may be there already; its entry then
// stays the caller's.
func (w *walk) run(pid int, first procfs.Stat, entry procfs.Entry) error {
	w.chain = make(Chain, 0, keptEntries)
	own := entry.Open()
	defer func() {
		if own {
			w.kept[0] = procfs.Entry{}
		}
		for _, e := range w.kept {
			e.Close()
		}
	}()
	if own {
		w.kept[0] = entry
		w.add(first)
	} else if err := w.look(pid); err != nil {
		return err
	}
	err := w.up()
	if err != nil && !errors.Is(err, ErrNotDescendant) {
		return err
	}
	// Also a refusal must be of a chain that stood still.
	if changed := w.again(); changed != nil {
		return changed
	}
	return err
}

// up is the rest of the first pass.
func (w *walk) up() error {
	for hop := 0; ; hop++ {
		if w.pause != nil {
			w.pause(1, hop)
		}
		here := w.chain[hop]
		if here.Process == w.anchor {
			return nil
		}
		switch {
		case here.PID == 1, here.PPID == 0:
			return &HopError{here.PID, "has no parent here", ErrNotDescendant}
		case here.PPID == 1 && w.anchor.PID != 1:
			return &HopError{here.PID, "has no parent but the first process", ErrNotDescendant}
		case hop == maxHops:
			return &HopError{here.PID, fmt.Sprintf("is %d parents up", maxHops), ErrNotDescendant}
		}
		if err := w.look(here.PPID); err != nil {
			return err
		}
		if parent := w.chain[hop+1]; parent.StartTime > here.StartTime {
			return &HopError{parent.PID, fmt.Sprintf("started after its child %d", here.PID), ErrAncestryChanged}
		}
	}
}

func (w *walk) look(pid int) error {
	hop := len(w.chain)
	st, entry, err := w.table.Look(pid, hop < keptEntries)
	if err != nil {
		return unreadable(hop, pid, err)
	}
	if hop < keptEntries {
		w.kept[hop] = entry
	}
	w.add(st)
	return nil
}

func (w *walk) add(st procfs.Stat) {
	w.chain = append(w.chain, Link{Process{st.PID, st.StartTime}, st.PPID, st.Comm})
}

// again is the second pass.
func (w *walk) again() error {
	for hop, then := range w.chain {
		if w.pause != nil {
			w.pause(2, hop)
		}
		var entry procfs.Entry
		if hop < keptEntries {
			entry = w.kept[hop]
		}
		now, err := w.table.Again(then.PID, entry)
		switch {
		case err != nil:
			return unreadable(hop, then.PID, err)
		case now.StartTime != then.StartTime:
			return changed(hop, then.PID, "is another process now")
		case now.PPID != then.PPID:
			return &HopError{then.PID, fmt.Sprintf("has parent %d now, not %d", now.PPID, then.PPID), ErrAncestryChanged}
		}
	}
	return nil
}

func unreadable(hop, pid int, err error) error {
	reason := "cannot be read"
	if errors.Is(err, procfs.ErrNoProcess) {
		reason = "is gone or hidden"
	}
	if hop == 0 {
		return &HopError{pid, reason, fmt.Errorf("%w: %w", ErrUnreadable, err)}
	}
	return &HopError{pid, reason, fmt.Errorf("%w: %w", ErrAncestryChanged, err)}
}

func changed(hop, pid int, reason string) error {
	if hop == 0 {
		return &HopError{pid, reason, ErrExited}
	}
	return &HopError{pid, reason, ErrAncestryChanged}
}
