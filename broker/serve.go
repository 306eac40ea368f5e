//go:build linux

package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/procfs"
	"github.com/spendonce/spendonce/internal/socketplace"
	"github.com/spendonce/spendonce/peercred"
)

// Server is a broker that has its state, its locks and its socket.
type Server struct {
	cfg      Config
	proc     *procfs.FS
	prover   *peercred.Prover
	ledger   *ledger.Ledger
	anchors  *anchors
	audit    *auditLog
	history  *history
	state    *durable.Dir
	place    *socketplace.Place
	listener *peercred.Listener
	control  *peercred.Listener // nil if its path would be too long

	since  time.Time
	ending chan struct{} // closed by Close
	ended  chan struct{} // closed when Close has given all back

	accepting sync.WaitGroup
	open      sync.WaitGroup // connections
	pruning   sync.WaitGroup

	mu     sync.Mutex
	closed bool // accepting and pruning are not added to any more
}

// Serve answers until ctx ends; then it takes no further connection, lets
// those that are open end, each within its deadline, finishes the running
// commit, and returns nil. It may be called once, and closes the server.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.stopListening)
	defer stop()
	if s.control != nil {
		s.while(&s.accepting, func() {
			door := door{s.control, newGate(controlConnections, controlConnections), s.serveControl, s.refuseControl}
			if err := s.accept(ctx, door); err != nil {
				s.cfg.Warn(fmt.Sprintf("'lease status' and 'lease why' are not answered any more: %v", err))
			}
		})
	}
	failed := make(chan error, 1)
	if s.while(&s.accepting, func() {
		failed <- s.accept(ctx, door{s.listener, newGate(s.cfg.MaxConnections, s.cfg.MaxPerProcess), s.serve, s.refuse})
	}) {
		err := <-failed
		return errors.Join(err, s.Close())
	}
	return s.Close()
}

// while runs f in a goroutine that Close waits for, unless it waits already.
func (s *Server) while(group *sync.WaitGroup, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		group.Go(f)
	}
	return !s.closed
}

func (s *Server) stopListening() {
	for _, l := range []*peercred.Listener{s.listener, s.control} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// door is a listener with what is done with those who come.
type door struct {
	*peercred.Listener
	gate   *gate
	serve  func(*peercred.Conn, time.Time)
	refuse func(*peercred.Conn, time.Time, error) // must not wait
}

// accept hands every connection to a goroutine of its own, as long as there is
// room for it.
func (s *Server) accept(ctx context.Context, at door) error {
	for pause := time.Duration(0); ; {
		c, err := at.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		case noDescriptor(err), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			// The connection stays in the queue until a descriptor is free.
			if pause == 0 {
				s.cfg.Warn(fmt.Sprintf("no further connection can be taken for now: %v", err))
			}
			pause = min(max(2*pause, 5*time.Millisecond), 200*time.Millisecond)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		case errors.Is(err, unix.ECONNABORTED):
			continue
		default:
			return fmt.Errorf("taking a connection: %w", err)
		}
		pause = 0
		accepted := time.Now()
		pid := c.Peer().PID
		if err := at.gate.enter(pid); err != nil {
			at.refuse(c, accepted, err)
			_ = c.Close()
			continue
		}
		s.open.Go(func() {
			defer at.gate.leave(pid)
			at.serve(c, accepted)
		})
	}
}

func noDescriptor(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// gate counts the connections that are open, in all and of each process.
type gate struct {
	most, mostOfOne int

	mu    sync.Mutex
	total int
	of    map[int]int // by pid
}

func newGate(most, mostOfOne int) *gate {
	return &gate{most: most, mostOfOne: mostOfOne, of: map[int]int{}}
}

// enter counts a connection, or says why there is no room for it.
func (g *gate) enter(pid int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.of[pid] >= g.mostOfOne:
		return fmt.Errorf("%d connections of this process are open", g.of[pid])
	case g.total >= g.most:
		return fmt.Errorf("%d connections are open", g.total)
	}
	g.total++
	g.of[pid]++
	return nil
}

func (g *gate) leave(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.of[pid]--; g.of[pid] == 0 {
		delete(g.of, pid)
	}
}

// exited drops the session of an anchor that is gone, in the background and
// until it works: nobody is waiting, and till then it is unknown anyway.
func (s *Server) exited(key ledger.Anchor, gone *peercred.Anchor) {
	s.while(&s.pruning, func() {
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
			err := s.prune(key, gone)
			if err == nil || errors.Is(err, ledger.ErrClosed) {
				return
			}
			select {
			case <-time.After(pause):
			case <-s.ending:
				return
			}
		}
	})
}

// prune drops the session of an anchor that has exited. A process that has
// got its pid within the same tick of the clock, and a session of its own
// since, is left alone: a session that was found while the map still held the
// one that is gone cannot be the successor's.
func (s *Server) prune(key ledger.Anchor, gone *peercred.Anchor) error {
	session, found := s.ledger.SessionOf(key)
	if s.anchors.find(key) != gone {
		return nil
	}
	if found {
		if err := s.ledger.Prune(session.ID); err != nil {
			return err
		}
	}
	s.anchors.forget(key, gone)
	return nil
}

// Close gives everything back, at any time: no further connection is taken,
// those that are open end, each within its deadline, and the running commit
// does. A socket that this server bound is removed, if it still is the one.
// When it returns nothing of the server runs, also if another call did it. The
// error is [ErrNotCommitted] if the last change may not be on the disk, which
// nobody was told that it is.
func (s *Server) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	if already {
		<-s.ended
		return nil
	}
	defer close(s.ended)
	close(s.ending)
	s.stopListening()
	s.accepting.Wait()
	s.open.Wait()
	s.pruning.Wait()
	err := s.ledger.Close()
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotCommitted, err)
	}
	s.anchors.close()
	s.audit.close()
	s.place.Close()
	s.state.Close()
	s.proc.Close()
	return err
}
