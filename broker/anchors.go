//go:build linux

package broker

import (
	"sync"

	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/peercred"
)

// anchors are the processes that sessions hang on, each with a descriptor
// that tells when it exits and cannot come to mean another process.
type anchors struct {
	watch sync.WaitGroup

	mu     sync.Mutex
	kept   map[ledger.Anchor]*keptAnchor
	exited func(ledger.Anchor, *peercred.Anchor) // nil until start
}

type keptAnchor struct {
	*peercred.Anchor
	users int // registrations that are being decided
}

func newAnchors() *anchors { return &anchors{kept: map[ledger.Anchor]*keptAnchor{}} }

// start has exited called from now on, in a goroutine of its own, once for
// each anchor that exits while it is kept; also for those that did so before.
func (s *anchors) start(exited func(ledger.Anchor, *peercred.Anchor)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exited = exited
	for key, k := range s.kept {
		s.follow(key, k.Anchor)
	}
}

func (s *anchors) follow(key ledger.Anchor, a *peercred.Anchor) {
	exited := s.exited
	s.watch.Go(func() {
		if a.Wait() == nil { // else it was closed
			exited(key, a)
		}
	})
}

func keyOf(p peercred.Process) ledger.Anchor {
	return ledger.Anchor{PID: p.PID, StartTime: p.StartTime}
}

// find returns the anchor of a session, or nil if it is not kept: then its
// exit is being dealt with.
func (s *anchors) find(key ledger.Anchor) *peercred.Anchor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kept[key]; k != nil {
		return k.Anchor
	}
	return nil
}

// alive reports whether a session's anchor runs. It asks the kernel: the
// goroutine that waits for the exit may be late.
func (s *anchors) alive(key ledger.Anchor) bool {
	a := s.find(key)
	return a != nil && !a.Exited()
}

// keep takes an anchor in, for as long as it runs. Where one with the same pid
// and start is kept that runs, it is this very process, and a is closed. One
// that has exited is in the way until its end was dealt with: then keep closes
// a and reports false. Who keeps an anchor for a registration says done
// afterwards.
func (s *anchors) keep(a *peercred.Anchor, registering bool) bool {
	key := keyOf(a.Process())
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[key]
	switch {
	case k == nil:
		k = &keptAnchor{Anchor: a}
		s.kept[key] = k
		if s.exited != nil {
			s.follow(key, a)
		}
	case k.Exited():
		_ = a.Close()
		return false
	default:
		_ = a.Close()
	}
	if registering {
		k.users++
	}
	return true
}

// done ends a registration's hold; wanted says whether a session hangs on the
// anchor.
func (s *anchors) done(key ledger.Anchor, wanted func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kept[key]; k != nil {
		if k.users--; k.users == 0 && !wanted() {
			s.drop(key)
		}
	}
}

// forget lets an anchor go whose session is gone, unless it is being
// registered.
func (s *anchors) forget(key ledger.Anchor, gone *peercred.Anchor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kept[key]; k != nil && k.Anchor == gone && k.users == 0 {
		s.drop(key)
	}
}

func (s *anchors) drop(key ledger.Anchor) {
	_ = s.kept[key].Close()
	delete(s.kept, key)
}

// close lets all go and waits for those who watched them.
func (s *anchors) close() {
	s.mu.Lock()
	for key := range s.kept {
		s.drop(key)
	}
	s.mu.Unlock()
	s.watch.Wait()
}
