//go:build crash && linux

package broker_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hold has strace hold the broker, for 2 s, whenever it is about to make a
// system call on a path. The function that is returned waits until it does.
func (b *process) hold(name string, number int, path string) (held func()) {
	b.t.Helper()
	trace := exec.Command("strace", "-f", "-p", fmt.Sprint(b.cmd.Process.Pid), "-o", "/dev/null",
		"-P", path, "-e", "trace="+name, "-e", "inject="+name+":delay_enter=2s")
	stderr, err := trace.StderrPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := trace.Start(); err != nil {
		b.t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "attached") {
		b.t.Fatalf("strace says %q, %v", line, err)
	}
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, said) }()
	b.t.Cleanup(func() {
		_ = trace.Process.Kill()
		<-drained
		_ = trace.Wait()
	})
	return func() {
		b.t.Helper()
		same, last := 0, ""
		eventually(b.t, func() bool {
			// Every traced call stops for a moment. This one does not end.
			now := stoppedIn(b.t, b.cmd.Process.Pid, number)
			if now == "" || now != last {
				same, last = 0, now
				return false
			}
			same++
			return same == 20
		})
	}
}

// stoppedIn is a thread of a process that stands still in a system call.
func stoppedIn(t testing.TB, pid, call int) string {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		stat, _ := os.ReadFile(thread + "/stat")
		in, _ := os.ReadFile(thread + "/syscall")
		if strings.Contains(string(stat), ") t ") && strings.HasPrefix(string(in), fmt.Sprint(call, " ")) {
			return thread + string(in)
		}
	}
	return ""
}
