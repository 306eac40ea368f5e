package spendoncetest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// ErrClosed is what waiting on a closed server gives.
var ErrClosed = errors.New("the token server is closed")

// TokenServer is a strict authorization server and a resource server behind
// it, on one loopback listener. All its methods may be called at any time
// from any goroutine.
type TokenServer struct {
	base          string // scheme://host:port, as clients see it
	local         string // the same, of the listener
	issuer        string
	clientID      string
	controlSecret string
	csrfKey       []byte
	signer        *ecdsa.PrivateKey
	http          *http.Server
	done          chan struct{} // closed by Close
	served        chan struct{} // closed when the accept loop has ended

	mu      sync.Mutex
	cfg     TokenServerConfig
	closed  bool
	count   Counters
	waiters map[*waiter]bool
	log     requestLog
	script  []*Answer
	before  *gate
	after   *gate
	grants  grants
	clients map[string]Client
	pending map[string]*authorization
	codes   map[digest]*code
	devices map[digest]*device // by device code
}

// StartTokenServer listens and serves until [TokenServer.Close].
func StartTokenServer(cfg TokenServerConfig) (*TokenServer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a signing key: %w", err)
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	base := l.Addr().String()
	if cfg.TLS != nil {
		scheme = "https"
		l = tls.NewListener(l, cfg.TLS)
	}
	s := &TokenServer{
		base:          cmp.Or(cfg.URL, scheme+"://"+base),
		local:         scheme + "://" + base,
		clientID:      cfg.Clients[0].ID,
		controlSecret: random(),
		csrfKey:       []byte(random()),
		signer:        signer,
		done:          make(chan struct{}),
		served:        make(chan struct{}),
		cfg:           cfg,
		waiters:       map[*waiter]bool{},
		log:           requestLog{size: cfg.LogSize},
		before:        newGate(),
		after:         newGate(),
		grants:        newGrants(),
		clients:       map[string]Client{},
		pending:       map[string]*authorization{},
		codes:         map[digest]*code{},
		devices:       map[digest]*device{},
	}
	s.cfg.Users = maps.Clone(cfg.Users)
	for _, c := range cfg.Clients {
		s.clients[c.ID] = c
	}
	s.issuer = s.base + cfg.IssuerPath
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		// Answers are cut off and connections broken on purpose here: what
		// net/http says about that is noise.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(l)
	}()
	return s, nil
}

// Close breaks all connections, lets go what is held, and returns when no
// request is being served any more. Closing twice is harmless.
func (s *TokenServer) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	idle := &waiter{ok: func(c Counters) bool { return c.InFlight == 0 }, met: make(chan struct{})}
	s.waiters[idle] = true
	s.update(func(*Counters) {})
	s.mu.Unlock()
	err := s.http.Close()
	<-s.served
	<-idle.met
	return err
}

// Configure changes what may change while the server runs. change is called
// under the server's lock and must not call the server; the other fields of
// its argument are ignored.
func (s *TokenServer) Configure(change func(*TokenServerConfig)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := s.cfg
	change(&cfg)
	cfg, err := cfg.withBehaviour()
	if err != nil {
		return err
	}
	old := s.cfg
	cfg.Listen, cfg.URL, cfg.TLS, cfg.IssuerPath = old.Listen, old.URL, old.TLS, old.IssuerPath
	cfg.Clients, cfg.Users, cfg.Org, cfg.LogSize, cfg.DocumentTLS = old.Clients, old.Users, old.Org, old.LogSize, old.DocumentTLS
	s.cfg = cfg
	return nil
}

// URL is the server's origin, without a trailing slash.
func (s *TokenServer) URL() string { return s.base }

// Issuer is what the metadata advertises: URL and the configured IssuerPath.
func (s *TokenServer) Issuer() string { return s.issuer }

// TokenEndpoint is where the oauth2 dialect is spoken.
func (s *TokenServer) TokenEndpoint() string { return s.base + pathToken }

// HypawareEndpoint is where the hypaware dialect is spoken.
func (s *TokenServer) HypawareEndpoint() string { return s.base + pathHypaware }

// AuthorizationURL is the authorization endpoint.
func (s *TokenServer) AuthorizationURL() string { return s.base + pathAuthorize }

// RevocationURL is the revocation endpoint (RFC 7009).
func (s *TokenServer) RevocationURL() string { return s.base + pathRevoke }

// RegistrationURL is the client registration endpoint (RFC 7591).
func (s *TokenServer) RegistrationURL() string { return s.base + pathRegister }

// DeviceURL is the device authorization endpoint (RFC 8628).
func (s *TokenServer) DeviceURL() string { return s.base + pathDevice }

// ResourceURL is the resource that access tokens open.
func (s *TokenServer) ResourceURL() string { return s.base + pathResource }

// ClientID is the first configured client, to which sessions made by
// [TokenServer.NewSession] belong.
func (s *TokenServer) ClientID() string { return s.clientID }

const (
	pathToken     = "/token"
	pathHypaware  = "/v1/identity/token"
	pathAuthorize = "/authorize"
	pathLogin     = "/login"
	pathRevoke    = "/revoke"
	pathRegister  = "/register"
	pathDevice    = "/device_authorization"
	pathVerify    = "/device"
	pathJWKS      = "/jwks"
	pathResource  = "/resource"
	pathControl   = "/control/"
)

// random is 256 bits, safe in URLs, forms and JSON as it stands.
func random() string { return rand.Text() + rand.Text() }
