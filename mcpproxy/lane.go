package mcpproxy

import (
	"context"
	"net/http"
)

// laneItem is a message that is sent in the order in which it came: a
// notification or a response.
type laneItem struct {
	m    message
	gate <-chan struct{}
	done chan struct{} // closed when it was sent, or cannot be; may be nil
	last chan struct{} // of an item without a message: all before it are done
}

// queue puts a message behind those before it.
func (r *run) queue(m message) error {
	item := laneItem{m: m, gate: r.gate}
	if m.method == methodInitialized {
		item.done = make(chan struct{})
		r.gate = item.done // requests wait until the server knows
	}
	select {
	case r.lane <- item:
		return nil
	default:
	}
	defer r.stuck()()
	select {
	case r.lane <- item:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// runLane sends what is queued, one after the other.
func (r *run) runLane() {
	for {
		select {
		case item := <-r.lane:
			if item.last != nil {
				close(item.last)
				continue
			}
			select {
			case <-item.gate:
				r.tell(item.m)
			case <-r.ctx.Done():
			}
			if item.done != nil {
				close(item.done)
			}
		case <-r.ctx.Done():
			return
		}
	}
}

// tell sends a message that has no answer. Nobody can be told that it was not
// taken, but the log.
func (r *run) tell(m message) {
	defer r.held.Release(int64(len(m.raw)))
	ctx, cancel := context.WithTimeout(r.ctx, r.lim.Notify)
	defer cancel()
	s := r.sessions.now()
	if m.method == methodInitialized {
		r.sessions.initialized(m)
		r.handshakeOver(ctx, s, m)
		return
	}
	resp, err := r.post(ctx, s, m)
	if ended(resp, err) && m.kind == kindNotification && m.method != methodCancelled {
		// What a response or a cancellation is about has ended too.
		if resp != nil {
			discard(resp)
		}
		if s, err = r.renew(ctx, s); err == nil {
			resp, err = r.post(ctx, s, m) //nolint:bodyclose // taken does
		}
	}
	r.taken(m, resp, err)
}

// taken ends the sending of a message that has no answer.
func (r *run) taken(m message, resp *http.Response, err error) {
	if err != nil {
		f := judge(err)
		r.log.Warn("a message was not taken", "method", named(m.method), "kind", f.kind, "reason", f.message)
		return
	}
	discard(resp)
	if resp.StatusCode >= 300 {
		r.log.Warn("a message was not taken", "method", named(m.method), "status", resp.StatusCode)
		return
	}
	r.log.Debug("sent", "method", named(m.method), "bytes", len(m.raw), "status", resp.StatusCode)
	r.served.beat()
}
