//go:build linux

package broker

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/procfs"
	"github.com/spendonce/spendonce/internal/socketplace"
	"github.com/spendonce/spendonce/lease"
	"github.com/spendonce/spendonce/peercred"
)

// Open does all that must be right before the first request: it judges
// /proc and both directories, takes the state's lock and the socket's, reads
// the state, drops what did not survive and commits that, and only then binds
// the socket, 0600 from its first moment.
//
// An error is [ErrUnsafe], [ErrRunning], [ErrNotCommitted], one of
// [lease.ErrSocketPath], or of the system; then nothing is held and no socket
// was made.
func Open(cfg Config) (_ *Server, err error) {
	cfg = cfg.withDefaults()
	if err := checkSocket(cfg.Socket); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, since: time.Now().UTC().Truncate(time.Second), ending: make(chan struct{}), ended: make(chan struct{})}
	s.history = newHistory()
	s.anchors = newAnchors()
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	if s.proc, err = procfs.Open(); err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	undo = append(undo, s.proc.Close)
	boot, err := s.proc.BootID()
	if err != nil {
		return nil, err
	}
	s.prover = peercred.NewProver(s.proc)

	if s.state, err = openPlace(cfg.StateDir, 0o022); err != nil {
		return nil, err
	}
	undo = append(undo, s.state.Close)
	undo = append(undo, s.anchors.close)
	var adopting error
	s.ledger, err = ledger.Open(s.state, ledger.Config{
		BootID: boot,
		Alive: func(session ledger.Session) bool {
			if s.ledger != nil { // every session's anchor is kept
				return s.anchors.alive(session.Anchor)
			}
			alive, err := s.adopt(session.Anchor)
			adopting = errors.Join(adopting, err)
			return alive
		},
		MaxSessions: cfg.MaxSessions, MaxTokens: cfg.MaxTokens, MaxBytes: cfg.MaxState,
	})
	if err != nil {
		return nil, openingLedger(cfg, err)
	}
	undo = append(undo, func() { _ = s.ledger.Close() })
	if adopting != nil {
		return nil, adopting
	}
	s.anchors.start(s.exited)

	if s.place, err = takeSocketPlace(cfg.Socket); err != nil {
		return nil, err
	}
	undo = append(undo, s.place.Close)
	undo = append(undo, s.stopListening)
	if cfg.Activated != nil {
		s.listener, err = activated(cfg)
	} else {
		s.listener, err = s.listen(filepath.Base(cfg.Socket))
	}
	if err != nil {
		return nil, err
	}
	if control := controlPath(cfg.Socket); lease.CheckSocketPath(control) != nil {
		cfg.Warn(fmt.Sprintf("'lease status' and 'lease why' will not be answered: the path of their socket, %s, is too long for one", control))
	} else if s.control, err = s.listen(filepath.Base(control)); err != nil {
		return nil, err
	}
	s.audit = newAuditLog(s.state, cfg.AuditLimit, cfg.Warn)
	return s, nil
}

// adopt keeps the anchor of a session that was read, and reports whether it
// runs. One that cannot be looked up counts as alive: that we have no descriptor
// left, say, is no reason to drop a session.
func (s *Server) adopt(key ledger.Anchor) (alive bool, err error) {
	a, err := s.prover.OpenAnchor(processOf(key))
	switch {
	case errors.Is(err, peercred.ErrNoProcess):
		return false, nil
	case err != nil:
		return true, fmt.Errorf("looking for the anchor of a session: %w", err)
	}
	s.anchors.keep(a, false)
	return s.anchors.alive(key), nil
}

// checkSocket judges a socket's path by its text.
func checkSocket(path string) error {
	if strings.HasSuffix(path, controlSuffix) {
		// It could be that of another broker, whom we would take it from.
		return fmt.Errorf("%w: %s is the name of a control socket", lease.ErrSocketPath, path)
	}
	return lease.CheckSocketPath(path)
}

func openingLedger(cfg Config, err error) error {
	path := filepath.Join(cfg.StateDir, ledger.StateFile)
	switch {
	case errors.Is(err, ledger.ErrHeld):
		return fmt.Errorf("%w: it has %s%s; stop it, or use another --state-dir", ErrRunning, path, socketplace.Holder(cfg.StateDir, ledger.LockFile))
	case errors.Is(err, ledger.ErrDamaged), errors.Is(err, ledger.ErrUnsafe):
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	default:
		return fmt.Errorf("%w: %w", ErrNotCommitted, err)
	}
}

// openPlace opens a directory as [socketplace.OpenDir] does.
func openPlace(path string, forbidden uint32) (*durable.Dir, error) {
	dir, err := socketplace.OpenDir(path, forbidden)
	return dir, placeError(err)
}

// placeError makes one of ours of an error of package socketplace.
func placeError(err error) error {
	switch {
	case errors.Is(err, socketplace.ErrTaken):
		return fmt.Errorf("%w: %w", ErrRunning, err)
	case errors.Is(err, socketplace.ErrUnsafe):
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	default:
		return err
	}
}

// takeSocketPlace makes this broker the only one at a socket's path, before
// the socket is touched.
func takeSocketPlace(socket string) (*socketplace.Place, error) {
	place, err := socketplace.Take(socketplace.Config{Socket: socket, Forbidden: 0o077, Option: "--socket"})
	return place, placeError(err)
}

// listen binds a socket in the place that was taken.
func (s *Server) listen(name string) (*peercred.Listener, error) {
	l, err := s.place.Listen(name)
	return l, placeError(err)
}

// activated takes the service manager's socket, if it is where ours would be:
// the lock that we have is that of this place.
func activated(cfg Config) (*peercred.Listener, error) {
	l, err := peercred.Activated(cfg.Activated)
	if err != nil {
		return nil, err
	}
	if l.Addr() != cfg.Socket {
		_ = l.Close()
		return nil, fmt.Errorf("the service manager's socket is %s, and ours would be %s: both must say the same", l.Addr(), cfg.Socket)
	}
	return l, nil
}
