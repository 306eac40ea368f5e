package oauthflow_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spendonce/spendonce/oauthflow"
)

// rawServer gives every connection, with its request read, to answer, and
// counts them.
func rawServer(t *testing.T, answer func(net.Conn)) (url string, requests *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int32)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				requests.Add(1)
				answer(c)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String() + "/token", requests
}

func TestABrokenConnectionIsNotAnAnswerAndNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  string
		reset  bool
		broken bool
		class  oauthflow.Class
	}{
		"closed":             {"", false, true, oauthflow.ClassTemporary},
		"reset":              {"", true, true, oauthflow.ClassTemporary},
		"half a status":      {"HTTP/1.1 20", false, true, oauthflow.ClassTemporary},
		"half a header":      {"HTTP/1.1 200 OK\r\nContent-Le", false, true, oauthflow.ClassTemporary},
		"not HTTP":           {"SSH-2.0-OpenSSH_9.9\r\n", false, true, oauthflow.ClassTemporary},
		"half a body":        {"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"access_token\":\"AT2\",", false, true, oauthflow.ClassTemporary},
		"half a form":        {"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\naccess_token=AT2&refresh_token=R", false, true, oauthflow.ClassTemporary},
		"a whole object":     {"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + good, false, false, success},
		"a whole refusal":    {"HTTP/1.1 400 Bad\r\nContent-Length: 900\r\n\r\n{\"error\":\"invalid_grant\"}", false, false, oauthflow.ClassRefused},
		"an unfinished 503":  {"HTTP/1.1 503 Down\r\nContent-Length: 900\r\n\r\n<html>", false, false, oauthflow.ClassTemporary},
		"an unfinished text": {"HTTP/1.1 401 No\r\nContent-Length: 900\r\n\r\nUnauth", false, true, oauthflow.ClassTemporary},
	} {
		url, requests := rawServer(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, c.bytes)
			if tcp, ok := conn.(*net.TCPConn); ok && c.reset {
				_ = tcp.SetLinger(0)
			}
		})
		tokens, err := (&oauthflow.Requester{}).Refresh(deadline(t), refreshRequest(url))
		if n := requests.Load(); n != 1 {
			t.Errorf("%s: the request was sent %d times", name, n)
		}
		if c.class == success {
			if err != nil || tokens.RefreshToken.Reveal() != "RT2" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if e := asError(t, err); e.Broken != c.broken || e.NotSent || e.Class != c.class {
			t.Errorf("%s: %+v", name, *e)
		}
	}
}

func TestWhatFailsBeforeTheRequestWasSurelyNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	tlsServer := serveTLS(t, reply(200, "", good))
	plainServer := serve(t, reply(200, "", good))
	noProxy := serve(t, reply(http.StatusProxyAuthRequired, "", ""))

	viaProxy := &oauthflow.Requester{Proxy: func(*url.URL) (*url.URL, error) { return url.Parse(noProxy.URL) }}
	badProxy := &oauthflow.Requester{Proxy: func(*url.URL) (*url.URL, error) { return nil, errors.New("no such proxy") }}
	deadProxy := &oauthflow.Requester{Proxy: func(*url.URL) (*url.URL, error) { return url.Parse("http://" + closed) }}
	for name, c := range map[string]struct {
		r   *oauthflow.Requester
		url string
	}{
		"connection refused":        {&oauthflow.Requester{}, "http://" + closed},
		"certificate of a stranger": {&oauthflow.Requester{}, tlsServer.URL},
		"certificate of another":    {requester(tlsServer), strings.Replace(tlsServer.URL, "127.0.0.1", "127.0.0.2", 1)},
		"TLS to a plain server":     {&oauthflow.Requester{}, strings.Replace(plainServer.URL, "http:", "https:", 1)},
		"proxy refuses":             {viaProxy, "https://as.example/token"},
		"proxy unknown":             {badProxy, "https://as.example/token"},
		"proxy is down":             {deadProxy, "https://as.example/token"},
	} {
		_, err := c.r.Refresh(deadline(t), refreshRequest(c.url))
		if e := asError(t, err); !e.NotSent || e.Broken || e.Class != oauthflow.ClassTemporary || e.Status != 0 {
			t.Errorf("%s: %+v", name, *e)
		}
	}
	if n := len(tlsServer.seen()) + len(plainServer.seen()); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestTheEndOfTheContextBeforeAnAnswerIsUnknown(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	defer close(release)
	ctx, cancel := context.WithCancel(deadline(t))
	go func() { <-arrived; cancel() }()
	_, err := requester(s).Refresh(ctx, refreshRequest(s.URL))
	if e := asError(t, err); !e.Broken || e.NotSent || e.Class != oauthflow.ClassTemporary || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v", *e)
	}
}

