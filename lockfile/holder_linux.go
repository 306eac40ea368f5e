package lockfile

import (
	"os"
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

// guardHolder says who holds the guard, for messages only.
func guardHolder(guard *durable.Kept) (pid int, stopped bool) {
	_, by, _ := guard.Holder()
	return by.PID, by.Stopped
}
