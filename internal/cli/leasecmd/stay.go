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
	"sync"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/cli/program"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lease"
)

// passed are the signals that the command gets from us.
var passed = []os.Signal{
	unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR2, unix.SIGALRM, unix.SIGCONT,
}

// stayWith starts the command as a child, and is its anchor until it ends.
func (r *runner) stayWith(ctx context.Context, path string) error {
	file, err := r.openGeneration()
	if err != nil {
		return err
	}
	defer file.close()
	if err := file.write(r.session.Generation); err != nil {
		return err
	}
	arrived := make(chan os.Signal, 64)
	signal.Notify(arrived, unix.SIGUSR1)
	for _, sig := range passed {
		if !signal.Ignored(sig) { // nohup means it, for the command too
			signal.Notify(arrived, sig)
		}
	}
	defer signal.Stop(arrived)
	child, err := os.StartProcess(path, r.args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Env:   r.environment(lease.GenerationFileVariable + "=" + file.path()),
	})
	if err != nil {
		var inner *os.PathError
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return program.CannotRun(r.args[0], err)
	}
	raise, stop := r.raising(ctx, file)
	defer stop()
	type end struct {
		status unix.WaitStatus
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		status, err := reap(child.Pid)
		ended <- end{status, err}
	}()
	for {
		select {
		case e := <-ended:
			if e.err != nil {
				return fmt.Errorf("waiting for %s: %w", r.args[0], e.err)
			}
			return endLike(e.status)
		case sig := <-arrived:
			switch {
			case sig == unix.SIGUSR1:
				raise()
			case (sig == unix.SIGINT || sig == unix.SIGQUIT) && fromTerminal(child.Pid):
			default:
				_ = child.Signal(sig) // by its pidfd: it may have been reaped
			}
		}
	}
}

// reap waits for the child, and for the descendants that became our children.
func reap(child int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case pid == child:
			return status, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, err
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

// fromTerminal reports whether an interrupt will have come from the terminal,
// which sends it to its foreground process group: to us and the command alike,
// as long as that has not moved to a group of its own. It is then not passed on:
// many programs take a second one for an order to drop everything. (Who sent a
// signal, Go does not tell.)
func fromTerminal(child int) bool {
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(tty)
	ours := unix.Getpgrp()
	foreground, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	if err != nil || foreground != ours {
		return false
	}
	its, err := unix.Getpgid(child)
	return err == nil && its == ours
}

// raising returns how to raise the generation by one, in the background and one
// after the other, for a broker that is slow or stopped must not keep signals
// from the command; and how to end that.
func (r *runner) raising(ctx context.Context, file *generationFile) (raise, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	wanted := make(chan struct{}, 64)
	var work sync.WaitGroup
	work.Go(func() {
		for range wanted {
			r.raise(ctx, file)
		}
	})
	raise = func() {
		select {
		case wanted <- struct{}{}:
		default:
		}
	}
	return raise, func() {
		cancel()
		close(wanted)
		work.Wait()
	}
}

// raise registers the next generation and tells the command through the file.
func (r *runner) raise(ctx context.Context, file *generationFile) {
	next, err := r.client.RegisterAnchor(ctx, r.session.Generation+1)
	switch {
	case ctx.Err() != nil: // the command has ended, and the session with it
		return
	case err != nil:
		r.app.Streams.Warn(fmt.Sprintf("the generation stays at %d: %v", r.session.Generation, err))
		return
	case !next.ID.Equal(r.session.ID):
		r.app.Streams.Warn("the broker had lost the session and made another one: what runs here does not belong to it")
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
