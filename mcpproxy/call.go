package mcpproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	errCancelled = errors.New("the client has cancelled the request")
	errLingering = errors.New("the stream did not end after its answer")
)

// begin starts a call, whose bytes are held.
func (r *run) begin(m message, ids []jsontext.Value) {
	c := newCall(r.ctx, m, ids)
	c.gate = r.gate
	if c.init {
		c.opens = make(chan struct{})
		r.gate = c.opens
	}
	r.flights.add(c)
	r.crew.do(r.ctx, &r.work, func() {
		defer func() {
			c.stop()
			r.flights.remove(c)
			if c.opens != nil {
				close(c.opens)
			}
		}()
		select {
		case <-c.gate:
		case <-c.ctx.Done():
			r.held.Release(int64(len(m.raw)))
			return
		}
		r.conclude(c, r.exchange(c, func() { r.held.Release(int64(len(m.raw))) }))
	})
}

// cancelled ends the request that a cancellation is about, and passes it on, by
// itself: what it is about may be waiting in the same queue. Of a batch, the
// other requests go on.
func (r *run) cancelled(m message) {
	c := r.flights.of(m.cancels)
	if c != nil && !c.init {
		if c.forget(m.cancels) {
			c.cancelled.Store(true)
			c.cancel(errCancelled)
		}
		if c.msg.modern() { // there, the end of the request says it
			r.held.Release(int64(len(m.raw)))
			return
		}
	}
	gate := r.gate
	r.work.Go(func() {
		select {
		case <-gate:
			r.tell(m)
		case <-r.ctx.Done():
			r.held.Release(int64(len(m.raw)))
		}
	})
}

// conclude answers what the server has not, for the reason in f.
func (r *run) conclude(c *call, f *failure) {
	took := time.Since(c.began)
	left := c.claimAll()
	if len(left) == 0 || r.ctx.Err() != nil {
		if len(left) == 0 {
			select {
			case <-c.done: // what came by another way is passed on before the call is over
			case <-r.ctx.Done():
			}
		}
		r.log.Debug("done", "method", named(c.msg.method), "took", took, "cancelled", c.cancelled.Load())
		return
	}
	if f == nil {
		f = unanswered("cut", "the server's answer ended without the response to the request")
	}
	if f.theirs == nil {
		r.log.Warn("a request failed", "method", named(c.msg.method), "kind", f.kind, "reason", f.message, "took", took)
	} else {
		r.log.Debug("refused by the server", "method", named(c.msg.method), "status", f.status, "took", took)
	}
	for _, id := range left {
		if r.out.write(r.ctx, f.response(id)) != nil {
			return
		}
	}
}

// exchange sends a call and passes on what comes, until its stream ends. sent
// is called when its bytes are not needed any more.
func (r *run) exchange(c *call, sent func()) *failure {
	resp, s, err := r.send(c)
	sent()
	if !c.init {
		c.msg.raw = nil
	}
	if err != nil {
		return judge(err)
	}
	defer func() { _ = resp.Body.Close() }()
	r.log.Debug("answered", "method", named(c.msg.method), "status", resp.StatusCode, "after", time.Since(c.began))
	if resp.StatusCode < 300 {
		r.served.beat()
	}
	c.header = resp.Header
	switch {
	case resp.StatusCode >= 300:
		return r.refusal(c, resp)
	case c.comesOn() != nil:
		discard(resp)
		return r.awaitStream(c)
	case isType(resp, typeJSON):
		return r.takeBody(c, resp)
	case isType(resp, typeEvents):
		return r.takeEvents(c, s, resp)
	}
	return statusFailure(resp)
}

// send sends a call; if its session has ended, once more in a new one. The
// session is the one in which it was answered.
func (r *run) send(c *call) (*http.Response, *session, error) {
	if c.init {
		return r.sendInit(c)
	}
	s := r.sessions.now()
	resp, err := r.sendIn(c, s)
	if !ended(resp, err) {
		return resp, s, err
	}
	if resp != nil {
		discard(resp)
	}
	s, err = r.renew(c.ctx, s)
	if err != nil {
		return nil, nil, err
	}
	resp, err = r.sendIn(c, s)
	if ended(resp, err) {
		if resp != nil {
			discard(resp)
		}
		return nil, nil, unanswered("session", "the server has ended the session, and the one that was begun in its place too")
	}
	return resp, s, err
}

func (r *run) sendIn(c *call, s *session) (*http.Response, error) {
	c.goesTo(s)
	return r.post(c.ctx, s, c.msg)
}

// ended reports whether a request found its session gone.
func ended(resp *http.Response, err error) bool {
	return errors.Is(err, errStreamEnded) || err == nil && lost(resp)
}

// noSuchSession is how servers of the official SDKs' first years refuse a
// session that they have forgotten, with a 400, before they look at a request.
var noSuchSession = []byte("No valid session ID provided")

// lost reports whether an answer says that the session of its request is
// gone.
func lost(resp *http.Response) bool {
	if resp.Request.Header.Get(headerSession) == "" {
		return false
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return true
	case http.StatusBadRequest:
		return bytes.Contains(keepBody(resp), noSuchSession)
	}
	return false
}

// takeBody passes on an answer that is one message.
func (r *run) takeBody(c *call, resp *http.Response) *failure {
	body, release, err := r.readBody(c.ctx, resp)
	defer release()
	if err != nil {
		return bodyFailure(err)
	}
	m, err := parse(body)
	if err == nil && (m.kind == kindRequest || m.kind == kindNotification) {
		err = errNoAnswer // some other service, whose JSON has a method too
	}
	if err != nil {
		return r.drop(body, err)
	}
	return r.pass(c, m)
}

