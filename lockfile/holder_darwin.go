package lockfile

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
)

// bootID names the running kernel; "" if it cannot be had.
var bootID = sync.OnceValue(func() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
})

// guardHolder: macOS does not tell who holds a flock.
func guardHolder(*durable.Kept) (pid int, stopped bool) { return 0, false }
