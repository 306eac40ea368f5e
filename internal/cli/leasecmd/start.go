//go:build linux

package leasecmd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/lease"
)

const (
	// startPatience bounds the wait for a broker that somebody else is
	// starting.
	startPatience = 10 * time.Second
	// startAgain is how long that one may take before another start is tried:
	// who was starting it may have been interrupted.
	startAgain = 500 * time.Millisecond
)

// register makes this process the anchor, starting a broker if it has to. Of
// several that start one together, one broker stays, and all find it.
func (r *runner) register(ctx context.Context, generation uint64) error {
	var err error
	if r.session, err = r.client.RegisterAnchor(ctx, generation); err == nil || r.noStart || !errors.Is(err, lease.ErrNoBroker) {
		return err
	}
	progress := streams.NewProgress(r.app.Streams)
	defer progress.End()
	progress.Stage("starting a broker")
	end := time.Now().Add(startPatience)
	var again time.Time
	var started error
	for {
		if time.Now().After(again) {
			var running bool
			running, started = r.start(ctx)
			if started != nil && !running {
				return fmt.Errorf("no broker is running, and none could be started: %w", started)
			}
			again = time.Now().Add(startAgain)
		}
		r.session, err = r.client.RegisterAnchor(ctx, generation)
		switch {
		case err == nil || !errors.Is(err, lease.ErrNoBroker):
			return err
		case time.Now().After(end) && started != nil:
			return fmt.Errorf("nobody answers at %s: %w", r.socket, started)
		case time.Now().After(end):
			return fmt.Errorf("a broker was started and does not answer: %w", err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// start has another process start the broker and end, so that the broker is
// not a child of what this process becomes. Running says that the error is that
// another broker has our state directory or socket: it may be about to answer.
func (r *runner) start(ctx context.Context) (running bool, err error) {
	program, err := self()
	if err != nil {
		return false, err
	}
	state, err := r.app.statePath()
	if err != nil {
		return false, err
	}
	adopts, err := adopting()
	if err != nil {
		return false, err
	}
	if adopts {
		// We are an anchor that became another one by exec, and would be given
		// the broker for a child.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			return false, fmt.Errorf("keeping the broker from becoming a child: %w", err)
		}
		defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }()
	}
	out, err := exec.CommandContext(ctx, program, "lease", "serve", "--detach", "--socket", r.socket, "--state-dir", state).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode() == exitRunning, said(out)
	}
	return false, err
}

// adopting reports whether orphans below this process become its children.
func adopting() (bool, error) {
	on := new(int32)
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, reflect.ValueOf(on).Pointer(), 0, 0, 0); err != nil {
		return false, fmt.Errorf("asking who adopts orphans: %w", err)
	}
	runtime.KeepAlive(on)
	return *on != 0, nil
}

// said is the error that another process of this program ended with.
func said(stderr []byte) error {
	return errors.New(strings.TrimPrefix(strings.TrimSpace(string(stderr)), "spendonce: "))
}
