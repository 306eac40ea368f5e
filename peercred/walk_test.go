//go:build linux

package peercred_test

import (
	"errors"
	"testing"

	"github.com/spendonce/spendonce/internal/procfs"
	"github.com/spendonce/spendonce/peercred"
)

// script is a table that gives each pid what stands there for the first and
// for the second pass.
type script struct {
	first, second map[int]procfs.Stat
}

func (s script) Look(pid int, _ bool) (procfs.Stat, procfs.Entry, error) {
	st, ok := s.first[pid]
	if !ok {
		return procfs.Stat{}, procfs.Entry{}, procfs.ErrNoProcess
	}
	return st, procfs.Entry{}, nil
}

func (s script) Again(pid int, _ procfs.Entry) (procfs.Stat, error) {
	st, ok := s.second[pid]
	if !ok {
		return procfs.Stat{}, procfs.ErrNoProcess
	}
	return st, nil
}

// line is a still tree of so many processes without branches: each one's
// parent has the next pid and started a tick earlier.
func line(from, processes int) script {
	s := script{map[int]procfs.Stat{}, map[int]procfs.Stat{}}
	for i := range processes {
		st := procfs.Stat{PID: from + i, PPID: from + i + 1, StartTime: uint64(10_000 - i)}
		s.first[st.PID], s.second[st.PID] = st, st
	}
	return s
}

func (s script) process(pid int) peercred.Process {
	return peercred.Process{PID: pid, StartTime: s.first[pid].StartTime}
}

// with changes what stands for a pid.
func with(m map[int]procfs.Stat, pid int, change func(st *procfs.Stat)) {
	st := m[pid]
	change(&st)
	m[pid] = st
}

func TestAWalkHasAtMost256Hops(t *testing.T) {
	const from = 1000
	for hops, want := range map[int]error{0: nil, 1: nil, 255: nil, 256: nil, 257: peercred.ErrNotDescendant, 258: peercred.ErrNotDescendant} {
		s := line(from, 300)
		chain, err := peercred.Walk(s, from, s.process(from+hops))
		if !errors.Is(err, want) {
			t.Errorf("%d hops: %v", hops, err)
		}
		if len(chain) != min(hops, peercred.MaxHops)+1 {
			t.Errorf("%d hops: the chain has %d", hops, len(chain))
		}
	}
}

func TestAWalkEndsAtTheFirstProcess(t *testing.T) {
	for name, c := range map[string]struct {
		from int
		top  procfs.Stat
	}{
		"pid 1, which need not be readable": {10, procfs.Stat{PID: 12, PPID: 1, StartTime: 1}},
		"outside":                           {10, procfs.Stat{PID: 12, PPID: 0, StartTime: 1}},
		"pid 1 is the caller":               {1, procfs.Stat{PID: 1, PPID: 0, StartTime: 1}},
		"pid 1 says it has a parent":        {1, procfs.Stat{PID: 1, PPID: 10, StartTime: 20_000}},
	} {
		s := line(10, 2)
		s.first[c.top.PID], s.second[c.top.PID] = c.top, c.top
		chain, err := peercred.Walk(s, c.from, peercred.Process{PID: 99, StartTime: 1})
		if !errors.Is(err, peercred.ErrNotDescendant) || hop(t, err) != c.top.PID {
			t.Errorf("%s: %v, %v", name, chain, err)
		}
	}
}

// In a container the anchor may be the first process.
func TestTheFirstProcessMayBeTheAnchor(t *testing.T) {
	s := line(10, 3)
	with(s.first, 12, func(st *procfs.Stat) { st.PPID = 1 })
	with(s.second, 12, func(st *procfs.Stat) { st.PPID = 1 })
	s.first[1] = procfs.Stat{PID: 1, StartTime: 5}
	s.second[1] = s.first[1]
	if chain, err := peercred.Walk(s, 10, s.process(1)); err != nil || len(chain) != 4 {
		t.Errorf("%v, %v", chain, err)
	}
	if _, err := peercred.Walk(s, 10, peercred.Process{PID: 1, StartTime: 6}); !errors.Is(err, peercred.ErrNotDescendant) {
		t.Errorf("another start time: %v", err)
	}
}

