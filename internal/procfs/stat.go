//go:build linux

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// Stat is what /proc/<pid>/stat tells of a process.
type Stat struct {
	PID       int
	Comm      string // the command name; any bytes, chosen by the process
	State     byte
	PPID      int    // 0 if the parent is outside this pid namespace
	StartTime uint64 // in clock ticks since boot
}

// maxComm is more than any kernel lets a command name have.
const maxComm = 256

var errStat = errors.New("not the stat of a process")

// ParseStat reads the content of a stat file up to its field 22, the start
// time. The command name may hold anything, also what looks like the end of
// it and further fields; nothing behind it can hold a closing parenthesis, so
// the last one ends it.
func ParseStat(b []byte) (Stat, error) {
	var st Stat
	comm, err := parse(b, &st)
	if err != nil {
		return Stat{}, err
	}
	st.Comm = string(comm)
	return st, nil
}

// parse fills in all but the name, which it returns as a part of b.
func parse(b []byte, st *Stat) (comm []byte, err error) {
	pid, rest, ok := number(b)
	if !ok || pid == 0 || pid > math.MaxInt32 || len(rest) < 2 || rest[0] != ' ' || rest[1] != '(' {
		return nil, fmt.Errorf("%w: its pid", errStat)
	}
	rest = rest[2:]
	end := bytes.LastIndexByte(rest, ')')
	if end < 0 || end > maxComm {
		return nil, fmt.Errorf("%w: its name", errStat)
	}
	comm, rest = rest[:end], rest[end+1:]
	if len(rest) < 3 || rest[0] != ' ' || !isLetter(rest[1]) || rest[2] != ' ' {
		return nil, fmt.Errorf("%w: its state", errStat)
	}
	state := rest[1]
	ppid, rest, ok := number(rest[3:])
	if !ok || ppid > math.MaxInt32 || len(rest) == 0 || rest[0] != ' ' {
		return nil, fmt.Errorf("%w: its parent", errStat)
	}
	for range 17 { // fields 5 to 21
		if rest, ok = skip(rest[1:]); !ok {
			return nil, fmt.Errorf("%w: too short", errStat)
		}
	}
	start, rest, ok := number(rest[1:])
	if !ok || len(rest) == 0 || rest[0] != ' ' && rest[0] != '\n' {
		return nil, fmt.Errorf("%w: its start time", errStat)
	}
	st.PID, st.State, st.PPID, st.StartTime = int(pid), state, int(ppid), start
	return comm, nil
}

// number reads decimal digits; at least one must be there, and they must not
// be more than a uint64 holds.
func number(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		d := uint64(b[i] - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, nil, false
		}
		n = n*10 + d
	}
	return n, b[i:], i > 0
}

// skip passes over a number of either sign up to the space behind it.
func skip(b []byte) (rest []byte, ok bool) {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	i := 0
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return b[i:], i > 0 && i < len(b) && b[i] == ' '
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
