//go:build linux

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// commitSteps are the system calls that a commit is made of, in their order.
var commitSteps = []string{"create", "write", "fsync", "rename", "fsyncdir"}

// How a step ends badly. A child is told by name.
const (
	killedBefore = "killed before it"
	killedAfter  = "killed after it"
	killedPart   = "killed with a part of it written"
	notDone      = "fails"
	doneAfterAll = "is done and reported as failed"
	allFail      = "fails, and so does all after it"
	doneAllFail  = "is done and reported as failed, and all after it fails"
	cutShort     = "writes a part and fails"
)

// harm is a disk on which one step of one commit ends badly.
type harm struct {
	op  string
	how string
	at  int // which occurrence of op, from 1

	mu   sync.Mutex
	seen int
	hit  bool
}

func (h *harm) disk() durable.Disk {
	return durable.Disk{Hook: func(s durable.Step, do func() error) error {
		h.mu.Lock()
		if s.Op == h.op {
			h.seen++
		}
		now := s.Op == h.op && h.seen == h.at && !h.hit
		h.hit = h.hit || now
		hit := h.hit
		h.mu.Unlock()
		switch {
		case now && h.how == killedBefore:
			die()
		case now && h.how == killedAfter:
			if err := do(); err != nil {
				return err
			}
			die()
		case now && h.how == killedPart:
			if err := limited(s.Path, do); errors.Is(err, errImpossible) {
				return err
			}
			die()
		case now && h.how == cutShort:
			return limited(s.Path, do)
		case now && (h.how == doneAfterAll || h.how == doneAllFail):
			_ = do()
			return unix.EIO
		case now && h.how == notDone:
			return unix.EIO
		case hit && (h.how == allFail || h.how == doneAllFail):
			return unix.EIO
		}
		return do()
	}}
}

func die() {
	_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
	select {}
}

// limited lets the kernel cut a write short: files of this process may become
// so long, and no longer.
func limited(path string, do func() error) error {
	const part = 50 // bytes; no state is shorter
	signal.Ignore(syscall.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: part, Max: was.Max}); err != nil {
		return err
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &was) }()
	err := do()
	if st, e := os.Stat(path); e != nil || st.Size() != part || !errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: the kernel did not cut it short: %w", errImpossible, errors.Join(err, e))
	}
	return err
}

// child runs this binary again and returns what it said, whether it was killed
// or not.
func child(t testing.TB, role string, args ...string) (said string, killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a child that goes on and on
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	b, err := io.ReadAll(out)
	must(t, err)
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		killed = ok && status.Signaled() && status.Signal() == unix.SIGKILL
	}
	if err != nil && !killed || ctx.Err() != nil {
		t.Fatalf("%s %q: %v", role, args, err)
	}
	return string(b), killed
}

// storm has customers at work all at once until it is killed at a step of a
// commit. Args: directory, step, how, which.
func storm(args []string) error {
	at, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	h := &harm{op: args[1], how: args[2], at: at}
	dir, err := h.disk().OpenDir(args[0])
	if err != nil {
		return err
	}
	l, err := ledger.Open(dir, ledger.Config{BootID: thisBoot})
	if err != nil {
		return err
	}
	errs := make(chan error)
	for n := range 4 {
		go func() { errs <- (&customer{l: l, n: n, out: os.Stdout}).work(longPast(l)) }()
	}
	return <-errs // if one finds something wrong, or the end does not come
}

// longPast tells that the end should have come.
func longPast(l *ledger.Ledger) func() bool {
	return func() bool { return l.Stats().Commits > 2000 }
}

// work goes on and on.
func (c *customer) work(enough func() bool) error {
	for generation := uint64(0); !enough(); generation++ {
		if err := c.register(generation); err != nil {
			return err
		}
		for range 2 {
			token, err := c.mint()
			if err == nil {
				_, err = c.mint() // for the next generation to end
			}
			if err == nil {
				err = c.consume(token)
			}
			if err != nil {
				return err
			}
		}
		if generation%3 == 2 {
			if err := c.prune(); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestKilledAtAnyStepOfACommitNothingIsGoodTwiceOrLost(t *testing.T) {
	times := chosen(300, 20, 2)
	for _, step := range commitSteps {
		for _, how := range []string{killedBefore, killedAfter, killedPart} {
			if how == killedPart && step != "write" {
				continue
			}
			t.Run(step+", "+how, func(t *testing.T) {
				t.Parallel()
				for range times {
					path := memory(t)
					said, killed := child(t, "storm", path, step, how, strconv.Itoa(2+rand.IntN(40)))
					if !killed {
						t.Fatalf("the child ended by itself")
					}
					all := accounts(t, strings.NewReader(said))
					if len(all) == 0 {
						t.Fatal("killed before anything was asked")
					}
					l := open(t, path, ledger.Config{})
					if names := tempsIn(t, path); len(names) > 0 {
						t.Errorf("%q are left", names)
					}
					settle(t, l, all)
					stop(t, l)
				}
			})
		}
	}
}

// spend consumes one token and tells the answer. Args: directory, step, how,
// session id, token, and whether to ask again.
func spend(args []string) error {
	h := &harm{op: args[1], how: args[2], at: 1}
	dir, err := h.disk().OpenDir(args[0])
	if err != nil {
		return err
	}
	l, err := ledger.Open(dir, ledger.Config{BootID: thisBoot})
	if err != nil {
		return err
	}
	for range 2 {
		_, err := l.Consume(never, secret.New(args[3]), 0, secret.New(args[4]))
		fmt.Println(code(err))
		if args[5] != "again" {
			break
		}
	}
	if err := l.Close(); !errors.Is(err, ledger.ErrUnavailable) { // which says no more than the answers did
		return err
	}
	return nil
}

// code is the word that a client is told.
func code(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ledger.ErrTokenReplay):
		return "TOKEN_REPLAY"
	case errors.Is(err, errImpossible):
		return err.Error()
	case errors.Is(err, ledger.ErrUnavailable):
		return "STATE_UNAVAILABLE"
	default:
		return err.Error()
	}
}
