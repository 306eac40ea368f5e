package oauthflow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

// TestMain lets the test binary be a child of its own tests.
func TestMain(m *testing.M) {
	if do := children[os.Getenv("OAUTHFLOW_CHILD")]; do != nil {
		if err := do(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println("success")
		os.Exit(0)
	}
	// No test may need, or reach, a proxy or browser of this machine.
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "BROWSER"} {
		_ = os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m)
}

var children = map[string]func() error{"refresh": refreshChild, "legs": legsChild}

// A recorder is a server that remembers what it was sent.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []recorded
}

type recorded struct {
	method, path, body string
	header             http.Header
	proto              string
}

func (r *recorder) seen() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]recorded(nil), r.requests...)
}

// serve starts a plain server on a loopback address.
func serve(t testing.TB, h http.HandlerFunc) *recorder { return start(t, h, false) }

// serveTLS starts one that speaks TLS and would speak HTTP/2.
func serveTLS(t testing.TB, h http.HandlerFunc) *recorder { return start(t, h, true) }

func start(t testing.TB, h http.HandlerFunc, tls bool) *recorder {
	t.Helper()
	rec := &recorder{}
	rec.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rec.mu.Lock()
		rec.requests = append(rec.requests, recorded{r.Method, r.URL.Path, string(body), r.Header.Clone(), r.Proto})
		rec.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h(w, r)
	}))
	rec.Config.ErrorLog = log.New(io.Discard, "", 0)
	if tls {
		rec.EnableHTTP2 = true
		rec.StartTLS()
	} else {
		rec.Start()
	}
	t.Cleanup(rec.Close)
	return rec
}

// reply answers everything alike.
func reply(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const good = `{"access_token":"AT2","refresh_token":"RT2","expires_in":3600,"token_type":"Bearer"}`

// requester trusts the server.
func requester(s *recorder) *oauthflow.Requester {
	r := &oauthflow.Requester{}
	if tr, ok := s.Client().Transport.(*http.Transport); ok && s.TLS != nil {
		r.TLS = tr.TLSClientConfig
	}
	return r
}

func refreshRequest(url string) oauthflow.RefreshRequest {
	return oauthflow.RefreshRequest{
		Server:       oauthflow.Server{TokenEndpoint: url},
		Client:       oauthflow.Client{ID: "cid"},
		RefreshToken: secret.New("RT1"),
	}
}

// asError fails the test unless err is the package's error type.
func asError(t testing.TB, err error) *oauthflow.Error {
	t.Helper()
	var e *oauthflow.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T %v, want *oauthflow.Error", err, err)
	}
	return e
}

// deadline is for what must end by itself: it only turns a hang into a failure.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}
