package oauthflow_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

// refreshChild makes one exchange within OAUTHFLOW_BOUND.
func refreshChild() error {
	bound, err := time.ParseDuration(os.Getenv("OAUTHFLOW_BOUND"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	got, err := (&oauthflow.Requester{}).Refresh(ctx, refreshRequest(os.Getenv("OAUTHFLOW_URL")))
	if err != nil {
		return err
	}
	// The timer itself may come after the answer: that is the race.
	if end, _ := ctx.Deadline(); time.Now().Before(end) {
		return errors.New("the bound had not passed: the test shows nothing")
	}
	if got.RefreshToken.Reveal() != "RT2" {
		return errors.New("another answer came")
	}
	return nil
}

// child starts the test binary as a child. Its certificates are the server's.
func child(t *testing.T, mode string, certs string, env ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "OAUTHFLOW_CHILD="+mode, "SSL_CERT_FILE="+certs)
	cmd.Env = append(cmd.Env, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func certFile(t *testing.T, s *recorder) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A process is stopped in mid-exchange, the answer arrives, the bound passes,
// the process goes on: its timer and its socket are ready at once, and the
// answer must win, every time.
func TestTheAnswerWinsAfterTheProcessWasStopped(t *testing.T) {
	batches, size := 2, 10
	if testing.Short() {
		batches, size = 1, 4
	}
	// Long enough for a child to be stopped before it has passed.
	const bound = 2 * time.Second
	for batch := range batches {
		arrived := make([]chan struct{}, size)
		proceed, answered := make([]chan struct{}, size), make([]chan struct{}, size)
		for i := range size {
			arrived[i], proceed[i], answered[i] = make(chan struct{}), make(chan struct{}), make(chan struct{})
		}
		handler := func(w http.ResponseWriter, r *http.Request) {
			var i int
			if _, err := fmt.Sscanf(r.URL.Path, "/%d", &i); err != nil {
				return
			}
			close(arrived[i])
			<-proceed[i]
			w.Header().Set("Content-Length", fmt.Sprint(len(good)))
			_, _ = io.WriteString(w, good)
			_ = http.NewResponseController(w).Flush()
			close(answered[i])
		}
		tlsServer, plainServer := serveTLS(t, handler), serve(t, handler)
		certs := certFile(t, tlsServer)
		var wg sync.WaitGroup
		for i := range size {
			wg.Go(func() {
				server := plainServer
				if i%2 == 0 {
					server = tlsServer
				}
				cmd, out := child(t, "refresh", certs, "OAUTHFLOW_BOUND="+bound.String(), fmt.Sprintf("OAUTHFLOW_URL=%s/%d", server.URL, i))
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				pid := cmd.Process.Pid
				<-arrived[i]
				_ = unix.Kill(pid, unix.SIGSTOP)
				var status unix.WaitStatus
				if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
					t.Errorf("the child was not stopped: %v, status %#x", err, status)
				}
				stopped := time.Now()
				close(proceed[i])
				<-answered[i]
				// The passing of time is the event that is awaited here.
				time.Sleep(time.Until(stopped.Add(bound)))
				_ = unix.Kill(pid, unix.SIGCONT)
				if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "success") {
					t.Errorf("batch %d, child %d: %v: %s", batch, i, err, out)
				}
			})
		}
		wg.Wait()
	}
}

// legsChild makes every kind of request with what the environment gives.
func legsChild() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := &oauthflow.Requester{UserAgent: "legs"}
	server, err := r.Discover(ctx, "https://example.com")
	if err != nil {
		return err
	}
	client := oauthflow.Client{ID: "cid"}
	if _, err := r.Refresh(ctx, oauthflow.RefreshRequest{Server: server, Client: client, RefreshToken: secret.New("RT1")}); err != nil {
		return err
	}
	if _, err := r.ExchangeCode(ctx, oauthflow.CodeRequest{Server: server, Client: client, Code: secret.New("c"), Verifier: secret.New("v")}); err != nil {
		return err
	}
	if err := r.Revoke(ctx, server, client, secret.New("RT1"), "refresh_token"); err != nil {
		return err
	}
	// The proxy is not asked about this machine.
	for _, host := range []string{"127.0.0.1", "localhost"} {
		url := strings.Replace(os.Getenv("OAUTHFLOW_URL"), "127.0.0.1", host, 1)
		if _, err := r.Refresh(ctx, refreshRequest(url)); err != nil {
			return err
		}
	}
	return nil
}

func TestEveryRequestGoesThroughTheProxyAndTrustsThePrivateCA(t *testing.T) {
	const issuer = "https://example.com"
	as := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"token_endpoint":%q,"revocation_endpoint":%q}`, issuer, issuer+"/token", issuer+"/revoke")
			return
		}
		_, _ = io.WriteString(w, good)
	})
	local := serve(t, reply(200, "", good))
	u, err := url.Parse(as.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, connects := tunnel(t, u.Host)
	cmd, out := child(t, "legs", certFile(t, as), "HTTPS_PROXY="+proxy, "HTTP_PROXY="+proxy, "NO_PROXY=", "OAUTHFLOW_URL="+local.URL)
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "success") {
		t.Fatalf("%v: %s", err, out)
	}
	if got, want := len(connects()), 4; got != want {
		t.Errorf("the proxy saw %d connections, want %d: %q", got, want, connects())
	}
	if n := len(as.seen()); n != 4 {
		t.Errorf("the server saw %d requests", n)
	}
	if n := len(local.seen()); n != 2 {
		t.Errorf("the loopback server saw %d requests", n)
	}
}
