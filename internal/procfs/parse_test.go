//go:build linux

package procfs_test

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/procfs"
)

// tail are fields 5 to 21 and all behind the start time.
const (
	behind = " 22 33 18446744073709551615\n"
)

func statOf(comm, start string) string { return "42 (" + comm + ") S 7" + fields(start) }

// fields are those from 5 on.
func fields(start string) string {
	return " 10 11 12 -1 14 15 16 17 18 19 20 21 22 23 24 25 26 " + start + behind
}

func TestParseStatReadsTheFieldsBehindTheLastParenthesis(t *testing.T) {
	for _, comm := range []string{
		"", "sh", "a b", ")", "(", "a) R 1 (b", ") S 1", "x\ny", "\n", " ", "\x00\xff", strings.Repeat(")", 15),
		"x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 (y",
	} {
		got, err := procfs.ParseStat([]byte(statOf(comm, "12345")))
		want := procfs.Stat{PID: 42, Comm: comm, State: 'S', PPID: 7, StartTime: 12345}
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", comm, got, err)
		}
	}
}

func TestParseStatRefusesWhatIsNoStat(t *testing.T) {
	good := statOf("sh", "12345")
	if _, err := procfs.ParseStat([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty":                "",
		"no pid":               strings.Replace(good, "42 (", " (", 1),
		"pid 0":                strings.Replace(good, "42 (", "0 (", 1),
		"negative pid":         strings.Replace(good, "42 (", "-42 (", 1),
		"huge pid":             strings.Replace(good, "42 (", "2147483648 (", 1),
		"overflowing pid":      strings.Replace(good, "42 (", "18446744073709551658 (", 1),
		"pid with a sign":      strings.Replace(good, "42 (", "+42 (", 1),
		"no name":              strings.Replace(good, "(sh)", "sh", 1),
		"endless name":         strings.Replace(good, ")", "", 1),
		"no space":             strings.Replace(good, ") S", ")S", 1),
		"two spaces":           strings.Replace(good, ") S", ")  S", 1),
		"state is a digit":     strings.Replace(good, ") S", ") 7", 1),
		"state of two letters": strings.Replace(good, ") S", ") SS", 1),
		"negative parent":      strings.Replace(good, "S 7", "S -7", 1),
		"huge parent":          strings.Replace(good, "S 7", "S 2147483648", 1),
		"letters between":      strings.Replace(good, " 14 ", " x ", 1),
		"lone sign between":    strings.Replace(good, " -1 ", " - ", 1),
		"field missing":        strings.Replace(good, " -1 ", " ", 1)[:len(good)-len(behind)-3] + "\n",
		"negative start":       statOf("sh", "-12345"),
		"overflowing start":    statOf("sh", "18446744073709551616"),
		"letter in the start":  statOf("sh", "123x"),
		"cut in the start":     good[:strings.Index(good, "12345")+3],
		"cut behind the start": good[:strings.Index(good, "12345")+5],
		"name too long":        statOf(strings.Repeat("x", 300), "1"),
	} {
		if got, err := procfs.ParseStat([]byte(content)); err == nil || got != (procfs.Stat{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestParseStatReadsTheBounds(t *testing.T) {
	got, err := procfs.ParseStat([]byte("2147483647 (x) Z 2147483647" + fields("18446744073709551615")))
	want := procfs.Stat{PID: math.MaxInt32, Comm: "x", State: 'Z', PPID: math.MaxInt32, StartTime: math.MaxUint64}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

var errOracle = errors.New("refused by the oracle")

// slowly is a second parser, which shares nothing with the first: it cuts the
// whole into pieces and has big numbers.
func slowly(content []byte) (procfs.Stat, error) {
	open, end := bytes.IndexByte(content, '('), bytes.LastIndexByte(content, ')')
	if open < 2 || end < open || content[open-1] != ' ' || end-open-1 > 256 {
		return procfs.Stat{}, errOracle
	}
	pieces := strings.Split(string(content[end+1:]), " ")
	// "", state, ppid, 17 more, start, and the rest
	if len(pieces) < 21 || pieces[0] != "" {
		return procfs.Stat{}, errOracle
	}
	start := pieces[20]
	if len(pieces) == 21 {
		var ok bool
		if start, _, ok = strings.Cut(start, "\n"); !ok {
			return procfs.Stat{}, errOracle
		}
	} else {
		start, _, _ = strings.Cut(start, "\n")
	}
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	state := pieces[1]
	if len(state) != 1 || strings.Trim(state, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
		return procfs.Stat{}, errOracle
	}
	for _, p := range pieces[3:20] {
		if !digits(strings.TrimPrefix(p, "-")) {
			return procfs.Stat{}, errOracle
		}
	}
	bounded := func(s string, limit uint64) (uint64, bool) {
		n, ok := new(big.Int).SetString(s, 10)
		if !digits(s) || !ok || n.Cmp(new(big.Int).SetUint64(limit)) > 0 {
			return 0, false
		}
		return n.Uint64(), true
	}
	pid, ok1 := bounded(string(content[:open-1]), math.MaxInt32)
	ppid, ok2 := bounded(pieces[2], math.MaxInt32)
	ticks, ok3 := bounded(start, math.MaxUint64)
	if !ok1 || !ok2 || !ok3 || pid == 0 {
		return procfs.Stat{}, errOracle
	}
	return procfs.Stat{PID: int(pid), Comm: string(content[open+1 : end]), State: state[0], PPID: int(ppid), StartTime: ticks}, nil
}

func FuzzStat(f *testing.F) {
	f.Add([]byte(statOf("sh", "12345")))
	f.Add([]byte(statOf(") R 1 (", "18446744073709551615")))
	f.Add([]byte(statOf("x\ny) S 2", "0")))
	f.Add([]byte("1 () R 0" + strings.Repeat(" -9", 17) + " 5\n"))
	if own, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := procfs.ParseStat(content)
		want, wantErr := slowly(content)
		if got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("%q:\n%+v, %v\n%+v, %v", content, got, err, want, wantErr)
		}
		if err == nil && (got.PID < 1 || got.PID > math.MaxInt32 || got.PPID < 0 || got.PPID > math.MaxInt32) {
			t.Errorf("%q: %+v is out of bounds", content, got)
		}
	})
}
