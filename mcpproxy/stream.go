package mcpproxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// resumptions bounds the attempts at one stream that bring nothing new and are
// over soon. A server that holds a stream open for a while and ends it is one
// that wants to be asked again (revision 2025-11-25, polling).
const resumptions = 5

// takeEvents passes on the messages of a call's stream until it ends. One that
// is cut before the answer goes on where it was, if the server has marked the
// place.
func (r *run) takeEvents(c *call, s *session, resp *http.Response) *failure {
	c.endsAfter(r.lim.Linger)
	body, cursor := resp.Body, ""
	pause := backoff{base: r.lim.Pause}
	for attempt := 0; ; {
		events := newEventReader(body, r.lim.Message, cursor)
		began := time.Now()
		n, err := r.follow(c.ctx, c, events)
		_ = body.Close()
		events.release()
		if !c.left() {
			return nil
		}
		f := streamFailure(err)
		if n > 0 || events.lastID != cursor || time.Since(began) >= r.lim.Hold {
			attempt, pause.n = 0, 0
		}
		cursor = events.lastID
		if f.kind != "cut" || !canRepeat(cursor) || c.msg.modern() || r.sessions.now() != s && !c.init {
			return f
		}
		if attempt++; attempt > resumptions {
			return f
		}
		if !pause.sleep(c.ctx, events.retry) {
			return nil
		}
		r.log.Debug("resuming a stream", "method", named(c.msg.method))
		at := s
		if c.init { // its session has no other name yet
			at = &session{}
			at.id, _ = sessionID(c.header)
		}
		resp, err := r.get(c.ctx, at, cursor)
		body = http.NoBody
		switch {
		case err != nil:
			if no := judge(err); no.code == CodeAuthorization {
				// Not that error itself, by which nothing was done.
				return unanswered("cut", "%s, and where it was it cannot go on: %s", f.message, no.message)
			}
		case resp.StatusCode == http.StatusOK && isType(resp, typeEvents):
			body = resp.Body
		case resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests:
			discard(resp)
			return f // it does not resume
		default:
			discard(resp)
		}
	}
}

// streamFailure is for what ended a stream before its answer.
func streamFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return unanswered("cut", "the server's stream broke off: %s", plainly(err))
}

// follow passes on the messages of a stream until it ends, and says how many
// there were and why it ended.
func (r *run) follow(ctx context.Context, c *call, events *eventReader) (n int, err error) {
	held := false
	defer func() {
		if held {
			r.long.Release(1)
		}
	}()
	events.onLong = func() error {
		held = true
		if err := r.long.Acquire(ctx, 1); err != nil {
			held = false
			return err
		}
		return nil
	}
	for {
		ev, err := events.next()
		if err != nil {
			return n, err
		}
		n++
		switch {
		case ev.name != "" && ev.name != "message":
			r.log.Debug("an event of another kind was skipped", "bytes", len(ev.data))
		case ev.long != nil:
			r.dropLong(c, ev.long)
		default:
			if f := r.deliver(c, ev.data); f != nil && f.kind != "not_json" {
				return n, f
			}
		}
		if held {
			r.long.Release(1)
			held = false
		}
		if ctx.Err() != nil {
			return n, unanswered("client", "%v", context.Cause(ctx))
		}
	}
}

// dropLong tells whoever waits for it that a message of the server was too
// long.
func (r *run) dropLong(c *call, o *outline) {
	r.log.Warn("a message of the server is longer than the limit", "limit", r.lim.Message)
	f := tooLong(r.lim.Message)
	switch o.kind() {
	case kindResponse:
		c = r.whoWaits(c, o.id)
		if c == nil || !c.claim(o.id) {
			return
		}
		defer c.settle()
		if !c.silent {
			f.message = "the answer was dropped: " + f.message
			_ = r.write(f.response(o.id))
		}
	case kindRequest:
		r.tellServer(f.response(o.id))
	}
}

// tellServer queues a response of ours.
func (r *run) tellServer(raw jsontext.Value) {
	m, err := parse(raw)
	if err != nil || !r.held.TryAcquire(int64(len(raw))) {
		return
	}
	open := make(chan struct{})
	close(open)
	select {
	case r.lane <- laneItem{m: m, gate: open}:
	default:
		r.held.Release(int64(len(raw)))
	}
}

// backoff is the pause before the next attempt: doubling, with jitter.
type backoff struct {
	base time.Duration
	n    int
}

const doublings = 5 // to 32 times the base

// sleep waits; asked, if not 0, is how long the server wants to be left alone.
// It returns false if ctx ends first.
func (b *backoff) sleep(ctx context.Context, asked time.Duration) bool {
	d := b.base << min(b.n, doublings)
	d = d/2 + rand.N(d/2+1) //nolint:gosec // jitter
	if asked > 0 {
		d = asked + rand.N(asked/10+1) //nolint:gosec // jitter
		if b.n > 0 {                   // nothing came since
			d = max(d, b.base)
		}
	}
	b.n++
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
