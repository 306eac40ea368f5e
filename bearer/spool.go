package bearer

import (
	"errors"
	"io"
	"sync"
)

// errSuperseded is what an attempt reads whose request has been answered.
var errSuperseded = errors.New("the request was answered before its body was read")

// spool lets a body that can be read once be sent twice: what an attempt
// reads is kept, up to a limit, and the second attempt reads that first and
// then what the first one left. Nothing is read ahead, so a body that is
// written while it is sent stays one.
type spool struct {
	body  io.ReadCloser
	limit int
	turn  chan struct{} // one slot: who has it may read from body

	mu     sync.Mutex
	kept   []byte
	lost   bool  // more than limit was read: kept is not the whole beginning
	err    error // body has ended with it
	now    *attempt
	last   bool // there will be no other attempt
	closed bool // body is
}

// attempt is the body of one request.
type attempt struct {
	s      *spool
	off    int // in kept
	closed bool
}

func newSpool(body io.ReadCloser, limit int) (*spool, *attempt) {
	s := &spool{body: body, limit: limit, turn: make(chan struct{}, 1)}
	s.now = &attempt{s: s}
	return s, s.now
}

// again ends the first attempt and begins the second. It returns nil if what
// was sent is not known any more.
func (s *spool) again() *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return nil
	}
	s.now.closed = true
	s.now, s.last = &attempt{s: s}, true
	return s.now
}

// finish says that there will be no other attempt.
func (s *spool) finish() {
	s.mu.Lock()
	s.last = true
	end := s.ends()
	s.mu.Unlock()
	if end {
		_ = s.body.Close()
	}
}

// ends reports whether body is to be closed now. mu is held.
func (s *spool) ends() bool {
	if s.last && s.now.closed && !s.closed {
		s.closed = true
		return true
	}
	return false
}

// Read implements [io.Reader].
func (a *attempt) Read(p []byte) (int, error) {
	if n, err, ok := a.fromKept(p); ok {
		return n, err
	}
	a.s.turn <- struct{}{}
	defer func() { <-a.s.turn }()
	// Another attempt's reading may have ended meanwhile.
	if n, err, ok := a.fromKept(p); ok {
		return n, err
	}
	n, err := a.s.body.Read(p)
	return a.keep(p[:n], err)
}

// fromKept reads what is known already; ok is false if the body must be read.
func (a *attempt) fromKept(p []byte) (n int, err error, ok bool) { //nolint:revive // read as io.Reader's results, with ok
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.closed:
		return 0, errSuperseded, true
	case a.off < len(s.kept):
		n = copy(p, s.kept[a.off:])
		a.off += n
		return n, nil, true
	case s.err != nil:
		return 0, s.err, true
	}
	return 0, nil, len(p) == 0
}

// keep takes in what was read from the body.
func (a *attempt) keep(b []byte, err error) (int, error) {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	switch {
	case a != s.now:
		// The second attempt has begun: these bytes are its next ones.
		s.kept = append(s.kept, b...)
		return 0, errSuperseded
	case s.last || s.lost:
		return len(b), err
	case len(s.kept)+len(b) > s.limit:
		s.kept, s.lost = nil, true
		a.off = 0
		return len(b), err
	}
	s.kept = append(s.kept, b...)
	a.off = len(s.kept)
	return len(b), err
}

// Close implements [io.Closer].
func (a *attempt) Close() error {
	s := a.s
	s.mu.Lock()
	a.closed = true
	end := s.ends()
	s.mu.Unlock()
	if end {
		return s.body.Close()
	}
	return nil
}
