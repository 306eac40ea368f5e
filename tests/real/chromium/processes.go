package chromium

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// awaitNone returns when no process of the browser is left: none with the
// marker in its environment, nor with the directory in its arguments (whose
// environment another user's process would not show). They are not our
// children, so there is no event of their end; one that stays for ten seconds
// is an error.
func awaitNone(marker, dir string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	bound := time.After(10 * time.Second)
	for {
		left, err := processesOf(marker, dir)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-bound:
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return fmt.Errorf("processes %v of the browser had to be killed", left)
		}
	}
}

func processesOf(marker, dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// What cannot be read is another user's, or has ended.
		environ, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		arguments, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if bytes.Contains(environ, []byte(marker)) || bytes.Contains(arguments, []byte(dir)) {
			found = append(found, pid)
		}
	}
	return found, nil
}
