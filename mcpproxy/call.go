package mcpproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	r.work.Go(func() {
		defer func() {
			c.cancel(nil)
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

// cancelled ends the call that a cancellation is about, and passes it on, by
// itself: what it is about may be waiting in the same queue.
func (r *run) cancelled(m message) {
	c := r.flights.of(m.cancels)
	if c != nil && !c.init {
		c.cancelled.Store(true)
		c.cancel(errCancelled)
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
	left := c.left()
	if len(left) == 0 || c.cancelled.Load() || r.ctx.Err() != nil {
		r.log.Debug("done", "method", c.msg.method, "took", took, "cancelled", c.cancelled.Load())
		return
	}
	if f == nil {
		f = unanswered("cut", "the server's answer ended without the response to the request")
	}
	if f.theirs == nil {
		r.log.Warn("a request failed", "method", c.msg.method, "kind", f.kind, "reason", f.message, "took", took)
	} else {
		r.log.Debug("refused by the server", "method", c.msg.method, "status", f.status, "took", took)
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
	r.log.Debug("answered", "method", c.msg.method, "status", resp.StatusCode, "after", time.Since(c.began))
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

// lost reports whether an answer says that the session of its request is
// gone.
func lost(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNotFound && resp.Request.Header.Get(headerSession) != ""
}

// post sends a message.
func (r *run) post(ctx context.Context, s *session, m message) (*http.Response, error) {
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	to := at.url
	if s != nil && s.stream != nil {
		if s.stream.hasEnded() {
			return nil, errStreamEnded
		}
		to = s.stream.endpoint
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(m.raw))
	if err != nil {
		return nil, err
	}
	req.Header = headersOf(m, s, r.cfg.Header)
	if m.modern() && m.method == methodCallTool {
		setParamHeaders(req.Header, m.raw, r.tools.of(m.name))
	}
	return r.do(req)
}

func (r *run) do(req *http.Request) (*http.Response, error) {
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if err := decompress(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
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

const refusalLimit = 1 << 20

// refusal passes on an error of the server, if its body is one.
func (r *run) refusal(c *call, resp *http.Response) *failure {
	f := statusFailure(resp)
	body, err := io.ReadAll(io.LimitReader(resp.Body, refusalLimit))
	if err != nil {
		return f
	}
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
	raw := m.raw
	if m.kind == kindBatch && r.sessions.now().versionOrNone() != versionOfBatches {
		for _, part := range m.parts { // the client does not know batches
			if f := r.pass(c, part); f != nil {
				return f
			}
		}
		return nil
	}
	r.log.Debug("received", "method", m.method, "bytes", len(raw))
	responses := responsesIn(m)
	own := c != nil
	if !own && m.kind == kindResponse { // the stream is one for all answers
		c = r.flights.of(m.id)
	}
	if c != nil && m.kind == kindResponse && c.waitsFor(m.id) {
		if c.init && (own || c.comesOn() != nil) {
			if f := r.adopt(c, raw); f != nil {
				return f
			}
		}
		if c.silent {
			c.answered(m.id)
			return nil
		}
		if c.cancelled.Load() {
			return nil
		}
	}
	if own && m.kind == kindResponse && c.msg.modern() && c.msg.method == methodListTools {
		r.tools.learn(raw)
	}
	if own && m.kind == kindResponse && m.id.Kind() == 'n' {
		if theirs := errorOf(raw); theirs != nil && !c.silent {
			return &failure{theirs: theirs} // the server does not say to what
		}
	}
	if err := r.out.write(r.ctx, raw); err != nil {
		return unanswered("client", "%v", err)
	}
	for _, id := range responses {
		if c != nil {
			c.answered(id)
		}
	}
	return nil
}

// responsesIn are the ids that a message answers.
func responsesIn(m message) []jsontext.Value {
	if m.kind == kindResponse {
		return []jsontext.Value{m.id}
	}
	var ids []jsontext.Value
	for _, part := range m.parts {
		ids = append(ids, responsesIn(part)...)
	}
	return ids
}

// plainly is an error of the network without what net/http puts around it.
func plainly(err error) string {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection was closed"
	case errors.Is(err, errEndless):
		return errEndless.Error()
	}
	return fmt.Sprint(err)
}
