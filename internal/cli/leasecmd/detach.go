//go:build linux

package leasecmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// readyVariable says that descriptor 3 is the pipe on which a detached broker
// tells whoever started it that it accepts requests.
const readyVariable = "SPENDONCE_READY_FD"

// readyBound is how long a broker may take until it accepts requests.
const readyBound = 30 * time.Second

// detach starts a broker in a session of its own and returns when it accepts
// requests, or with its error. Nothing of ours goes along but where its files
// are: no environment, no directory, no terminal, no descriptor.
func (a *App) detach(ctx context.Context, socket, state string) error {
	program, err := self()
	if err != nil {
		return err
	}
	if err := keepDescriptors(); err != nil {
		return err
	}
	ready, told, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting a broker: %w", err)
	}
	defer ready.Close()
	complaints, complain, err := os.Pipe()
	if err != nil {
		_ = told.Close()
		return fmt.Errorf("starting a broker: %w", err)
	}
	defer complaints.Close()
	cmd := exec.Command(program, "lease", "serve", "--socket", socket, "--state-dir", state) //nolint:noctx // it outlives us
	cmd.Dir = "/"
	cmd.Env = []string{readyVariable + "=3", "PATH=/usr/bin:/bin"}
	cmd.ExtraFiles = []*os.File{told}
	cmd.Stderr = complain
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = told.Close()
	_ = complain.Close()
	if err != nil {
		return fmt.Errorf("starting a broker: %w", err)
	}
	pid := cmd.Process.Pid
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	_ = ready.SetReadDeadline(time.Now().Add(readyBound))
	line, readErr := bufio.NewReader(ready).ReadString('\n')
	if line == "ready\n" && stop() {
		if !a.Streams.Quiet {
			fmt.Fprintf(a.Streams.Err, "spendonce: the broker, process %d, listens at %s\n", pid, socket)
		}
		return cmd.Process.Release()
	}
	late := errors.Is(readErr, os.ErrDeadlineExceeded)
	if late {
		_ = cmd.Process.Kill()
	}
	text, _ := io.ReadAll(complaints)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case late:
		return fmt.Errorf("the broker did not accept requests within %s, and was ended", readyBound)
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return &streams.Exit{Code: exit.ExitCode(), Err: said(text)}
	default:
		return fmt.Errorf("the broker ended before it accepted requests: %w", errors.Join(err, said(text)))
	}
}

// keepDescriptors keeps what we were started with, and know nothing of, from
// going along with a broker: a lock that a script holds, the end of a pipe that
// somebody waits for.
func keepDescriptors() error {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("looking at the open descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
