package mcpproxy

import (
	"bytes"
	"context"
	"net/http"
	"strings"
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
	passing int              // answers that are being passed on
	done    chan struct{}    // closed when there is neither
	linger  time.Duration    // for the call to end when there is neither; 0: until it does
	late    *time.Timer      // which ends it then
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

// meant is the id without an answer that id stands for: some servers answer to
// 1 what was asked as "1".
func (c *call) meant(id jsontext.Value) jsontext.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) != 1 || bytes.Equal(c.pending[0], id) {
		return id
	}
	if strings.TrimPrefix(idKey(c.pending[0]), `"`) == strings.TrimPrefix(idKey(id), `"`) {
		return c.pending[0]
	}
	return id
}

// claim takes the answer to id, for one to pass on and then to settle: a
// second one is nobody's.
func (c *call) claim(id jsontext.Value) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.take(id) {
		return false
	}
	c.passing++
	return true
}

// settle says that what was claimed was passed on.
func (c *call) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passing--
	c.end()
}

// forget says that nothing is passed on to id; over is true if nothing else is
// waited for.
func (c *call) forget(id jsontext.Value) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.take(id) {
		return false
	}
	c.end()
	return len(c.pending) == 0
}

// take removes id from those without an answer. mu is held.
func (c *call) take(id jsontext.Value) bool {
	i := c.find(id)
	if i < 0 {
		return false
	}
	c.pending = append(c.pending[:i:i], c.pending[i+1:]...)
	return true
}

// end closes done when it is time. mu is held.
func (c *call) end() {
	if len(c.pending) == 0 && c.passing == 0 {
		close(c.done)
		c.endLate()
	}
}

// endsAfter has the call end some time after its last answer, if it does not
// by itself.
func (c *call) endsAfter(linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linger = linger
	if len(c.pending) == 0 && c.passing == 0 {
		c.endLate()
	}
}

// endLate begins the time after which the call ends. mu is held.
func (c *call) endLate() {
	if c.linger > 0 && c.late == nil {
		c.late = time.AfterFunc(c.linger, func() { c.cancel(errLingering) })
	}
}

// stop ends the call, if it has not ended.
func (c *call) stop() {
	c.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late != nil {
		c.late.Stop()
	}
}

// find is the place of id. mu is held.
func (c *call) find(id jsontext.Value) int {
	if id == nil {
		return -1
	}
	for i, p := range c.pending {
		if sameID(p, id) {
			return i
		}
	}
	return -1
}

// left reports whether there are ids without an answer.
func (c *call) left() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) > 0
}

// claimAll takes the answers to all ids that have none. There is nothing to
// settle.
func (c *call) claimAll() []jsontext.Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.pending
	c.pending = nil
	return left
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