func TestTheEndOfTheContextBeforeTheRequestSendsNothing(t *testing.T) {
	s := serve(t, reply(200, "", good))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := requester(s).Refresh(ctx, refreshRequest(s.URL))
	if e := asError(t, err); !e.NotSent || !errors.Is(err, context.Canceled) || len(s.seen()) != 0 {
		t.Errorf("%+v, %d requests", *e, len(s.seen()))
	}

	// In the handshake: the server takes the connection and says nothing.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel = context.WithCancel(deadline(t))
	held := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.ReadFull(c, make([]byte, 5)) // the hello has begun to arrive
			cancel()
			held <- c
		}
	}()
	_, err = (&oauthflow.Requester{}).Refresh(ctx, refreshRequest("https://"+l.Addr().String()))
	if e := asError(t, err); !e.NotSent || e.Broken || !errors.Is(err, context.Canceled) {
		t.Errorf("in the handshake: %+v", *e)
	}
	_ = (<-held).Close()
}

// The answer begins, the context ends, the rest follows.
func TestAnAnswerThatHasBegunIsReadToItsEnd(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *recorder{"plain": serve, "tls": serveTLS} {
		ctx, cancel := context.WithCancel(deadline(t))
		s := start(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range len(good) {
				_, _ = io.WriteString(w, good[i:i+1])
				_ = http.NewResponseController(w).Flush()
				if i == 3 {
					cancel()
				}
			}
		})
		got, err := requester(s).Refresh(ctx, refreshRequest(s.URL))
		if err != nil || got.RefreshToken.Reveal() != "RT2" {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestAServerThatDripsDoesNotHoldUsForEver(t *testing.T) {
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	gone := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range 500 { // not for ever, so that a failure is one
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			cancel()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, good)
	})
	r := requester(s)
	r.ShrinkDrain(300 * time.Millisecond)
	_, err := r.Refresh(ctx, refreshRequest(s.URL))
	if e := asError(t, err); !e.Broken || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v", *e)
	}
	<-gone // our end was closed
}

// tunnel is a CONNECT proxy that leads every host to one address.
func tunnel(t *testing.T, to string) (proxy string, hosts func() []string) {
	t.Helper()
	rec := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		up, err := net.Dial("tcp", to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = up.Close() }()
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = down.Close() }()
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		end := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{up, down}, {down, up}} {
			go func() { _, _ = io.Copy(pair[0], pair[1]); end <- struct{}{} }()
		}
		<-end
	})
	return rec.URL, func() (hosts []string) {
		for _, q := range rec.seen() {
			hosts = append(hosts, q.method+" "+q.header.Get("User-Agent"))
		}
		return hosts
	}
}

func TestTheProxyIsNeverAskedAboutThisMachine(t *testing.T) {
	s := serve(t, reply(200, "", good))
	r := requester(s)
	r.Proxy = func(u *url.URL) (*url.URL, error) {
		t.Errorf("asked about %s", u)
		return nil, nil
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if _, err := r.Refresh(deadline(t), refreshRequest(strings.Replace(s.URL, "127.0.0.1", host, 1))); err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyHTTP11IsSpokenEvenWhereHTTP2IsOffered(t *testing.T) {
	s := serveTLS(t, reply(200, "", good))
	r := requester(s)
	r.TLS = r.TLS.Clone()
	r.TLS.NextProtos = []string{"h2", "http/1.1"}
	r.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	for range 2 {
		if _, err := r.Refresh(deadline(t), refreshRequest(s.URL)); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range s.seen() {
		if q.proto != "HTTP/1.1" {
			t.Errorf("spoke %s", q.proto)
		}
	}
}
