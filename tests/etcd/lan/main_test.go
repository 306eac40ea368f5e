//go:build linux

package lan_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/etcd/lan"
)

// With a part in its environment the test binary is another program.
const part = "LAN_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(part) {
	case "clock":
		fmt.Println(time.Now().Unix())
	case "owner":
		ownProcesses()
	default:
		os.Exit(m.Run())
	}
}

// ownProcesses starts a process on each kind of host, prints their pids, and
// stays for as long as its input.
func ownProcesses() {
	for _, hosts := range []func(testing.TB, int) *lan.LAN{lan.New, lan.NewLoopback} {
		cmd := exec.Command("sleep", "1000")
		if err := hosts(noTest{}, 1).Hosts[0].Start(cmd); err != nil {
			panic(err)
		}
		fmt.Println(cmd.Process.Pid)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// noTest is a test that never ends.
type noTest struct{ testing.TB }

func (noTest) Helper()                      {}
func (noTest) Cleanup(func())               {}
func (noTest) Logf(string, ...any)          {}
func (noTest) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
