//go:build linux

package lan_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/tests/etcd/lan"
)

// millis is more than a process takes to die.
const millis = 10_000

func TestProcessesDieWithTheTestHoweverItEnds(t *testing.T) {
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), part+"=owner")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var watched []unix.PollFd
	for lines := bufio.NewScanner(out); len(watched) < 2 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		watched = append(watched, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if n, err := unix.Poll(watched, 0); n != 0 || err != nil || len(watched) != 2 {
		t.Fatalf("of %d processes %d ended before (%v)", len(watched), n, err)
	}
	owner.Process.Kill()
	owner.Wait()
	for _, w := range watched {
		if n, err := unix.Poll([]unix.PollFd{w}, millis); n != 1 {
			t.Errorf("a process outlived who started it (%v)", err)
		}
	}
}

func TestWhatAProcessStartedDiesWithTheNetwork(t *testing.T) {
	var child unix.PollFd
	t.Run("network", func(t *testing.T) {
		cmd := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := lan.New(t, 1).Hosts[0].Start(cmd); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		child = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	})
	defer unix.Close(int(child.Fd))
	if n, err := unix.Poll([]unix.PollFd{child}, millis); n != 1 {
		t.Errorf("it lives on (%v)", err)
	}
}
