//go:build crash && linux

package peercred_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64

	setTID, setTIDSize, cgroup uint64
}

// rawCall is a system call for a new process, which can do nothing else.
type rawCall struct{ number, a, b, c uintptr }

// longest is how long a process lives that nobody ends.
const longest = 60 // seconds

// rawClone makes a process with the given pid, or any with 0, that makes the
// calls in their order and then waits to be killed, but not for ever. It costs microseconds: the
// process can have come and gone within a clock tick. Pointers in the calls
// must be kept alive by the caller.
func rawClone(pid int, calls []rawCall) (int, error) {
	tid := new(int32)
	*tid = int32(pid)
	args := &cloneArgs{exitSignal: uint64(unix.SIGCHLD)}
	if pid != 0 {
		args.setTID, args.setTIDSize = uint64(uintptr(unsafe.Pointer(tid))), 1
	}
	end := &unix.Timespec{Sec: longest}
	got, errno := forkAndCall(args, calls, end)
	runtime.KeepAlive(tid)
	if errno != 0 {
		return 0, fmt.Errorf("clone3 with pid %d: %w", pid, errno)
	}
	return int(got), nil
}

// forkAndCall has a child that must not touch the runtime: no growth of the
// stack, no race detector, no allocation.
//
//go:norace
//go:nosplit
func forkAndCall(args *cloneArgs, calls []rawCall, end *unix.Timespec) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
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
	_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(end)), 0, 0, 0)
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// noStdio lets go of what go test waits for.
var noStdio = rawCall{unix.SYS_CLOSE_RANGE, 0, 2, 0}

// cloneCaller makes a process with the given pid, or any, that connects to
// path and writes a line. Those of first come before.
func cloneCaller(pid int, path string, first ...rawCall) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) // ours; the new process has its own
	addr := &unix.RawSockaddrUnix{Family: unix.AF_UNIX}
	for i := range len(path) {
		addr.Path[i] = int8(path[i])
	}
	line := []byte("x\n")
	got, err := rawClone(pid, append(append([]rawCall{noStdio}, first...), []rawCall{
		{unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(addr)), unsafe.Sizeof(*addr)},
		{unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&line[0])), uintptr(len(line))},
		{unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0},
		// Until the test hangs up, so that no process stays behind.
		{unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&line[0])), 1},
		{unix.SYS_EXIT_GROUP, 0, 0, 0},
	}...))
	runtime.KeepAlive(addr)
	runtime.KeepAlive(line)
	return got, err
}

// clonePair makes a process that only waits, and has a child that calls.
func clonePair(path string) (int, error) {
	return cloneCaller(0, path, rawCall{unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0})
}

// cloneIdle makes a process that only waits.
func cloneIdle(pid int) (int, error) { return rawClone(pid, []rawCall{noStdio}) }

// cloneMember makes a member of the family.
func cloneMember(pid int, line string) (int, error) {
	path := cString("/proc/self/exe")
	var env []*byte
	for _, v := range append(environment("kin"), lineVariable+"="+line) {
		env = append(env, cString(v))
	}
	env = append(env, nil)
	argv := []*byte{cString("kin"), nil}
	got, err := rawClone(pid, []rawCall{
		{unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0]))},
	})
	runtime.KeepAlive(path)
	runtime.KeepAlive(argv)
	runtime.KeepAlive(env)
	return got, err
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

// more are the orders that only tests for root give.
func (*kinsman) more(order, arg string) (string, error) {
	first, path, _ := strings.Cut(arg, " ")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return "", err
	}
	switch order {
	case "clone": // a member with this pid
		pid, err = cloneMember(pid, os.Getenv(lineVariable))
	case "clone-idle":
		pid, err = cloneIdle(pid)
	case "clone-caller": // one with this pid that calls at a path
		pid, err = cloneCaller(pid, path)
	case "clone-pair":
		pid, err = clonePair(path)
	default:
		err = errors.New("no such order: " + order)
	}
	return strconv.Itoa(pid), err
}
