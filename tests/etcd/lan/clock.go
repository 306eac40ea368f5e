//go:build linux

package lan

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// SetClock makes the wall clock of programs that start on the host from now on
// go ahead of the machine's by the whole seconds in d, or behind it.
//
// The kernel has one wall clock for all, and no namespace for it. So the
// program is stopped before its first instruction, and the code that it will
// ask for the time (the vDSO, which the kernel puts into every process) is
// written over by one that adds to the answer. That holds for programs in Go
// and in C alike, but not for times that the kernel itself notes, of files for
// one, nor for what the program starts. Timers and timeouts run on another
// clock, as on a machine whose clock is wrong.
func (h *Host) SetClock(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skew = int64(d / time.Second)
}

func (h *Host) clock() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.skew
}

// startSkewed starts a program whose clock is wrong by so many seconds. The
// calling thread becomes its parent, and for a moment its tracer.
func startSkewed(cmd *exec.Cmd, seconds int64) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("setting a clock: not known how on %s", runtime.GOARCH)
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	err := bendClock(pid, seconds)
	if err == nil {
		err = unix.PtraceDetach(pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("setting a clock: %w", err)
	}
	return nil
}

func bendClock(pid int, seconds int64) error {
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return errors.New("the program did not wait")
	}
	base, err := vdsoBase(pid)
	if err != nil {
		return err
	}
	at, room, err := clockCode(pid, base)
	if err != nil {
		return err
	}
	code := skewedClock(seconds)
	if len(code) > room {
		return fmt.Errorf("the kernel's own code is %d bytes long, ours %d", room, len(code))
	}
	_, err = unix.PtracePokeText(pid, uintptr(at), code)
	return err
}

// vdsoBase is where the vDSO lies in the process.
func vdsoBase(pid int) (uint64, error) {
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	const pair, baseOfVDSO = 16, 33 // AT_SYSINFO_EHDR
	for ; len(auxv) >= pair; auxv = auxv[pair:] {
		if binary.NativeEndian.Uint64(auxv) == baseOfVDSO {
			return binary.NativeEndian.Uint64(auxv[8:]), nil
		}
	}
	return 0, errors.New("the process has no vDSO")
}

// clockCode is where the process asks for the time, and how long that code is.
func clockCode(pid int, base uint64) (at uint64, size int, err error) {
	image := make([]byte, 2*os.Getpagesize())
	if _, err := unix.PtracePeekText(pid, uintptr(base), image); err != nil {
		return 0, 0, err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return base + s.Value, int(s.Size), nil
		}
	}
	return 0, 0, errors.New("the vDSO has no clock")
}

// skewedClock is clock_gettime(edi, rsi) for amd64: ask the kernel, and if the
// clock was CLOCK_REALTIME (0), add to the seconds at rsi.
func skewedClock(seconds int64) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 13, // jne over the next two
		0x48, 0xb9, // movabs rcx, seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(seconds))
	return append(code,
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3) // ret
}
