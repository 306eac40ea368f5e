package oauthflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// ErrPortInUse: the fixed redirect port belongs to another program.
var ErrPortInUse = errors.New("port in use")

// callback is the loopback listener to which the browser comes back.
type callback struct {
	listener    net.Listener
	redirectURI string
	host, path  string
	server      *http.Server
	served      chan struct{}       // closed when Serve has returned; nil before serve
	result      chan callbackResult // the first right answer, from the browser or pasted
	settled     atomic.Bool
	outcome     chan page     // what the browser is to be shown when the login has ended
	shown       chan struct{} // closed when it was, or when the browser is gone
}

type callbackResult struct {
	code    secret.Secret
	err     error
	browser bool // which waits for a page
}

// expected is what the right callback carries.
type expected struct {
	state       secret.Secret
	issuer      string
	issRequired bool
}

// listenCallback binds a literal loopback address, for a name could resolve
// to something else: 127.0.0.1, or ::1 where there is no IPv4 loopback.
func listenCallback(port int, path string) (*callback, error) {
	if path == "" {
		path = "/callback"
	}
	if u, err := url.Parse(path); err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || u.Path != path {
		return nil, errors.New("the redirect path is not a plain absolute path")
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(context.Background(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil && !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
		listener, err = lc.Listen(context.Background(), "tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the redirect port %d is taken by another program: %w", port, ErrPortInUse)
	case err != nil:
		return nil, fmt.Errorf("listening for the browser: %w", err)
	}
	host := listener.Addr().String()
	return &callback{
		listener:    listener,
		redirectURI: "http://" + host + path,
		host:        host,
		path:        path,
		result:      make(chan callbackResult, 1),
		outcome:     make(chan page, 1),
		shown:       make(chan struct{}),
	}, nil
}

func (c *callback) serve(want expected) {
	c.served = make(chan struct{})
	c.server = &http.Server{
		Handler:           c.handler(want),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      5 * time.Minute, // the browser waits until the session is saved
		// Room for a URL of 1 MB, so that even that gets our own answer.
		MaxHeaderBytes: 2 << 20,
		ErrorLog:       log.New(io.Discard, "", 0), // it would print what came in
	}
	c.server.SetKeepAlivesEnabled(false)
	go func() {
		defer close(c.served)
		_ = c.server.Serve(c.listener)
	}()
}

// finish shows how the login ended to the browser that waits for it, and
// returns when that page has been handed to the kernel, or within two seconds.
func (c *callback) finish(p page) {
	c.outcome <- p
	select {
	case <-c.shown:
	case <-time.After(2 * time.Second): // a browser that does not read
	}
}

// close ends the listener and every connection.
func (c *callback) close() {
	if c.served == nil {
		_ = c.listener.Close()
		return
	}
	_ = c.server.Close()
	<-c.served
}

// handler answers stray hits with a page of fixed words. Only a hit that
// carries the right state settles the login, and only the first of them; its
// page comes when the login has ended and says how.
func (c *callback) handler(want expected) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, result := c.judgeHit(r, want)
		if result != nil && !c.settle(*result, true) {
			p, result = pageAlready, nil
		}
		if result == nil {
			p.write(w, r.Method == http.MethodHead)
			return
		}
		defer close(c.shown)
		select {
		case p = <-c.outcome:
			p.write(w, false)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
		}
	})
}

// settle takes the first result; it reports whether this is it.
func (c *callback) settle(r callbackResult, browser bool) bool {
	if !c.settled.CompareAndSwap(false, true) {
		return false
	}
	r.browser = browser
	c.result <- r
	return true
}

// judgeHit returns the page to show to a stray hit, or a result if the hit
// settles the login. A stray hit, be it a favicon or an attack, is never a reason to end.
func (c *callback) judgeHit(r *http.Request, want expected) (page, *callbackResult) {
	switch {
	case r.Host != c.host: // a name that was made to resolve to us
		return pageMisdirected, nil
	case len(r.RequestURI) > 64<<10:
		return pageTooLong, nil
	case r.URL.Path != c.path:
		return pageNotFound, nil
	case r.Method != http.MethodGet:
		return pageMethod, nil
	}
	if result := judgeAnswer(r.URL.RawQuery, want); result != nil {
		return page{}, result
	}
	return pageStray, nil
}

// judgeAnswer reads the parameters of an authorization response (RFC 6749
// section 4.1.2). nil: it does not belong to this login.
func judgeAnswer(query string, want expected) *callbackResult {
	q, err := url.ParseQuery(query)
	if err != nil || len(q["state"]) != 1 || !secret.New(q.Get("state")).Equal(want.state) {
		return nil
	}
	for _, values := range q {
		if len(values) > 1 { // RFC 6749 section 3.1: no parameter twice
			return nil
		}
	}
	code := secret.New(q.Get("code"))
	fail := func(e *Error) *callbackResult {
		e.op = "sign-in"
		return &callbackResult{err: e}
	}
	iss, present := q["iss"]
	switch {
	case present && want.issuer != "" && !SameIssuer(iss[0], want.issuer), want.issRequired && (!present || want.issuer == ""):
		return fail(&Error{Class: ClassWrongRequest, Text: "the answer came from another issuer than the one asked; it was not used"})
	case q.Get("error") != "":
		return fail(authorizationError(q, []secret.Secret{want.state, code}))
	case code.Empty():
		return fail(&Error{Class: ClassWrongRequest, Text: "the server sent the browser back without a code"})
	}
	return &callbackResult{code: code}
}

// authorizationError words an error of RFC 6749 section 4.1.2.1.
func authorizationError(q url.Values, secrets []secret.Secret) *Error {
	red := newRedactor(secrets)
	e := &Error{Class: ClassWrongRequest, Code: red.clean(q.Get("error"), 64)}
	switch q.Get("error") {
	case "access_denied":
		e.Class = ClassRefused
		e.Text = "access was denied (access_denied)"
	case "temporarily_unavailable", "server_error":
		e.Class = ClassTemporary
		fallthrough
	default:
		e.Text = "the server refused: " + e.Code
	}
	if s := red.clean(q.Get("error_description"), 160); s != "" {
		e.Text += ": " + s
	}
	return e
}