var errNoAnswer = errors.New("it is no answer in JSON-RPC")

// drop is for what the client must not see.
func (r *run) drop(raw []byte, reason error) *failure {
	r.log.Warn("a message of the server was dropped", "reason", reason, "bytes", len(raw))
	return unanswered("not_json", "the server's answer was dropped: %v", reason)
}

func bodyFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return unanswered("cut", "the server's answer broke off: %v", plainly(err))
}

// readBody reads a body up to the limit of a message. Of long ones, few are
// read at once.
func (r *run) readBody(ctx context.Context, resp *http.Response) (body []byte, release func(), err error) {
	release = func() {}
	var b bytes.Buffer
	short := min(longMessage, r.lim.Message+1)
	if _, err = io.CopyN(&b, resp.Body, int64(short)); errors.Is(err, io.EOF) {
		return b.Bytes(), release, nil
	}
	if err != nil {
		return nil, release, err
	}
	if err = r.long.Acquire(ctx, 1); err != nil {
		return nil, release, err
	}
	release = func() { r.long.Release(1) }
	if _, err = io.Copy(&b, io.LimitReader(resp.Body, int64(r.lim.Message+1-short))); err != nil {
		return nil, release, err
	}
	if b.Len() > r.lim.Message {
		return nil, release, tooLong(r.lim.Message)
	}
	return b.Bytes(), release, nil
}

// refusal passes on an error of the server, if its body is one.
func (r *run) refusal(c *call, resp *http.Response) *failure {
	f := statusFailure(resp)
	body := keepBody(resp)
	m, err := parse(body)
	if theirs := errorOf(body); err == nil && theirs != nil {
		if c.waitsFor(m.id) {
			return r.deliver(c, body)
		}
		f.theirs = theirs
	}
	return f
}

// deliver passes a message of the server on; c is the call in whose answer it
// came, nil for those of no call.
func (r *run) deliver(c *call, raw []byte) *failure {
	m, err := parse(raw)
	if err != nil {
		return r.drop(raw, err)
	}
	return r.pass(c, m)
}

// pass is deliver of a message that is read already.
func (r *run) pass(c *call, m message) *failure {
	r.log.Debug("received", "method", named(m.method), "bytes", len(m.raw))
	switch {
	case m.kind == kindBatch:
		return r.passBatch(c, m)
	case m.kind == kindResponse && m.id.Kind() == 'n':
		if theirs := errorOf(m.raw); theirs != nil && c != nil {
			return &failure{theirs: theirs} // the server does not say to what
		}
	case m.kind == kindResponse:
		return r.passResponse(c, m)
	}
	return r.write(m.raw)
}

// passResponse passes on a response, if its request is under way: not a second
// one, and not one that comes after an error or a cancellation.
func (r *run) passResponse(own *call, m message) *failure {
	id := m.id
	if own != nil {
		id = own.meant(id)
	}
	c := r.whoWaits(own, id)
	if c != nil && c.init {
		if f := r.adopt(c, m.raw); f != nil {
			return f
		}
	}
	if c == nil || !c.claim(id) {
		r.log.Warn("a response of the server was dropped", "reason", "no request waits for it", "bytes", len(m.raw))
		return nil
	}
	defer c.settle()
	if c.silent {
		return nil
	}
	if c == own && c.msg.modern() && c.msg.method == methodListTools {
		kept, refused := r.tools.learn(m.raw)
		for _, why := range refused {
			r.log.Warn("a tool was left out of the server's list", "reason", why)
		}
		return r.write(kept)
	}
	return r.write(m.raw)
}

// whoWaits is the call that waits for the answer to id: the one in whose answer
// it came, or another. A handshake is answered in no other's answer.
func (r *run) whoWaits(own *call, id jsontext.Value) *call {
	if own != nil && own.waitsFor(id) {
		return own
	}
	c := r.flights.of(id)
	if c != nil && c.init && c.comesOn() == nil {
		return nil
	}
	return c
}

// passBatch passes on a batch as one, if the client knows batches and nothing
// in it is to be dropped.
func (r *run) passBatch(own *call, m message) *failure {
	whole := r.sessions.now().versionOrNone() == versionOfBatches && (own == nil || !own.init)
	for _, part := range m.parts {
		whole = whole && (part.kind != kindResponse || r.whoWaits(own, part.id) != nil)
	}
	if !whole {
		for _, part := range m.parts {
			if f := r.pass(own, part); f != nil {
				return f
			}
		}
		return nil
	}
	for _, part := range m.parts {
		if part.kind != kindResponse {
			continue
		}
		if c := r.whoWaits(own, part.id); c != nil && c.claim(part.id) {
			defer c.settle()
		}
	}
	return r.write(m.raw)
}

func (r *run) write(raw []byte) *failure {
	r.trimAfter(raw)
	if err := r.out.write(r.ctx, raw); err != nil {
		return unanswered("client", "%v", err)
	}
	return nil
}

// plainly is an error of reading, without what a server may have put into it.
func plainly(err error) string {
	var ours *net.OpError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection was closed"
	case errors.Is(err, errEndless):
		return errEndless.Error()
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return "it is not compressed as it says"
	case errors.As(err, &ours):
		return ours.Error()
	}
	return "the connection failed"
}

// named is a method for the log, which is no longer than those that there are.
func named(method string) string {
	const longest = 80
	if len(method) > longest {
		return strings.ToValidUTF8(method[:longest], "") + "..."
	}
	return method
}
