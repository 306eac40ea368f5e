package etcdstore_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/etcdstore"
	"github.com/spendonce/spendonce/internal/secret"
)

func TestEndpointsAreHTTPSOrOnThisMachine(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://etcd.example.com:2379":      "",
		"https://192.0.2.1:2379/":            "",
		"http://127.0.0.1:2379":              "",
		"http://[::1]:2379":                  "",
		"http://localhost:2379":              "",
		"http://etcd.example.com:2379":       "use https",
		"http://192.0.2.1:2379":              "use https",
		"http://localhost.example.com:1":     "use https",
		"http://127.0.0.1.example.com:1":     "use https",
		"unix:///run/etcd.sock":              "not of the form",
		"ftp://127.0.0.1:1":                  "use https",
		"etcd.example.com:2379":              "not of the form",
		"https://user:hush@etcd.example.com": "not of the form",
		"https://etcd.example.com/path":      "not of the form",
		"https://etcd.example.com?a=hush":    "not of the form",
		"https://etcd.example.com#hush":      "not of the form",
		"https://\x7f":                       "not of the form",
		"":                                   "not of the form",
	} {
		_, err := etcdstore.Open(etcdstore.Config{Endpoints: []string{endpoint}})
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", endpoint, err)
		case want != "" && (!errors.Is(err, credstore.ErrConfig) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush")):
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	if _, err := etcdstore.Open(etcdstore.Config{}); !errors.Is(err, credstore.ErrConfig) {
		t.Errorf("without endpoints: %v", err)
	}
}

// A server may answer with anything: what it says may repeat what it was sent,
// so none of it is passed on.
func TestWhatAServerAnswersIsWordedAndNotRepeated(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.Unimplemented: credstore.ErrConfig, codes.PermissionDenied: credstore.ErrConfig, codes.Unauthenticated: credstore.ErrConfig,
		codes.Unavailable: credstore.ErrShared, codes.Internal: credstore.ErrShared, codes.Unknown: credstore.ErrShared,
		codes.ResourceExhausted: credstore.ErrShared, codes.DataLoss: credstore.ErrShared, codes.InvalidArgument: credstore.ErrShared,
	} {
		t.Run(code.String(), func(t *testing.T) {
			s := served(t, etcdstore.Config{}, func() error { return status.Error(code, "you sent hush\nand more") })
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			_, getErr := s.Get(ctx, "box")
			_, lockErr := s.Lock(ctx, credstore.SharedRequest{Target: "box", StaleAfter: time.Second})
			for what, err := range map[string]error{"get": getErr, "put": s.Put(ctx, "box", 0, []byte("hush"), nil), "lock": lockErr} {
				if !errors.Is(err, want) || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func TestAPasswordStandsInNoError(t *testing.T) {
	cfg := etcdstore.Config{Username: "someone", Password: secret.New("hush")}
	s := served(t, cfg, func() error {
		return status.Error(codes.InvalidArgument, "etcdserver: authentication failed, invalid user ID or password hush")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := s.Get(ctx, "box")
	if !errors.Is(err, credstore.ErrConfig) && !errors.Is(err, credstore.ErrShared) || strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}

func TestASignInEndsWithItsCaller(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // and nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, err := etcdstore.Open(etcdstore.Config{Endpoints: []string{"http://" + ln.Addr().String()}, Username: "someone", Password: secret.New("hush")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := s.Get(ctx, "box"); !errors.Is(err, credstore.ErrShared) {
		t.Error(err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// served is a store at a server that answers every call so.
func served(t *testing.T, cfg etcdstore.Config, answer func() error) *etcdstore.Store {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return answer() }))
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(server.Stop)
	cfg.Endpoints = []string{"http://" + ln.Addr().String()}
	s, err := etcdstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestACertificateOfStrangersIsCalledThat(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	for name, cfg := range map[string]etcdstore.Config{"anybody": {}, "someone": {Username: "someone", Password: secret.New("hush")}} {
		cfg.Endpoints = []string{server.URL}
		s, err := etcdstore.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Get(ctx, "box"); !errors.Is(err, credstore.ErrConfig) || !strings.Contains(err.Error(), "certificates") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
