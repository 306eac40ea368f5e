package localproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/localproxy"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what must happen; nothing asserts how long it takes.
const patience = 90 * time.Second

// source has one token after another: who names the last one as rejected gets
// a new one.
type source struct {
	mu     sync.Mutex
	tokens []canary.Value
	asked  int
	err    error // of every request
	renew  error // of every one that names a rejected token
}

func (s *source) Get(_ context.Context, req credstore.Request) (credstore.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.err != nil {
		return credstore.Token{}, s.err
	}
	last := s.tokens[len(s.tokens)-1].Secret
	if !req.Rejected.Empty() && req.Rejected.Equal(last) {
		if s.renew != nil {
			return credstore.Token{}, s.renew
		}
		s.tokens = append(s.tokens, canary.New("token"))
		last = s.tokens[len(s.tokens)-1].Secret
	}
	return credstore.Token{AccessToken: last, Kind: credstore.KindOIDC}, nil
}

func (s *source) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// site is an upstream, a proxy before it, and what both saw.
type site struct {
	t        *testing.T
	source   *source
	upstream *httptest.Server
	proxy    *localproxy.Proxy
	address  localproxy.Address
	client   *http.Client
	end      func() error // ends the proxy
	base     string       // the URL of the proxy

	mu       sync.Mutex
	heads    []*http.Request // as the upstream saw them
	warnings []string
	said     strings.Builder // all that a client was told
	served   chan localproxy.Served
}

type options struct {
	unix    bool
	address string
	cfg     localproxy.Config
}

// newSite starts a proxy, on 127.0.0.1 unless told otherwise.
func newSite(t *testing.T, o options, handle http.HandlerFunc) *site {
	t.Helper()
	s := &site{t: t, source: &source{tokens: []canary.Value{canary.New("token")}}, served: make(chan localproxy.Served, 1000)}
	s.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.heads = append(s.heads, r.Clone(context.Background()))
		s.mu.Unlock()
		handle(w, r)
	}))
	t.Cleanup(s.upstream.Close)
	to, err := bearer.ParseOrigin(s.upstream.URL)
	must(t, err)
	transport, err := bearer.New(bearer.Config{Target: "work", Source: s.source, Origins: []bearer.Origin{to}})
	must(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	switch {
	case o.unix:
		dir, err := os.MkdirTemp("", "proxy") //nolint:usetesting // the path of a socket must be short
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		s.address.Socket = filepath.Join(dir, "a", "s")
	case o.address != "":
		s.address.TCP = netip.MustParseAddrPort(o.address)
	default:
		s.address.TCP = netip.MustParseAddrPort("127.0.0.1:0")
	}
	cfg := o.cfg
	cfg.Listen, cfg.Target, cfg.To, cfg.Transport = s.address, "work", to, transport
	cfg.Served = func(a localproxy.Served) { s.served <- a }
	cfg.Warn = func(text string) {
		s.mu.Lock()
		s.warnings = append(s.warnings, text)
		s.mu.Unlock()
	}
	s.proxy, err = localproxy.Listen(t.Context(), cfg)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.proxy.Serve(ctx) }()
	s.end = sync.OnceValue(func() error {
		stop()
		return <-ended
	})
	s.base = "http://" + s.proxy.Host()
	dial := &http.Transport{DisableCompression: true}
	if o.unix {
		s.base = "http://anything"
		dial.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.address.Socket)
		}
	}
	s.client = &http.Client{Transport: dial, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		dial.CloseIdleConnections()
		if err := s.end(); err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
		s.silent()
	})
	return s
}

// silent fails the test if a token, or the secret of the proxy, was said to
// anybody whom it is not for.
func (s *site) silent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.said.String() + strings.Join(s.warnings, "\n")
	canary.Absent(s.t, s.source.tokens, canary.Places{Outputs: map[string][]byte{"what the client was told": []byte(told)}})
	if secret := s.proxy.Secret(); !secret.Empty() {
		var upstream strings.Builder
		for _, r := range s.heads {
			fmt.Fprintln(&upstream, r.Method, r.RequestURI, r.Host, r.Header)
		}
		canary.Absent(s.t, []canary.Value{{Name: "secret", Secret: secret}}, canary.Places{Outputs: map[string][]byte{
			"what the target was told": []byte(upstream.String()), "warnings": []byte(strings.Join(s.warnings, "\n")),
		}})
	}
}

// seen are the heads of the requests that reached the upstream.
func (s *site) seen() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.heads...)
}

// request makes one that is let in.
func (s *site) request(method, path string, body io.Reader) *http.Request {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, body)
	must(s.t, err)
	if secret := s.proxy.Secret(); !secret.Empty() {
		req.Header.Set("Authorization", "Bearer "+secret.Reveal())
	}
	return req
}

// do sends a request and returns the whole answer.
func (s *site) do(req *http.Request) (*http.Response, string) {
	s.t.Helper()
	resp, err := s.client.Do(req)
	must(s.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(s.t, err)
	s.mu.Lock()
	fmt.Fprintln(&s.said, resp.Status, resp.Header, string(b))
	s.mu.Unlock()
	return resp, string(b)
}

// dial connects as any program may.
func (s *site) dial() net.Conn {
	s.t.Helper()
	network, address := "tcp", s.proxy.Host()
	if s.address.Socket != "" {
		network, address = "unix", s.address.Socket
	}
	c, err := net.Dial(network, address)
	must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	must(s.t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// raw sends bytes and reads the head and body of one answer.
func (s *site) raw(text string) *http.Response {
	s.t.Helper()
	c := s.dial()
	_, err := io.WriteString(c, text)
	must(s.t, err)
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	must(s.t, err)
	b, err := io.ReadAll(resp.Body)
	must(s.t, err)
	must(s.t, resp.Body.Close())
	s.mu.Lock()
	fmt.Fprintln(&s.said, resp.Status, resp.Header, string(b))
	s.mu.Unlock()
	return resp
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }
