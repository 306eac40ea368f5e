//go:build linux

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotProcfs says that something else is mounted at /proc.
	ErrNotProcfs = errors.New("/proc is not a proc file system")
	// ErrOtherNamespace says that /proc shows another pid namespace than ours,
	// so that its numbers mean other processes than those the kernel gives us.
	ErrOtherNamespace = errors.New("/proc shows another pid namespace than that of this process: mount proc in this one")
	// ErrNoProcess says that no process has that pid, or none that we may see.
	ErrNoProcess = errors.New("no such process")
)

// FS is /proc, kept open. It is safe for concurrent use until it is closed.
type FS struct{ fd int }

// Open opens /proc and judges it by its descriptor. The error is
// [ErrNotProcfs], [ErrOtherNamespace] or one of the system's.
func Open() (*FS, error) { return open("/proc") }

func open(path string) (*FS, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	fs := &FS{fd}
	if err := fs.judge(); err != nil {
		fs.Close()
		return nil, err
	}
	return fs, nil
}

// Close gives the descriptor back. Nothing may be asked afterwards.
func (fs *FS) Close() {
	_ = unix.Close(fs.fd)
	fs.fd = -1
}

func (fs *FS) judge() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fs.fd, &st); err != nil {
		return fmt.Errorf("asking for the kind of /proc: %w", err)
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return ErrNotProcfs
	}
	var b [32]byte
	n, err := unix.Readlinkat(fs.fd, "self", b[:])
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w (this process is not in it)", ErrOtherNamespace)
	}
	if err != nil {
		return fmt.Errorf("reading /proc/self: %w", err)
	}
	if self, pid := string(b[:n]), os.Getpid(); self != strconv.Itoa(pid) {
		return fmt.Errorf("%w (it is %s there and %d here)", ErrOtherNamespace, self, pid)
	}
	return fs.judgeDepth()
}

// judgeDepth looks whether our number is the same by chance: a process is
// listed with its pid in every namespace from that of the mount down to its
// own, so with one only if the two are the same.
func (fs *FS) judgeDepth() error {
	status, err := fs.read("self/status", 64<<10)
	if err != nil {
		return fmt.Errorf("reading /proc/self/status: %w", err)
	}
	for line := range bytes.Lines(status) {
		pids, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if ok && len(bytes.Fields(pids)) != 1 {
			return fmt.Errorf("%w (there this process has the pids %s)", ErrOtherNamespace, bytes.TrimSpace(pids))
		}
	}
	return nil
}

// BootID names the running kernel's boot.
func (fs *FS) BootID() (string, error) {
	b, err := fs.read("sys/kernel/random/boot_id", 64)
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	id := string(bytes.TrimSpace(b))
	if id == "" {
		return "", errors.New("reading the boot id: it is empty")
	}
	return id, nil
}

// OverflowUID is the uid that stands for users who have none in our user
// namespace. A kernel that was built without sysctls tells of none; there it is
// the one that no kernel starts without.
func (fs *FS) OverflowUID() (uint32, error) {
	const unchanged = 65534
	b, err := fs.read("sys/kernel/overflowuid", 64)
	if errors.Is(err, unix.ENOENT) {
		return unchanged, nil
	}
	var uid uint64
	if err == nil {
		uid, err = strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 32)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the overflow uid: %w", err)
	}
	return uint32(uid), nil
}

// read returns the whole of a small file.
func (fs *FS) read(name string, atMost int) ([]byte, error) {
	fd, err := unix.Openat(fs.fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, atMost)
	for n := 0; n < len(b); {
		more, err := unix.Read(fd, b[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case more == 0:
			return b[:n], nil
		default:
			n += more
		}
	}
	return b, nil
}
