// Package streams is what commands are run with: where they read and write,
// how they end, and how a wait is shown to a person.
package streams

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Streams are a command's input and outputs. Results go to Out, all talk to
// Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Quiet    bool // no warnings
	Verbose  bool
	Terminal bool // Err is a terminal that wants progress
}

// Standard returns the process's own streams.
func Standard() *Streams {
	return &Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb",
	}
}

// Warn says something the user should know though the command goes on.
func (s *Streams) Warn(text string) {
	if !s.Quiet {
		fmt.Fprintf(s.Err, "spendonce: warning: %s\n", Printable(text))
	}
}

// Exit is an error with the exit code it stands for. An Err of nil ends
// silently.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// Usage is an error of how a command was called.
func Usage(format string, args ...any) error {
	return &Exit{2, fmt.Errorf(format, args...)}
}

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// Progress shows, on a terminal only, what has been waited for longer than
// half a second, and for how long. It never makes its caller wait: a terminal
// that was told to pause must not pause a process that holds a lock.
type Progress struct {
	s     *Streams
	mu    sync.Mutex
	stage string
	since time.Time
	tick  *time.Timer

	writing sync.Mutex // held while the terminal is written to
	shown   bool
}

// NewProgress returns a Progress that writes to s.Err.
func NewProgress(s *Streams) *Progress { return &Progress{s: s} }

const patience = 500 * time.Millisecond

// Stage begins a wait; an empty text ends it.
func (p *Progress) Stage(text string) {
	if !p.s.Terminal || p.s.Quiet {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.since = text, time.Now()
	switch {
	case p.tick == nil:
		p.tick = time.AfterFunc(patience, p.show)
	case text == "":
		p.tick.Reset(0) // takes the line away
	default:
		p.tick.Reset(patience)
	}
}

func (p *Progress) show() {
	p.mu.Lock()
	stage, waited := p.stage, time.Since(p.since)
	if stage != "" {
		p.tick.Reset(time.Second)
	}
	p.mu.Unlock()
	if !p.writing.TryLock() {
		return
	}
	defer p.writing.Unlock()
	switch {
	case stage != "":
		fmt.Fprintf(p.s.Err, "\r\x1b[Kspendonce: %s (%s)", stage, waited.Round(time.Second))
		p.shown = true
	case p.shown:
		fmt.Fprint(p.s.Err, "\r\x1b[K")
		p.shown = false
	}
}

// End takes the line away before a result is printed, if the terminal lets
// it.
func (p *Progress) End() {
	if !p.s.Terminal || p.s.Quiet {
		return
	}
	p.Stage("")
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.writing.Lock() // a line that is being taken away
		defer p.writing.Unlock()
		if p.shown {
			fmt.Fprint(p.s.Err, "\r\x1b[K")
			p.shown = false
		}
	}()
	select {
	case <-done:
	case <-time.After(100 * time.Millisecond):
	}
}
