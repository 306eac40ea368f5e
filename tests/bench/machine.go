package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine says what a run was measured on.
type machine struct {
	Time       time.Time `json:"time"`
	Cores      int       `json:"cores"`
	Load       float64   `json:"load_at_start"` // over one minute
	Kernel     string    `json:"kernel"`
	FileSystem string    `json:"file_system"`
	Go         string    `json:"go"`
}

func describeMachine(dir string) machine {
	m := machine{
		Time: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Load: loadAverage(),
		Kernel: "unknown", FileSystem: fileSystem(dir), Go: strings.TrimPrefix(runtime.Version(), "go"),
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// busy: somebody else uses a good part of the machine.
func (m machine) busy() bool { return m.Load > 0.25*float64(m.Cores) }

func (m machine) String() string {
	return fmt.Sprintf("%d cores, load %.2f at the start, Linux %s, %s, Go %s", m.Cores, m.Load, m.Kernel, m.FileSystem, m.Go)
}

func (m machine) describe(w io.Writer) {
	fmt.Fprintf(w, "%s\n", m)
	if m.busy() {
		fmt.Fprintf(w, "warning: the machine is busy (load %.2f on %d cores): ratios are blurred, their extremes say nothing\n", m.Load, m.Cores)
	}
	if m.FileSystem == "tmpfs" {
		fmt.Fprintln(w, "warning: tmpfs syncs nothing: the figures of writes say nothing; --dir names another place")
	}
}

// loadAverage is that of the last minute, or -1.
func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return load
}

func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "an unknown file system"
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	default:
		return fmt.Sprintf("file system %#x", st.Type)
	}
}

// monotonic is the clock that all processes of a machine read alike.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return time.Duration(t.Nano())
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
