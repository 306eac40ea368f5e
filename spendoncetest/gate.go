package spendoncetest

import (
	"fmt"
	"time"
)

// gate stops requests at a [Point]. Its channel is closed, and replaced, by
// the next release, so that one close wakes everybody who stands there.
type gate struct {
	shut    bool
	release chan struct{}
}

func newGate() *gate { return &gate{release: make(chan struct{})} }

func (s *TokenServer) gate(p Point) (*gate, error) {
	switch p {
	case Before:
		return s.before, nil
	case After:
		return s.after, nil
	}
	return nil, fmt.Errorf("a point is %q or %q, not %q", Before, After, p)
}

// Hold shuts the gate at p: token requests stop there until [Release].
func (s *TokenServer) Hold(p Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.gate(p)
	if err != nil {
		return err
	}
	g.shut = true
	return nil
}

// Release opens the gate at p and lets go every request that is held there,
// also those that a scripted answer holds.
func (s *TokenServer) Release(p Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.gate(p)
	if err != nil {
		return err
	}
	g.shut = false
	close(g.release)
	g.release = make(chan struct{})
	return nil
}

// stand holds the request at p if the gate is shut or the script says so, and
// then for delay. It reports whether the client is still there.
func (s *TokenServer) stand(q *request, p Point, delay time.Duration) bool {
	s.mu.Lock()
	g, _ := s.gate(p)
	released := g.release
	held := (g.shut && q.isToken()) || q.answer.Hold == p
	gauge := func(by int) {
		s.update(func(c *Counters) {
			if p == Before {
				c.HeldBefore += by
			} else {
				c.HeldAfter += by
			}
		})
	}
	if held {
		gauge(1)
	}
	s.mu.Unlock()
	gone := q.r.Context().Done()
	if held {
		there := true
		select {
		case <-released:
		case <-gone:
			there = false
		case <-s.done:
			there = false
		}
		s.mu.Lock()
		gauge(-1)
		s.mu.Unlock()
		if !there {
			return false
		}
	}
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-gone:
		case <-s.done:
		}
	}
	return q.r.Context().Err() == nil && !s.isDone()
}

func (s *TokenServer) isDone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