func TestAnotherStartTimeIsAnotherProcess(t *testing.T) {
	s := line(10, 5)
	delete(s.first, 14)
	with(s.first, 13, func(st *procfs.Stat) { st.PPID = 1 })
	with(s.second, 13, func(st *procfs.Stat) { st.PPID = 1 })
	anchor := s.process(12)
	anchor.StartTime--
	_, err := peercred.Walk(s, 10, anchor)
	wantError(t, err, peercred.ErrNotDescendant)
}

// Each case changes one process of a walk from 10 to the anchor 13.
func TestAWalkThatDoesNotStandStillProvesNothing(t *testing.T) {
	gone := func(m map[int]procfs.Stat, pid int) { delete(m, pid) }
	for name, c := range map[string]struct {
		change func(s script)
		want   error
		at     int
	}{
		"the caller cannot be read":        {func(s script) { gone(s.first, 10) }, peercred.ErrUnreadable, 10},
		"the caller is gone":               {func(s script) { gone(s.second, 10) }, peercred.ErrUnreadable, 10},
		"the caller is another":            {func(s script) { with(s.second, 10, func(st *procfs.Stat) { st.StartTime++ }) }, peercred.ErrExited, 10},
		"the caller has another parent":    {func(s script) { with(s.second, 10, func(st *procfs.Stat) { st.PPID = 1 }) }, peercred.ErrAncestryChanged, 10},
		"a parent cannot be read":          {func(s script) { gone(s.first, 12) }, peercred.ErrAncestryChanged, 12},
		"a parent is gone":                 {func(s script) { gone(s.second, 12) }, peercred.ErrAncestryChanged, 12},
		"a parent is another":              {func(s script) { with(s.second, 12, func(st *procfs.Stat) { st.StartTime++ }) }, peercred.ErrAncestryChanged, 12},
		"a parent has another parent":      {func(s script) { with(s.second, 12, func(st *procfs.Stat) { st.PPID = 1 }) }, peercred.ErrAncestryChanged, 12},
		"a parent started after its child": {func(s script) { youth(s, 12) }, peercred.ErrAncestryChanged, 12},
		"the anchor cannot be read":        {func(s script) { gone(s.first, 13) }, peercred.ErrAncestryChanged, 13},
		"the anchor is gone":               {func(s script) { gone(s.second, 13) }, peercred.ErrAncestryChanged, 13},
		"the anchor is another":            {func(s script) { with(s.second, 13, func(st *procfs.Stat) { st.StartTime++ }) }, peercred.ErrAncestryChanged, 13},
		"the anchor has another parent":    {func(s script) { with(s.second, 13, func(st *procfs.Stat) { st.PPID = 1 }) }, peercred.ErrAncestryChanged, 13},
		"the anchor started after":         {func(s script) { youth(s, 13) }, peercred.ErrAncestryChanged, 13},
	} {
		s := line(10, 5)
		c.change(s)
		anchor := s.process(13)
		if _, ok := s.first[13]; !ok {
			anchor = peercred.Process{PID: 13, StartTime: s.second[13].StartTime}
		}
		_, err := peercred.Walk(s, 10, anchor)
		if !errors.Is(err, c.want) || hop(t, err) != c.at {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// youth lets pid start after its child.
func youth(s script, pid int) {
	for _, m := range []map[int]procfs.Stat{s.first, s.second} {
		with(m, pid, func(st *procfs.Stat) { st.StartTime = s.first[pid-1].StartTime + 1 })
	}
}

func TestAParentMayStartInTheTickOfItsChild(t *testing.T) {
	s := line(10, 5)
	for _, m := range []map[int]procfs.Stat{s.first, s.second} {
		with(m, 12, func(st *procfs.Stat) { st.StartTime = s.first[11].StartTime })
	}
	if _, err := peercred.Walk(s, 10, s.process(13)); err != nil {
		t.Error(err)
	}
}

// The strangers whom a walk met in place of the parents may not be why
// somebody is refused for good.
func TestARefusalTooIsOfAChainThatStoodStill(t *testing.T) {
	s := line(10, 3)
	with(s.first, 12, func(st *procfs.Stat) { st.PPID = 1 })
	with(s.second, 12, func(st *procfs.Stat) { st.PPID = 1 })
	stranger := peercred.Process{PID: 50, StartTime: 1}
	_, err := peercred.Walk(s, 10, stranger)
	wantError(t, err, peercred.ErrNotDescendant)
	with(s.second, 10, func(st *procfs.Stat) { st.PPID = 50 })
	_, err = peercred.Walk(s, 10, stranger)
	wantError(t, err, peercred.ErrAncestryChanged)
}
