package credstore

import (
	"context"
	"errors"
)

// refresh makes or joins this process's one exchange of the target. again
// asks the caller to look at the store anew.
func (src *Source) refresh(ctx context.Context, first, v view, d decision, req Request) (t Token, again bool, err error) {
	f, mine := src.store.fly(src.cfg.Target)
	switch {
	case f == nil:
		return Token{}, false, failing(ErrTemporary, nil, "the store is closed")
	case mine:
		src.lead(ctx, f, first, v, d, req)
	case d.fallback:
		return Token{}, true, nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		select {
		case <-f.done: // both at once: the result counts
		default:
			return Token{}, false, context.Cause(ctx)
		}
	}
	if mine {
		if f.err != nil && d.fallback && f.token.AccessToken.Empty() {
			t, err := src.standIn(v, decision{fallback: true, err: f.err}, src.store.warn)
			return t, false, err
		}
		return f.token, f.again, f.err
	}
	// Another caller's flight: its error speaks of the target, unless it was
	// that caller's own context or wish.
	if f.err == nil || errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded) ||
		errors.Is(f.err, ErrMinValid) || errors.Is(f.err, ErrRejected) {
		return Token{}, true, nil
	}
	if f.token.AccessToken.Equal(req.Rejected) {
		return Token{}, false, f.err
	}
	return f.token, false, f.err
}

// lead makes the attempt that f stands for. What follows the lock outlives
// the caller's wait.
func (src *Source) lead(ctx context.Context, f *flight, first, v view, d decision, req Request) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(src.store.closing, cancel)
	land := func() {
		unhook()
		cancel()
		src.store.land(src.cfg.Target, f)
	}
	h := &hold{src: src, store: src.store, flight: f, ctx: ctx, first: first, seen: v, req: req, fallback: d.fallback}
	if err := h.start(); err != nil {
		h.end(Token{}, false, err)
		land()
		src.store.forget()
		return
	}
	go func() {
		defer src.store.forget()
		h.finish()
		land()
		src.revoke(f.orphan)
	}()
}

// flight is one attempt of this process; callers in the same process share
// it instead of queueing for the lock.
type flight struct {
	done     chan struct{}
	token    Token
	err      error
	again    bool
	spending bool  // an exchange was begun
	orphan   Ended // what nobody will use
}

// fly returns the target's flight, a new one if there is none, or nil if the
// store is closed.
func (s *Store) fly(target string) (f *flight, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[target]; f != nil {
		return f, false
	}
	if s.closed {
		return nil, false
	}
	f = &flight{done: make(chan struct{})}
	s.flights[target] = f
	s.flying++
	s.running.Add(1)
	return f, true
}

// land gives the flight's result out.
func (s *Store) land(target string, f *flight) {
	s.mu.Lock()
	delete(s.flights, target)
	s.mu.Unlock()
	close(f.done)
	if f.spending {
		s.endSpending()
	}
}

// forget ends what [Store.Close] waits for.
func (s *Store) forget() {
	s.mu.Lock()
	s.flying--
	s.mu.Unlock()
	s.running.Done()
}
