//go:build linux

package proctest

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64

	setTID, setTIDSize, cgroup uint64
}

// call is a system call for a new process, which can do nothing else: of its
// threads only one was copied, and the runtime would wait for the others.
type call struct{ number, a, b, c uintptr }

var diesWithUs = call{unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0}

// Self starts this program again, with the given pid (0: any), as a child of
// this process, which must reap it. [unix.EEXIST] says that the pid is taken.
func Self(pid int, args, env []string) (int, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	path, argv, envp := cString("/proc/self/exe"), cStrings(args), cStrings(env)
	return clone(pid,
		call{unix.SYS_EXECVE, pinned(&pins, path), pinned(&pins, &argv[0]), pinned(&pins, &envp[0])})
}

// Idle makes a child with the given pid (0: any) that only waits, no longer
// than the thread lives that made it. It costs microseconds: such a process
// can have come and gone within one clock tick.
func Idle(pid int) (int, error) {
	return clone(pid, diesWithUs)
}

// Caller makes a child like Idle that connects to the socket at path and sends
// text and the end of what it says. It does not read what it is answered.
func Caller(pid int, path, text string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) // ours; the child has its own
	var pins runtime.Pinner
	defer pins.Unpin()
	addr := &unix.RawSockaddrUnix{Family: unix.AF_UNIX}
	for i := range len(path) {
		addr.Path[i] = int8(path[i])
	}
	line := []byte(text)
	return clone(pid, diesWithUs,
		call{unix.SYS_CONNECT, uintptr(fd), pinned(&pins, addr), unsafe.Sizeof(*addr)},
		call{unix.SYS_WRITE, uintptr(fd), pinned(&pins, &line[0]), uintptr(len(line))},
		call{unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0},
	)
}

// clone makes a process that makes the calls in their order and then waits to
// be killed. What the calls point to is pinned.
func clone(pid int, calls ...call) (int, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	args := &cloneArgs{exitSignal: uint64(unix.SIGCHLD)}
	if pid != 0 {
		tid := int32(pid)
		args.setTID, args.setTIDSize = uint64(pinned(&pins, &tid)), 1
	}
	got, errno := cloneAndCall(args, calls)
	if errno != 0 {
		return 0, fmt.Errorf("making a process with pid %d: %w", pid, errno)
	}
	return int(got), nil
}

// cloneAndCall runs in the child too, where the stack cannot grow, nothing can
// be allocated, and no race detector works.
//
//go:norace
//go:nosplit
func cloneAndCall(args *cloneArgs, calls []call) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0) //nolint:gosec // the kernel reads it
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	for i := 0; i < len(calls); i++ {
		if _, _, errno = syscall.RawSyscall(calls[i].number, calls[i].a, calls[i].b, calls[i].c); errno != 0 {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
		}
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
	}
}

// pinned is the address of what neither moves nor goes until it is unpinned.
func pinned[T any](pins *runtime.Pinner, p *T) uintptr {
	pins.Pin(p)
	return uintptr(unsafe.Pointer(p)) //nolint:gosec // the kernel reads or fills what is there
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

func cStrings(list []string) []*byte {
	out := make([]*byte, 0, len(list)+1)
	for _, s := range list {
		out = append(out, cString(s))
	}
	return append(out, nil)
}
