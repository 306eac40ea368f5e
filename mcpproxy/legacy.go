package mcpproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spendonce/spendonce/bearer"
)

var errStreamEnded = errors.New("the server's stream has ended")

// oldStream is the connection to a server of revision 2024-11-05: one stream
// on which everything comes, and an address for what goes.
type oldStream struct {
	endpoint *url.URL
	cancel   context.CancelFunc
	ended    chan struct{}
}

func (o *oldStream) close() { o.cancel() }

func (o *oldStream) hasEnded() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

// openStream opens one, and returns when the server has said where to send
// messages: within its own origin, or nothing is sent.
func (r *run) openStream(ctx context.Context) (*oldStream, error) {
	if r.sessions.closing() {
		return nil, errClientGone
	}
	live, cancel := context.WithCancel(r.ctx)
	// What is given up before it is open does not stay.
	stop := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(r.lim.Open, cancel)
	fail := func(err error) (*oldStream, error) {
		cancel()
		if !late.Stop() && ctx.Err() == nil {
			err = unanswered("old_transport", "the server did not say within %s where it takes messages", r.lim.Open)
		}
		return nil, err
	}
	resp, err := r.get(live, nil, "")
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode != http.StatusOK || !isType(resp, typeEvents) {
		_ = resp.Body.Close()
		return fail(statusFailure(resp))
	}
	events := newEventReader(resp.Body, r.lim.Message, "")
	first, err := events.next()
	var endpoint *url.URL
	switch {
	case err != nil:
		err = unanswered("old_transport", "the server's stream broke off: %s", plainly(err))
	case first.name != "endpoint":
		err = unanswered("old_transport", "the server's stream does not begin with the place that takes messages")
	default:
		endpoint, err = r.endpoint(string(first.data))
	}
	if err == nil && !late.Stop() {
		err = errStreamEnded
	}
	if err != nil {
		_ = resp.Body.Close()
		events.release()
		return fail(err)
	}
	stop()
	o := &oldStream{endpoint: endpoint, cancel: cancel, ended: make(chan struct{})}
	r.work.Go(func() {
		defer cancel()
		defer close(o.ended)
		_, err := r.follow(live, nil, events)
		_ = resp.Body.Close()
		events.release()
		r.log.Debug("the server's stream has ended", "reason", streamFailure(err).message)
	})
	return o, nil
}

// endpoint is where a server says that it takes messages. A token goes there:
// so it must be the origin of the URL that the user has given.
func (r *run) endpoint(said string) (*url.URL, error) {
	at, err := r.place()
	if err != nil {
		return nil, err
	}
	u, err := at.url.Parse(said)
	if err != nil {
		return nil, unanswered("elsewhere", "the place at which the server says it takes messages is no URL")
	}
	u.Fragment, u.RawFragment = "", ""
	o, err := bearer.OriginOf(u)
	if err != nil || o != at.origin || u.User != nil {
		where := "a place where no token may go"
		if err == nil {
			where = o.String()
		}
		return nil, &failure{code: CodeUnanswered, kind: "elsewhere",
			message: fmt.Sprintf("the server wants messages to be sent to %s, which is not its own origin %s: nothing was sent there", where, at.origin)}
	}
	return u, nil
}

// awaitStream waits for the answers to a call on the stream of its session.
func (r *run) awaitStream(c *call) *failure {
	select {
	case <-c.done:
	case <-c.ctx.Done():
	case <-c.comesOn().ended:
		return unanswered("cut", "the server's stream broke off before the answer")
	}
	return nil
}
