package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spendonce/spendonce/internal/cli/streams"
)

// signals lets an exchange that has begun end before the process does. The
// first SIGINT, SIGTERM or SIGHUP ends a wait at once and is deferred during
// an exchange; the second ends everything at once. SIGTSTP is deferred while
// a lock is held: a stopped holder would stand in everybody's way.
type signals struct {
	s      *streams.Streams
	cancel context.CancelCauseFunc
	in     chan os.Signal
	armed  sync.Once

	mu        sync.Mutex
	interrupt func(cancel func()) bool
	first     syscall.Signal // the signal that ended the context

	// holders hold it for reading, a stop for writing.
	stopping   sync.RWMutex
	stopWanted atomic.Bool
}

// newSignals returns a context that the first signal ends, once armed.
func newSignals(s *streams.Streams) (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(context.Background())
	return ctx, &signals{s: s, cancel: cancel, in: make(chan os.Signal, 4)}
}

// arm begins to listen. What only reads does not need it, for a signal may
// end that at any point, and listening costs a third of such a short run.
func (g *signals) arm() { g.armed.Do(g.listen) }

func (g *signals) listen() {
	// A reader that went away, or a background job that may not write to its
	// terminal, must not end or stop a process that holds a lock: writing
	// fails, or works, instead.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGTTOU)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGTSTP} {
		if !signal.Ignored(sig) { // nohup, and background jobs of a script, mean it
			signal.Notify(g.in, sig)
		}
	}
	go g.run()
}

// disarm ends the listening, and puts back what a program that takes this
// one's place would inherit: an ignored signal stays ignored in it.
func (g *signals) disarm() {
	g.armed.Do(func() {}) // never again
	signal.Stop(g.in)
	// Reset leaves what Ignore did. A signal that is listened to is not
	// ignored, and is the default in the new program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGTTOU)
}

// set says how to ask whether something must not be interrupted.
func (g *signals) set(interrupt func(cancel func()) bool) {
	g.mu.Lock()
	g.interrupt = interrupt
	g.mu.Unlock()
}

// hold keeps stops away until its result is called.
func (g *signals) hold() func() {
	g.stopping.RLock()
	return g.stopping.RUnlock
}

func (g *signals) run() {
	got := 0
	for {
		sig := <-g.in
		if sig == syscall.SIGTSTP {
			if g.stopWanted.CompareAndSwap(false, true) {
				go g.stop()
			}
			continue
		}
		n, _ := sig.(syscall.Signal)
		if got++; got > 1 {
			os.Exit(128 + int(n)) //nolint:forbidigo // now means now: nothing is left to return to
		}
		g.end(n)
	}
}

// stop stops the process as soon as it holds no lock.
func (g *signals) stop() {
	g.stopping.Lock()
	defer g.stopping.Unlock()
	g.stopWanted.Store(false)
	stopSelf()
}

func (g *signals) end(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stop := func() {
		g.first = sig
		g.cancel(streams.ErrInterrupted)
	}
	if g.interrupt == nil {
		stop()
	} else if !g.interrupt(stop) && !g.s.Quiet {
		fmt.Fprintln(g.s.Err, "spendonce: finishing the refresh that has begun; once more ends at once and may lose the session")
	}
}

// ended returns the signal that ended the context, or 0.
func (g *signals) ended() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int(g.first)
}
