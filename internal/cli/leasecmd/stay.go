//go:build linux

package leasecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lease"
)

// passed are the signals that the command gets from us. SIGINT and SIGQUIT
// come to both of us from a terminal.
var passed = []os.Signal{
	unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR2, unix.SIGALRM, unix.SIGCONT,
}

// stayWith starts the command as a child, and is its anchor until it ends.
func (r *runner) stayWith(ctx context.Context, program string) error {
	file, err := r.openGeneration()
	if err != nil {
		return err
	}
	defer file.close()
	if err := file.write(r.session.Generation); err != nil {
		return err
	}
	arrived := make(chan os.Signal, 16)
	signal.Notify(arrived, append([]os.Signal{unix.SIGUSR1}, passed...)...)
	defer signal.Stop(arrived)
	child, err := os.StartProcess(program, r.args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Env:   r.environment(lease.GenerationFileVariable + "=" + file.path()),
	})
	if err != nil {
		return &streams.Exit{Code: exitCannotRun, Err: fmt.Errorf("running %s: %w", r.args[0], err)}
	}
	ended := make(chan unix.WaitStatus, 1)
	go func() { ended <- reap(child.Pid) }()
	for {
		select {
		case status := <-ended:
			return endLike(status)
		case sig := <-arrived:
			n, _ := sig.(syscall.Signal)
			switch {
			case sig == unix.SIGUSR1:
				r.raise(ctx, file)
			case (sig == unix.SIGINT || sig == unix.SIGQUIT) && inForeground():
			default:
				_ = unix.Kill(child.Pid, n)
			}
		}
	}
}

// reap waits for the child, and for the descendants that became our children.
func reap(child int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if pid == child || err != nil && !errors.Is(err, unix.EINTR) {
			return status
		}
	}
}

func endLike(status unix.WaitStatus) error {
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if code == 0 {
		return nil
	}
	return &streams.Exit{Code: code}
}

// inForeground reports whether the terminal sends its signals to us and the
// command alike.
func inForeground() bool {
	in := int(os.Stdin.Fd())
	if !term.IsTerminal(in) {
		return false
	}
	group, err := unix.IoctlGetInt(in, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// raise registers the next generation and tells the command through the file.
func (r *runner) raise(ctx context.Context, file *generationFile) {
	next, err := r.client.RegisterAnchor(ctx, r.session.Generation+1)
	if err != nil {
		r.app.Streams.Warn(fmt.Sprintf("the generation stays at %d: %v", r.session.Generation, err))
		return
	}
	r.session = next
	if err := file.write(next.Generation); err != nil {
		r.app.Streams.Warn(fmt.Sprintf("the generation is %d now, but could not be written down: %v", next.Generation, err))
	}
}

// generationFile tells the command's processes the current generation. It is
// no secret and proves nothing: the broker judges.
type generationFile struct {
	dir  *durable.Dir
	name string
}

func (r *runner) openGeneration() (*generationFile, error) {
	dir, err := durable.Disk{}.OpenDir(filepath.Dir(r.socket))
	if err != nil {
		return nil, err
	}
	return &generationFile{dir, "generation." + strconv.Itoa(os.Getpid())}, nil
}

func (f *generationFile) path() string { return f.dir.Join(f.name) }

func (f *generationFile) write(generation uint64) error {
	return f.dir.Replace(f.name, []byte(strconv.FormatUint(generation, 10)+"\n"))
}

func (f *generationFile) close() {
	_ = f.dir.Remove(f.name)
	f.dir.Close()
}
