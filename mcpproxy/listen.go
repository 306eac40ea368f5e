package mcpproxy

import (
	"context"
	"net/http"
	"time"
)

// listen opens the stream of what the server says by itself, and keeps it
// open as long as the session lasts.
func (r *run) listen(s *session) {
	if s == nil || s.stream != nil {
		return
	}
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	if r.sessions.cur != s || r.sessions.noMoreStreams {
		return
	}
	if r.sessions.stop != nil {
		r.sessions.stop()
	}
	ctx, stop := context.WithCancel(r.ctx)
	r.sessions.stop = stop
	r.work.Go(func() {
		defer stop()
		r.keepListening(ctx, s)
	})
}

// keepListening goes on where a stream was cut, as far as the server has
// marked the place, which means nothing in another session.
func (r *run) keepListening(ctx context.Context, s *session) {
	cursor, heard := "", false
	pause := backoff{base: r.lim.Pause}
	for ctx.Err() == nil {
		served := r.served.wait()
		resp, err := r.get(ctx, s, cursor)
		next, retry := again, time.Duration(0)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = resp.Body.Close()
			}
			return
		case err != nil:
			f := judge(err)
			r.log.Warn("the server's stream cannot be opened", "kind", f.kind, "reason", f.message)
			if f.code == CodeAuthorization {
				if !waitForServed(ctx, served, f, r.lim.Pause<<doublings) {
					return
				}
				continue
			}
		case resp.StatusCode == http.StatusOK && isType(resp, typeEvents):
			heard = true
			events := newEventReader(resp.Body, r.lim.Message, cursor)
			n, err := r.follow(ctx, nil, events)
			_ = resp.Body.Close()
			events.release()
			if n > 0 {
				pause.n = 0
			}
			if cursor, retry = events.lastID, events.retry; !canRepeat(cursor) {
				cursor = ""
			}
			r.log.Debug("the server's stream has ended", "events", n, "reason", streamFailure(err).message)
		default:
			next = afterRefusal(resp, heard, cursor)
			discard(resp)
		}
		switch next {
		case renewal:
			if _, err := r.renew(r.ctx, s); err != nil {
				r.log.Warn("the session could not be begun again", "reason", judge(err).message)
			}
			return
		case none:
			r.log.Info("the server has no stream of its own", "status", resp.StatusCode)
			return
		case fromStart:
			cursor = ""
		case again:
		}
		if !pause.sleep(ctx, retry) {
			return
		}
	}
}

// waitForServed waits until another request has gone well: then somebody has
// done what was to be done. A login is noticed after a while, too.
func waitForServed(ctx context.Context, served <-chan struct{}, f *failure, look time.Duration) bool {
	var after <-chan time.Time
	if f.kind == "login_required" || f.kind == "store" {
		// A look costs nothing: without a session nothing is sent. A token
		// that is refused would be exchanged each time.
		timer := time.NewTimer(look)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-served:
	case <-after:
	case <-ctx.Done():
		return false
	}
	return true
}

type next int

const (
	again next = iota
	fromStart
	renewal
	none
)

// afterRefusal is what follows an answer that is no stream. heard says that
// there was one before.
func afterRefusal(resp *http.Response, heard bool, cursor string) next {
	switch status := resp.StatusCode; {
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return none
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return again
	case heard && lost(resp):
		return renewal
	case heard && cursor != "":
		return fromStart
	}
	return none
}
