package mcpproxy

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// call is a message that must be answered, on its way: a request, or a batch
// with some.
type call struct {
	msg    message
	ctx    context.Context
	cancel context.CancelCauseFunc
	gate   <-chan struct{} // it may be sent when this is closed
	opens  chan struct{}   // closed when it is over; may be nil
	began  time.Time

	// init is that of a handshake. A silent one is ours: its answer is not the
	// client's.
	init, silent bool
	header       http.Header // of the answer
	cancelled    atomic.Bool

	mu      sync.Mutex
	stream  *oldStream       // on which the answer comes; nil: it comes to the request
	pending []jsontext.Value // ids without an answer
	done    chan struct{}    // closed when there are none
}

func newCall(ctx context.Context, m message, ids []jsontext.Value) *call {
	c := &call{msg: m, pending: ids, done: make(chan struct{}), init: m.method == methodInitialize, began: time.Now()}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// comesOn is the stream on which the answer comes, nil if it comes to the
// request.
func (c *call) comesOn() *oldStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream
}

func (c *call) goesTo(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = nil
	if s != nil {
		c.stream = s.stream
	}
}

// waitsFor reports whether id has no answer yet.
func (c *call) waitsFor(id jsontext.Value) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(id) >= 0
}

// answered says that the answer to id was passed on.
func (c *call) answered(id jsontext.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(id)
	if i < 0 {
		return
	}
	c.pending = append(c.pending[:i:i], c.pending[i+1:]...)
	if len(c.pending) == 0 {
		close(c.done)
	}
}

// find is the place of id. mu is held.
func (c *call) find(id jsontext.Value) int {
	if id == nil {
		return -1
	}
	key := idKey(id)
	for i, p := range c.pending {
		if idKey(p) == key {
			return i
		}
	}
	return -1
}

// left are the ids without an answer.
func (c *call) left() []jsontext.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending
}

// flights are the calls under way.
type flights struct {
	mu    sync.Mutex
	calls map[*call]struct{}
	empty chan struct{} // closed when the last one ends; nil: nobody waits
}

func (f *flights) add(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[*call]struct{}{}
	}
	f.calls[c] = struct{}{}
}

func (f *flights) remove(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.calls, c)
	if len(f.calls) == 0 && f.empty != nil {
		close(f.empty)
		f.empty = nil
	}
}

func (f *flights) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// idle is closed when no call is under way.
func (f *flights) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	done := make(chan struct{})
	switch {
	case len(f.calls) == 0:
		close(done)
	case f.empty != nil:
		return f.empty
	default:
		f.empty = done
	}
	return done
}

// of is the call that waits for the answer to id.
func (f *flights) of(id jsontext.Value) *call {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.calls {
		if c.waitsFor(id) {
			return c
		}
	}
	return nil
}
