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

// Self starts this program again, with the given pid (0: any), as a child of
// this process, which must reap it. [unix.EEXIST] says that the pid is taken.
func Self(pid int, args, env []string) (int, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	path, argv, envp := cString("/proc/self/exe"), cStrings(args), cStrings(env)
	return clone(pid,
		call{unix.SYS_EXECVE, pinned(&pins, path), pinned(&pins, &argv[0]), pinned(&pins, &envp[0])})
}

// Idle makes a child with the given pid (0: any) that only waits to be killed.
// It costs microseconds: such a process can have come and gone within one
// clock tick.
func Idle(pid int) (int, error) { return clone(pid, noStdio) }

// Caller makes a child like [Idle] that connects to the socket at path, sends
// text and the end of what it says, and ends when it is answered or hung up on.
func Caller(pid int, path, text string) (int, error) {
	return caller(pid, path, text, nil, []call{readAByte, exit})
}

// Stayer makes a child like [Caller] that stays.
func Stayer(pid int, path, text string) (int, error) { return caller(pid, path, text, nil, nil) }

// Pair makes a child that only waits, and has a child that is a [Caller].
func Pair(path, text string) (int, error) {
	return caller(0, path, text, []call{{unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0}}, []call{readAByte, exit})
}

var (
	// noStdio lets go of what 'go test' waits for.
	noStdio   = call{unix.SYS_CLOSE_RANGE, 0, 2, 0}
	readAByte = call{number: unix.SYS_READ} // of the connection, see caller
	exit      = call{unix.SYS_EXIT_GROUP, 0, 0, 0}
)

func caller(pid int, path, text string, before, after []call) (int, error) {
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
	calls := append([]call{noStdio}, before...)
	calls = append(calls,
		call{unix.SYS_CONNECT, uintptr(fd), pinned(&pins, addr), unsafe.Sizeof(*addr)},
		call{unix.SYS_WRITE, uintptr(fd), pinned(&pins, &line[0]), uintptr(len(line))},
		call{unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0})
	for _, c := range after {
		if c.number == unix.SYS_READ {
			c.a, c.b, c.c = uintptr(fd), pinned(&pins, &line[0]), 1
		}
		calls = append(calls, c)
	}
	return clone(pid, calls...)
}

// longest is how long a process lives that nobody ends: of a test that fails,
// none stays behind.
const longest = 60 // seconds

// clone makes a process that makes the calls in their order and then waits to
// be killed; it ends at a call that fails. What the calls point to is pinned.
func clone(pid int, calls ...call) (int, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	args := &cloneArgs{exitSignal: uint64(unix.SIGCHLD)}
	if pid != 0 {
		tid := int32(pid)
		args.setTID, args.setTIDSize = uint64(pinned(&pins, &tid)), 1
	}
	end := &unix.Timespec{Sec: longest}
	pins.Pin(end)
	got, errno := cloneAndCall(args, calls, end)
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
func cloneAndCall(args *cloneArgs, calls []call, end *unix.Timespec) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0) //nolint:gosec // the kernel reads it
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	for i := 0; i < len(calls); i++ {
		made, _, errno := syscall.RawSyscall(calls[i].number, calls[i].a, calls[i].b, calls[i].c)
		if errno != 0 {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
		}
		if calls[i].number == unix.SYS_CLONE && made != 0 {
			break // what follows is the child's
		}
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(end)), 0, 0, 0) //nolint:gosec // as above
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
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
