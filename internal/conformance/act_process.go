//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// dialAs connects as another user, who by root's grace may pass all doors:
// the socket's own would keep anybody else out. For user 0 it just connects.
func dialAs(uid int, path string) (s sock, err error) {
	if uid == 0 {
		return dial(path, channelTime)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The kernel keeps users by thread. This one is not used again.
		runtime.LockOSThread()
		const setSecurebits, noSetuidFixup, same = 28, 1 << 2, ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setSecurebits, noSetuidFixup, 0); errno != 0 {
			s, err = -1, fmt.Errorf("%s: %w", cannotDisguise, errno)
			return
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			s, err = -1, fmt.Errorf("%s: %w", cannotDisguise, errno)
			return
		}
		s, err = dial(path, channelTime)
	}()
	<-done
	return s, err
}

const cannotDisguise = "becoming another user"

// spawn starts a child whose standard streams are a new channel to Control.
func (p *performer) spawn(o order) (int, error) {
	channel, err := greet(o.Control, "actor "+o.Name, nil)
	if err != nil {
		return 0, err
	}
	defer channel.close()
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{uintptr(channel), uintptr(channel), 2}}
	if o.Conn != "" {
		s, ok := p.conns[o.Conn]
		if !ok {
			return 0, errors.New("there is no connection " + o.Conn)
		}
		attr.Files = append(attr.Files, uintptr(s))
	}
	if o.Namespace {
		attr.Sys = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if os.Geteuid() != 0 {
			attr.Sys.Cloneflags |= syscall.CLONE_NEWUSER
			attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
			attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		}
	}
	pid, err := syscall.ForkExec(o.Argv[0], o.Argv[1:], attr)
	if err != nil {
		return 0, fmt.Errorf("starting a process: %w", err)
	}
	return pid, nil
}

func (p *performer) give(o order) error {
	s, ok := p.conns[o.Conn]
	if !ok {
		return errors.New("there is no connection " + o.Conn)
	}
	channel, err := greet(o.Control, "give "+o.Name, syscall.UnixRights(int(s)))
	if err != nil {
		return err
	}
	channel.close()
	p.drop(o.Conn)
	return nil
}

func (p *performer) take(o order) error {
	channel, err := dial(o.Control, channelTime)
	if err != nil {
		return err
	}
	defer channel.close()
	if err := channel.send([]byte("take "+o.Name), nil); err != nil {
		return fmt.Errorf("asking for a descriptor: %w", err)
	}
	s, err := channel.receiveDescriptor(channelTime)
	if err != nil {
		return err
	}
	p.conns[o.Conn] = s
	return nil
}

// greet connects to the kit, says what for, and waits until that was heard.
func greet(control, hello string, oob []byte) (sock, error) {
	channel, err := dial(control, channelTime)
	if err != nil {
		return -1, err
	}
	if err := channel.send([]byte(hello), oob); err != nil {
		channel.close()
		return -1, fmt.Errorf("greeting the kit: %w", err)
	}
	var n int
	if err := channel.receive(make([]byte, 1), 0, time.Now().Add(channelTime), &n); err != nil || n == 0 {
		channel.close()
		return -1, errors.New("the kit did not return a greeting")
	}
	// The child that gets this channel reads from it without a limit.
	return channel, channel.limit(syscall.SO_RCVTIMEO, 0)
}

func wait(pid int) error {
	var status syscall.WaitStatus
	return ignoringEINTR(func() error {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		return err
	})
}
