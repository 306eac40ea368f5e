package durable

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Holder asks the kernel whether anybody has the file's lock, without trying
// it. Unsure says that nobody was seen to have it and that the answer means
// nothing, because this process may not see all.
func (k *Kept) Holder() (held bool, by Holder, unsure bool) {
	name, err := k.LockName()
	if err != nil {
		return false, Holder{}, true
	}
	// The list is read in pieces while it changes: an entry may be missed once.
	for range 2 {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			return false, Holder{}, true
		}
		if pid, ok := flockHolder(string(locks), name); ok {
			return true, lookUp(pid), false
		}
	}
	return false, Holder{}, !seesAll()
}

// flockHolder finds the process that holds the flock(2) on the file that the
// kernel calls name; 0 is one that it does not tell.
func flockHolder(locks, name string) (pid int, held bool) {
	for line := range strings.Lines(locks) {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131094 0 EOF
		// A waiter's line has an arrow behind the number.
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != name {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil || pid < 0 {
			pid = 0
		}
		return pid, true
	}
	return 0, false
}

// lookUp tells of a process what anybody may know of it. The kernel keeps the
// number of whoever asked for the lock, which may have handed the descriptor
// on and ended: then nobody is named.
func lookUp(pid int) Holder {
	if pid == 0 {
		return Holder{}
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}
	}
	p := Holder{PID: pid}
	// 4711 (a name) T 1 ...: the name may hold anything.
	start, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if start < 0 || end < start {
		return p
	}
	p.Name = string(stat[start+1 : end])
	state, _, _ := bytes.Cut(bytes.TrimLeft(stat[end+1:], " "), []byte(" "))
	p.Stopped = string(state) == "T" || string(state) == "t"
	return p
}

// seesAll reports whether this process is in the first pid namespace. In
// another one /proc/locks leaves out the locks of all processes outside.
func seesAll() bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO
	ns, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && ns == first
}
