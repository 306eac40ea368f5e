package bearer

import (
	"io"
	"net/http"
)

// replay is a request's body, for as often as it can be sent.
type replay struct {
	first io.ReadCloser
	get   func() (io.ReadCloser, error) // nil: there is none
	spool *spool                        // nil: not kept
	once  bool                          // there is no second time
}

// bodyOf prepares the body of a request for a second time.
func (t *Transport) bodyOf(req *http.Request) *replay {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return &replay{first: req.Body}
	case req.GetBody != nil:
		return &replay{first: req.Body, get: req.GetBody}
	case t.cfg.Replay < 0 || req.ContentLength > int64(t.cfg.Replay):
		return &replay{first: req.Body, once: true}
	}
	r := &replay{}
	r.spool, r.first = newSpool(req.Body, t.cfg.Replay)
	return r
}

// again returns the body for the second time; ok is false if there is none.
func (r *replay) again() (body io.ReadCloser, ok bool, err error) {
	switch {
	case r.once:
		return nil, false, nil
	case r.spool != nil:
		if a := r.spool.again(); a != nil {
			return a, true, nil
		}
		return nil, false, nil
	case r.get != nil:
		body, err = r.get()
		return body, true, err
	}
	return r.first, true, nil
}

// finish says that there will be no second time.
func (r *replay) finish() {
	if r.spool != nil {
		r.spool.finish()
	}
}
