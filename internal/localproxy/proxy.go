package localproxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/internal/secret"
)

const (
	headerTime     = 10 * time.Second // for the head of a request
	idleTime       = 2 * time.Minute  // between two of a connection
	refusedTime    = time.Second      // for the body of one that was not let in
	maxHeader      = 64 << 10
	maxConnections = 512
	graceTime      = 500 * time.Millisecond // for what is under way at the end
)

// Config describes a [Proxy]. To, Target and Transport must be set.
type Config struct {
	Listen    Address
	Target    string        // names the target in answers
	To        bearer.Origin // where all requests go
	Transport http.RoundTripper

	// RetryAfter says how long a client had better wait after a temporary
	// failure; nil, or less than a second: a second.
	RetryAfter func() time.Duration
	// Served is told of every answer.
	Served func(Served)
	// Warn is told what is wrong with a connection or with this program.
	Warn func(string)

	HeaderTime     time.Duration // for the head of a request [10 s]
	MaxConnections int           // open at a time; more wait [512]
	Grace          time.Duration // for what is under way at the end [500 ms]
}

// Served is one answer: how it went, and nothing of what it was about.
type Served struct {
	Method string
	Status int // 0: none was begun
	Sent   int64
	Took   time.Duration
}

// Proxy has its socket and serves when it is told to.
type Proxy struct {
	cfg    Config
	door   door
	at     net.Listener
	unbind func()

	running sync.WaitGroup
	mu      sync.Mutex
	ending  bool // running is not added to any more
}

// Listen binds the address. The error is one of the system's, or says that
// another server has the socket ([ErrTaken]) or that its place cannot be
// trusted ([ErrUnsafe]).
func Listen(ctx context.Context, cfg Config) (*Proxy, error) {
	if cfg.To == (bearer.Origin{}) || cfg.Transport == nil {
		return nil, errors.New("a proxy needs an origin and a way there")
	}
	cfg.HeaderTime = cmp.Or(cfg.HeaderTime, headerTime)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, maxConnections)
	cfg.Grace = cmp.Or(cfg.Grace, graceTime)
	if cfg.RetryAfter == nil {
		cfg.RetryAfter = func() time.Duration { return 0 }
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	p := &Proxy{cfg: cfg, unbind: func() {}}
	if cfg.Listen.Socket != "" {
		at, unbind, err := listenUnix(cfg.Listen.Socket, cfg.Warn)
		if err != nil {
			return nil, err
		}
		p.at, p.unbind = at, unbind
	} else {
		at, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen.TCP.String())
		if err != nil {
			return nil, err
		}
		var random [32]byte
		_, _ = rand.Read(random[:]) // never fails
		p.at, p.door = at, door{host: at.Addr().String(), secret: secret.New(base64.RawURLEncoding.EncodeToString(random[:]))}
	}
	p.at = &bounded{Listener: p.at, room: make(chan struct{}, cfg.MaxConnections), closed: make(chan struct{})}
	return p, nil
}

// Host is what must stand in the Host of a request, "" on a Unix socket.
func (p *Proxy) Host() string { return p.door.host }

// Secret is what a request on TCP must show; it is empty on a Unix socket.
func (p *Proxy) Secret() secret.Secret { return p.door.secret }

// Serve answers until ctx ends, and closes the proxy: nothing further is
// accepted, what is under way has the grace time to end and is cut off then,
// and nothing of it runs any more. It may be called once. The error is that
// of a listener that failed.
func (p *Proxy) Serve(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var http1 http.Protocols
	http1.SetHTTP1(true)
	server := &http.Server{
		Handler:           p.handler(),
		ReadHeaderTimeout: p.cfg.HeaderTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		Protocols:         &http1,
		BaseContext:       func(net.Listener) context.Context { return work },
		ErrorLog:          log.New(warner(p.cfg.Warn), "", 0),
		// "OPTIONS *" too is for the judge.
		DisableGeneralOptionsHandler: true,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(p.at) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	grace, done := context.WithTimeout(work, p.cfg.Grace)
	if server.Shutdown(grace) != nil {
		cut()
		_ = server.Close()
	}
	done()
	if err == nil {
		err = <-failed
	}
	p.running.Wait()
	p.unbind()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// Close gives the address back if Serve was not called.
func (p *Proxy) Close() {
	_ = p.at.Close()
	p.unbind()
}

// begin counts a request in, unless the proxy ends.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ending {
		p.running.Add(1)
	}
	return !p.ending
}

// warner is a log of warnings.
type warner func(string)

func (w warner) Write(b []byte) (int, error) {
	w(strings.TrimSpace(string(b)))
	return len(b), nil
}
