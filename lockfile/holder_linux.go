package lockfile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/spendonce/spendonce/internal/durable"
)

// bootID names the running kernel; "" if it cannot be had.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// guardHolder asks the kernel who holds the guard. It serves messages only:
// by the time it answers, it may be somebody else.
func guardHolder(guard *durable.Kept) (pid int, stopped bool) {
	inode, err := guard.Inode()
	if err != nil {
		return 0, false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:131094 0 EOF
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], ":"+strconv.FormatUint(inode, 10)) {
			continue
		}
		// 0 stands for a process of another pid namespace.
		if pid, err = strconv.Atoi(f[4]); err != nil || pid <= 0 {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return pid, false
		}
		_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		return pid, bytes.HasPrefix(rest, []byte("T "))
	}
	return 0, false
}
