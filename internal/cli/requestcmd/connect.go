package requestcmd

import (
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/logincmd"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

// Connection sends requests with the token of one target, for a command that
// carries other programs' requests for as long as they run. It is an
// [http.RoundTripper].
type Connection struct {
	app    *app
	target string
	cfg    ConnectConfig
	store  *credstore.Store
	source *credstore.Source

	mu        sync.Mutex
	url       string
	transport *bearer.Transport // nil: it is not known where the token may go

	login signIns
}

// ConnectConfig describes a [Connection].
type ConnectConfig struct {
	// HeaderTimeout: see [bearer.Config].
	HeaderTimeout time.Duration
	// Warn is told of a session that could not be saved.
	Warn func(error)
	// SignIn lets a person sign in when that is what a request needs.
	SignIn bool
}

// unknownPlace: a target of which nothing is known, so that its token could
// go nowhere. It is a [credstore.ErrUnknownTarget] and, as for another program
// the same is to be done, a [credstore.ErrNoCredential].
type unknownPlace struct{ target string }

func (e unknownPlace) Error() string {
	return fmt.Sprintf("it is not known where the token of %s may go: sign in with 'spendonce login %s --url URL'", e.target, e.target)
}

func (unknownPlace) Unwrap() []error {
	return []error{credstore.ErrUnknownTarget, credstore.ErrNoCredential}
}

// Connect prepares requests to a target. Whether there is a session is seen at
// each request, and so is where it may go, if that is not known yet: an error
// is one of what the user has written.
func Connect(cred *credcmd.App, target string, cfg ConnectConfig) (*Connection, error) {
	a := &app{cred}
	s, err := a.Open()
	if err != nil {
		return nil, err
	}
	source, err := a.Source(s, target)
	if err != nil {
		return nil, err
	}
	c := &Connection{app: a, target: target, cfg: cfg, store: s, source: source}
	c.login.slot = make(chan struct{}, 1)
	var exit *streams.Exit
	if _, err := c.Locate(); errors.As(err, &exit) || errors.Is(err, bearer.ErrNotAnOrigin) {
		return nil, err
	}
	return c, nil
}

// Locate returns the URL of the target's service, as soon as it is known.
func (c *Connection) Locate() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil {
		return c.url, nil
	}
	address, to, err := c.now()
	if err != nil {
		return "", err
	}
	c.transport, err = bearer.New(bearer.Config{
		Target: c.target, Origins: []bearer.Origin{to}, HeaderTimeout: c.cfg.HeaderTimeout, Warn: c.cfg.Warn,
		Source: &settled{source: c.source, origin: to, now: func() (bearer.Origin, error) {
			_, o, err := c.now()
			return o, err
		}},
	})
	c.url = address
	return c.url, err
}

// now is where the target's service is, by what is stored and configured now.
func (c *Connection) now() (address string, to bearer.Origin, err error) {
	p, err := c.app.knownPlace(c.store, c.target)
	if err != nil {
		return "", bearer.Origin{}, err
	}
	if p.URL == "" || len(p.Origins) == 0 {
		return "", bearer.Origin{}, unknownPlace{c.target}
	}
	to, err = bearer.ParseOrigin(p.URL)
	return p.URL, to, err
}

// RoundTrip implements [http.RoundTripper].
func (c *Connection) RoundTrip(req *http.Request) (*http.Response, error) {
	began := c.login.count()
	resp, err := c.send(req)
	if !c.cfg.SignIn || !errors.Is(err, credstore.ErrLoginRequired) && !errors.Is(err, credstore.ErrNoCredential) {
		return resp, err
	}
	var unknown unknownPlace
	if errors.As(err, &unknown) || req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return nil, err // a login needs a URL, and a second request its body
	}
	if failed := c.signIn(req.Context(), began); failed != nil {
		return nil, fmt.Errorf("%w (%s)", err, failed.Error())
	}
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		var bad error
		if again.Body, bad = req.GetBody(); bad != nil {
			return nil, err
		}
	}
	return c.send(again)
}

func (c *Connection) send(req *http.Request) (*http.Response, error) {
	if _, err := c.Locate(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	return c.transport.RoundTrip(req)
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] calls.
func (c *Connection) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// Close returns when every exchange that was begun has been committed. None
// begins after it; tokens that are fresh are still had.
func (c *Connection) Close() { credcmd.CloseStore(c.store) }

// signIns lets one request at a time have a person asked.
type signIns struct {
	slot chan struct{}

	mu     sync.Mutex
	done   int
	failed time.Time
}

func (s *signIns) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// signIn has a person sign in, as 'spendonce login' does: of all processes
// that want that, one asks. What another request has brought since began is as
// good.
func (c *Connection) signIn(ctx context.Context, began int) error {
	select {
	case c.login.slot <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.login.slot }()
	c.login.mu.Lock()
	done, failed := c.login.done, c.login.failed
	c.login.mu.Unlock()
	switch {
	case done != began:
		return nil
	case !failed.IsZero() && time.Since(failed) < logincmd.Pause:
		return logincmd.ErrAskedAlready
	}
	err := logincmd.SignIn(ctx, c.app.App, c.store, c.target)
	c.login.mu.Lock()
	defer c.login.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, logincmd.ErrAskedAlready) {
			c.login.failed = time.Now()
		}
		return errors.New(strings.TrimSpace(err.Error()))
	}
	c.login.done++
	return nil
}
