package mcpproxy

import (
	"context"
	"net/http"
	"sync"

	"github.com/spendonce/spendonce/internal/secret"
)

// session is what a handshake has brought. It does not change.
type session struct {
	id      secret.Secret // empty: the server keeps none
	version string
	stream  *oldStream // of a server with HTTPWithSSE; nil: it has StreamableHTTP
}

// versionOrNone is the protocol version, "" before there is one.
func (s *session) versionOrNone() string {
	if s == nil {
		return ""
	}
	return s.version
}

// sessions is the session in use, and how to begin another one like it.
type sessions struct {
	mu            sync.Mutex
	cur           *session
	wire          Wire // as it has turned out
	init          *message
	ready         *message           // the notification that ended the handshake
	stop          context.CancelFunc // of the listening
	noMoreStreams bool

	renewing chan struct{} // one slot
}

func (s *sessions) now() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur
}

func (s *sessions) initialized(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = &m
}

// stopListening ends the listening, for good.
func (s *sessions) stopListening() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noMoreStreams = true
	if s.stop != nil {
		s.stop()
	}
}

func (s *sessions) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noMoreStreams
}

// sendInit sends an initialize request, over what the server turns out to
// speak.
func (r *run) sendInit(c *call) (*http.Response, *session, error) {
	r.sessions.mu.Lock()
	wire := max(r.cfg.Wire, r.sessions.wire)
	r.sessions.mu.Unlock()
	if wire != HTTPWithSSE {
		resp, err := r.post(c.ctx, nil, c.msg)
		if err != nil || wire == StreamableHTTP || resp.StatusCode < 400 {
			return resp, nil, err
		}
		if !oldTransport(resp.StatusCode, keepBody(resp)) {
			return resp, nil, nil
		}
		stream, err := r.openStream(c.ctx)
		switch {
		case err != nil && judge(err).kind == "elsewhere":
			return nil, nil, err
		case err != nil:
			r.log.Debug("the server has no old transport either", "reason", judge(err).message)
			return resp, nil, nil // what it said first is the answer
		}
		r.log.Info("the server has only HTTP with SSE")
		return r.sendInitOn(c, stream)
	}
	stream, err := r.openStream(c.ctx)
	if err != nil {
		return nil, nil, err
	}
	return r.sendInitOn(c, stream)
}

func (r *run) sendInitOn(c *call, stream *oldStream) (*http.Response, *session, error) {
	s := &session{stream: stream}
	resp, err := r.sendIn(c, s)
	return resp, s, err
}

// adopt makes the session of the answer to an initialize request the one in
// use.
func (r *run) adopt(c *call, raw []byte) *failure {
	version := negotiated(raw)
	if version == "" {
		return nil // it was refused
	}
	s := &session{version: versionOf(version), stream: c.comesOn()}
	if s.stream == nil {
		var ok bool
		if s.id, ok = sessionID(c.header); !ok {
			return unanswered("session", "the server names the session in a way that no request can repeat")
		}
	}
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	old := r.sessions.cur
	r.sessions.cur = s
	r.sessions.wire = StreamableHTTP
	if s.stream != nil {
		r.sessions.wire = HTTPWithSSE
	}
	if !c.silent {
		r.sessions.init, r.sessions.ready = &c.msg, nil
	}
	if r.sessions.stop != nil {
		r.sessions.stop()
		r.sessions.stop = nil
	}
	if old != nil && old.version != s.version && c.silent {
		r.log.Warn("the new session has another protocol version", "was", old.version, "is", s.version)
	}
	r.log.Info("initialized", "version", s.version, "session", !s.id.Empty())
	return nil
}

// renew begins another session in place of one that the server has ended, by
// the same handshake, one time for everybody who was in it.
func (r *run) renew(ctx context.Context, old *session) (*session, error) {
	select {
	case r.sessions.renewing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-r.sessions.renewing }()
	r.sessions.mu.Lock()
	s, init, ready := r.sessions.cur, r.sessions.init, r.sessions.ready
	r.sessions.mu.Unlock()
	if s != old {
		return s, nil
	}
	if init == nil {
		return nil, unanswered("session", "the server does not know the session, and none was begun here")
	}
	r.log.Info("the server has ended the session, beginning another one")
	c := newCall(r.ctx, *init, init.requests())
	c.silent = true
	defer c.stop()
	r.flights.add(c)
	f := r.exchange(c, func() {})
	r.flights.remove(c)
	s = r.sessions.now()
	if f != nil || s == old {
		reason := "it gave no answer that is one"
		if f != nil && f.theirs == nil {
			reason = f.message
		}
		g := unanswered("session", "the server has ended the session and does not begin another one: %s", reason)
		if f != nil && f.authorization() {
			g.code, g.kind, g.scopes = f.code, f.kind, f.scopes
		}
		return nil, g
	}
	if ready == nil {
		return s, nil
	}
	notify, cancel := context.WithTimeout(r.ctx, r.lim.Notify)
	defer cancel()
	r.handshakeOver(notify, s, *ready)
	return s, nil
}

// handshakeOver tells the server that the handshake is over, and listens. What
// becomes of the message decides nothing: the server may have it, and if not it
// says so to what follows.
func (r *run) handshakeOver(ctx context.Context, s *session, ready message) {
	resp, err := r.post(ctx, s, ready) //nolint:bodyclose // taken does
	r.taken(ready, resp, err)
	if !ended(resp, err) {
		r.listen(s)
	}
}

// endSession tells the server that nobody will come back.
func (r *run) endSession(ctx context.Context) {
	s := r.sessions.now()
	switch {
	case s == nil:
		return
	case s.stream != nil:
		s.stream.close()
		return
	case s.id.Empty():
		return
	}
	at, err := r.place()
	if err != nil {
		return
	}
	resp, err := r.do(newRequest(ctx, http.MethodDelete, at.url, headersFor(s, r.cfg.Header), nil))
	if err != nil {
		r.log.Debug("the server was not told that the session has ended", "reason", judge(err).message)
		return
	}
	discard(resp)
	r.log.Debug("the session was ended at the server", "status", resp.StatusCode)
}
