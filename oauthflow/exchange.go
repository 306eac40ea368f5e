package oauthflow

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/egress"
	"github.com/spendonce/spendonce/internal/secret"
)

// Requester sends requests. The zero value works: system roots, the proxy of
// the environment, the system clock. It keeps no connection and no state, so
// it may be copied and used by many goroutines.
type Requester struct {
	TLS       *tls.Config      // nil: system roots
	Now       func() time.Time // nil: time.Now
	UserAgent string           // "": spendonce

	// Proxy chooses the proxy of a URL; nil: that of the environment
	// (HTTPS_PROXY, NO_PROXY). It is never asked about a loopback host.
	Proxy func(*url.URL) (*url.URL, error)

	drain      time.Duration // 0: drainCap; tests shrink it
	probeBound time.Duration // 0: probeBound; tests shrink it
}

func (r *Requester) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// outgoing is one request: what it is called, and where its failure is to be
// told.
type outgoing struct {
	op     string
	method string
	url    *url.URL
	header http.Header
	body   io.Reader // nil: none
	sent   []secret.Secret

	headOnly bool // the answer's body is not read: it may have no end
}

// exchange sends the request once and reads the answer. An [*Error] says why
// there is none.
func (r *Requester) exchange(ctx context.Context, out outgoing) (Answer, *Error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, &Error{op: out.op, NotSent: true, cause: err, Text: "not sent: the time allowed was over before"}
	}
	w := &watch{drain: cmp.Or(r.drain, drainCap)}
	transport := r.transport(ctx, w)
	defer transport.CloseIdleConnections()

	// The request's own context never ends: the end of ctx goes through the
	// watch, which lets an answer that has arrived be read.
	traced := httptrace.WithClientTrace(context.WithoutCancel(ctx), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { w.markReady() },
	})
	req, err := http.NewRequestWithContext(traced, out.method, out.url.String(), out.body)
	if err != nil {
		return Answer{}, &Error{op: out.op, Class: ClassWrongRequest, NotSent: true, Text: "not sent: the URL cannot be requested"}
	}
	req.GetBody = nil // nothing can send it again
	req.Header = out.header
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	req.Header.Set("User-Agent", r.userAgent())

	stop := context.AfterFunc(ctx, w.end)
	defer stop()
	// RoundTrip and not Client.Do: a redirect is an answer like any other.
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return Answer{}, connectionError(ctx, out, w, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	if out.headOnly {
		return a, nil
	}
	a.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if len(a.Body) > maxAnswer {
		a.Body, a.Truncated = a.Body[:maxAnswer], true
		return a, nil
	}
	if err != nil && !settled(a) {
		return Answer{}, connectionError(ctx, out, w, err)
	}
	return a, nil
}

// settled reports whether an answer whose end is missing says enough: a JSON
// object is complete when it parses, and some rows ask only for the status.
func settled(a Answer) bool {
	return bytes.HasPrefix(bytes.TrimSpace(a.Body), []byte("{")) && json.Valid(a.Body) ||
		a.Status >= 300 && a.Status < 400 || a.Status == 429 || a.Status >= 500
}

func (r *Requester) userAgent() string {
	if r.UserAgent != "" {
		return r.UserAgent
	}
	return "spendonce"
}

// transport makes one that serves one request over one new connection. A
// reused connection is what makes net/http send a request a second time.
func (r *Requester) transport(ctx context.Context, w *watch) *http.Transport {
	conf := &tls.Config{}
	if r.TLS != nil {
		conf = r.TLS.Clone()
	}
	conf.NextProtos = nil
	// No session tickets: they would look like the first bytes of an answer.
	conf.ClientSessionCache = nil
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		// net/http detaches the context it hands in; before anything is sent
		// the caller's own may end the dialling.
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return w.dial(ctx, network, address)
		},
		Proxy:                  egress.Proxy(r.Proxy),
		TLSClientConfig:        conf,
		Protocols:              &protocols,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// connectionError words a failure without a whole answer.
func connectionError(ctx context.Context, out outgoing, w *watch, err error) *Error {
	e := &Error{op: out.op, Broken: w.wasSent()}
	e.NotSent = !e.Broken
	if w.hasEnded() {
		e.cause = ctx.Err()
		err = errBound
	}
	if red := newRedactor(out.sent); e.Broken {
		// What Go quotes here is what the server sent, as in "malformed HTTP
		// response": perhaps a token, and surely no explanation.
		why, _, _ := strings.Cut(err.Error(), `"`)
		e.Text = "sent, but no whole answer came back: " + red.excerpt(why, 160)
	} else {
		e.Text = "not sent: " + red.clean(err.Error(), 160)
	}
	return e
}
