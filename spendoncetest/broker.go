//go:build linux

package spendoncetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/lease"
)

// BrokerConfig says what a temporary broker bounds. The zero value is the
// broker as users have it; tests reach a limit by making it small.
type BrokerConfig struct {
	MaxConnections int           // at once, over all processes [512]
	MaxPerProcess  int           // at once, of one process [256]
	Deadline       time.Duration // from accept until a request is whole and admitted [1 s]
	AnswerBound    time.Duration // for writing an answer [1 s]

	MaxSessions int   // with living anchors [1024]
	MaxTokens   int   // pending, in all sessions together [256]
	MaxState    int   // bytes of the state file [4 MiB]
	AuditLimit  int64 // bytes of the audit log before it is rotated [4 MiB]

	// Warn is told what an operator would read; nil: nobody. It must not
	// wait.
	Warn func(text string)
}

// Broker is a lease broker in this process, with a socket and a state
// directory of its own. Its methods may be called from any goroutine.
//
// It is the real broker, with real files: only the process is not its own. So
// it cannot be killed, only stopped; for kill -9 run "spendonce lease serve".
// This process is its peer like any other: it can register itself as an
// anchor, and that session lasts until the process ends or the broker is
// closed. Children that this process starts are its descendants.
type Broker struct {
	cfg broker.Config
	dir string

	turn   chan struct{}      // taken by who starts or stops it, for what stands below
	end    context.CancelFunc // nil: stopped
	served chan error
	closed bool
}

// ErrBrokerClosed says that a closed broker was to start again.
var ErrBrokerClosed = errors.New("the temporary broker is closed")

// longestSocketName is the longer name of the broker's two sockets.
const longestSocketName = "/control.sock"

// StartBroker makes a private temporary directory and runs a broker in it,
// which accepts requests when StartBroker returns. Whoever starts it closes
// it. Where the directory for temporary files has too long a name for a socket
// in it, /tmp serves.
func StartBroker(cfg BrokerConfig) (*Broker, error) {
	const pattern, filledIn = "broker-*", len("broker-4294967295")
	parent, err := filepath.Abs(os.TempDir())
	if err != nil || len(parent)+1+filledIn+len(longestSocketName) > lease.MaxSocketPath {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return nil, fmt.Errorf("making a directory for a temporary broker: %w", err)
	}
	b := &Broker{dir: dir, turn: make(chan struct{}, 1), cfg: broker.Config{
		Socket: filepath.Join(dir, "broker.sock"), StateDir: filepath.Join(dir, "state"),
		MaxConnections: cfg.MaxConnections, MaxPerProcess: cfg.MaxPerProcess,
		Deadline: cfg.Deadline, AnswerBound: cfg.AnswerBound,
		MaxSessions: cfg.MaxSessions, MaxTokens: cfg.MaxTokens, MaxState: cfg.MaxState,
		AuditLimit: cfg.AuditLimit, Warn: cfg.Warn,
	}}
	if err := b.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, nil
}

// Socket is the path that the broker listens at, before and after restarts.
func (b *Broker) Socket() string { return b.cfg.Socket }

// StateDir is the directory of broker-state.json and the audit log.
func (b *Broker) StateDir() string { return b.cfg.StateDir }

// Client returns a client of this broker.
func (b *Broker) Client() *lease.Client { return &lease.Client{Socket: b.cfg.Socket} }

// Environment is what a child process needs in its environment to find this
// broker, as "NAME=value".
func (b *Broker) Environment() []string { return []string{lease.SocketVariable + "=" + b.cfg.Socket} }

// Status is what the broker says of itself, as "spendonce lease status" shows
// it. While it is stopped that is [lease.ErrNoBroker].
func (b *Broker) Status(ctx context.Context) (broker.Status, error) {
	return broker.QueryStatus(ctx, b.cfg.Socket)
}

// Stop ends the broker as SIGTERM does: no further connection is taken, what
// is open is answered, and the running commit ends. What it knew stays on the
// disk. Stopping a stopped broker does nothing.
func (b *Broker) Stop() error {
	defer b.take()()
	return b.stop()
}

func (b *Broker) stop() error {
	if b.end == nil {
		return nil
	}
	b.end()
	b.end = nil
	if err := <-b.served; err != nil {
		return fmt.Errorf("ending a temporary broker: %w", err)
	}
	return nil
}

// Start runs the broker again, on the same socket and what is on the disk. It
// does nothing if the broker runs, and fails with [ErrBrokerClosed] after
// Close.
func (b *Broker) Start() error {
	defer b.take()()
	switch {
	case b.closed:
		return ErrBrokerClosed
	case b.end != nil:
		return nil
	}
	server, err := broker.Open(b.cfg)
	if err != nil {
		return fmt.Errorf("starting a temporary broker: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	b.end, b.served = end, served
	go func() { served <- server.Serve(ctx) }()
	return nil
}

// Close stops the broker for good and removes its directory. Closing twice is
// harmless.
func (b *Broker) Close() error {
	defer b.take()()
	b.closed = true
	return errors.Join(b.stop(), os.RemoveAll(b.dir))
}

func (b *Broker) take() (giveBack func()) {
	b.turn <- struct{}{}
	return func() { <-b.turn }
}
