//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestStormOfFirstRunsStartsOneBroker(t *testing.T) {
	for range rounds(t, 5, 100) {
		r := newRealm(t)
		barrier, release, err := os.Pipe()
		must(t, err)
		all := make([]*process, 10)
		for i := range all {
			wrapper := wrappers[[]string{"in place", "beside"}[i%2]]
			all[i] = r.shell(`read -r line; exec ` + wrapper + ` sh -c 'spendonce lease auth >/dev/null </dev/null; echo $?; cat /proc/$$/task/$$/children'`)
			all[i].Stdin = barrier
			r.begin(all[i])
		}
		_ = barrier.Close()
		_ = release.Close()
		for _, p := range all {
			code, out := p.end()
			if first, rest, _ := strings.Cut(out, "\n"); code != 0 || first != "0" || len(strings.Fields(rest)) > 1 { // cat itself
				t.Errorf("one ended with %d and said %q: %s", code, out, p.err.String())
			}
		}
		broker := r.status().PID
		r.eventually("all but one broker have ended", func() bool { return len(serving(t, r.socket)) == 1 })
		if left := serving(t, r.socket); left[0] != broker {
			t.Errorf("process %d is left, and %d serves", left[0], broker)
		}
		must(t, stopBroker(r.socket))
	}
}

// serving are the processes that were started to serve a socket.
func serving(t *testing.T, socket string) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	var pids []int
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		if args := strings.Split(string(b), "\x00"); slices.Contains(args, "serve") && slices.Contains(args, socket) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// Of ten who consume one token at once, in ten processes, one is told its
// binding.
func TestStormOfConsumersHasOneWinner(t *testing.T) {
	for range rounds(t, 5, 100) {
		r := newRealm(t)
		out := r.ok(r.shell(`exec spendonce lease run -- sh -c '
			echo "$0" | spendonce lease mint >token
			mkfifo go
			for i in 1 2 3 4 5 6 7 8 9 10; do
				{ read -r line <go; spendonce lease consume <token >out.$i 2>err.$i; echo $? >code.$i; } &
			done
			exec 8<>go
			printf "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n" >&8
			wait
			cat code.* | sort | uniq -c | tr -s " "; cat out.*
		' '{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}'`))
		if want := " 1 0\n 9 9\n" + `{"compaction_epoch":1,"request_epoch":7,"h_source":"a","h_payload":"b","schema_version":1}`; out != want {
			t.Fatalf("it said\n%s", out)
		}
		must(t, stopBroker(r.socket))
	}
}
