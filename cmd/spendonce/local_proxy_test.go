//go:build linux

package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// localProxy is a running 'spendonce proxy', and what it said when it was
// ready.
type localProxy struct {
	*process
	ready struct {
		Version                     int
		Target, URL, Socket, Secret string
		ForwardsTo                  string `json:"forwards_to"`
		SecretURL                   string `json:"secret_url"`
	}
	client *http.Client
}

func (h *home) proxy(listen string, flags ...string) *localProxy {
	h.t.Helper()
	p := &localProxy{process: h.command(append([]string{"proxy", "work", "--listen", listen}, flags...)...)}
	p.Stdout = nil
	out, err := p.StdoutPipe()
	must(h.t, err)
	must(h.t, p.Start())
	h.t.Cleanup(func() { _ = p.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		_, _ = p.end()
		h.t.Fatalf("the proxy did not start: %s", p.err.String())
	}
	must(h.t, json.Unmarshal(line, &p.ready))
	transport := &http.Transport{}
	if p.ready.Socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.ready.Socket)
		}
	}
	p.client = &http.Client{Transport: transport}
	h.t.Cleanup(transport.CloseIdleConnections)
	return p
}

// get asks for a path below the target's URL.
func (p *localProxy) get(path string) (int, string) {
	p.h.t.Helper()
	req, err := http.NewRequestWithContext(p.h.t.Context(), http.MethodGet, p.ready.URL+path, nil)
	must(p.h.t, err)
	if p.ready.Secret != "" {
		req.Header.Set("Authorization", "Bearer "+p.ready.Secret)
	}
	resp, err := p.client.Do(req)
	must(p.h.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(p.h.t, err)
	return resp.StatusCode, string(b)
}

func (h *home) socket() string { return "unix:" + filepath.Join(h.dir, "run", "s") }

// expired gives a home with a resource a token that has expired.
func expiredWithResource(t *testing.T) *home {
	h := withResource(t, (*spendoncetest.TokenServer).ResourceURL)
	h.renew()
	return h
}

func TestTwentyRequestsAtOnceThroughAProxyWithAnExpiredTokenMakeOneExchange(t *testing.T) {
	for _, listen := range []string{"socket", "127.0.0.1:0", "[::1]:0"} {
		h := expiredWithResource(t)
		if listen == "socket" {
			listen = h.socket()
		}
		p := h.proxy(listen)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if status, body := p.get(fmt.Sprint("/n", i)); status != http.StatusOK || !strings.Contains(body, fmt.Sprintf(`"path":"/resource/n%d"`, i)) {
					t.Errorf("answered %d %q", status, body)
				}
			})
		}
		all.Wait()
		if c := h.server.Counters(); c.Exchanges != 1 || c.DoubleSpends != 0 || c.ResourceServed != 20 || c.ResourceRejected != 0 {
			t.Errorf("%d exchanges, %d double spends, %d served", c.Exchanges, c.DoubleSpends, c.ResourceServed)
		}
		must(t, p.Process.Signal(syscall.SIGTERM))
		if code, _ := p.end(); code != 0 || p.err.String() != "" {
			t.Errorf("ended with %d: %q", code, p.err.String())
		}
	}
}

func TestFourProxiesWithARevokedTokenMakeOneExchange(t *testing.T) {
	h := withResource(t, (*spendoncetest.TokenServer).ResourceURL)
	must(t, h.server.RevokeAccessToken(h.session.AccessToken.Reveal()))
	var all sync.WaitGroup
	for range 4 {
		p := h.proxy("127.0.0.1:0")
		for range 5 {
			all.Go(func() {
				if status, body := p.get("/x"); status != http.StatusOK {
					t.Errorf("answered %d %q", status, body)
				}
			})
		}
	}
	all.Wait()
	if c := h.server.Counters(); c.Exchanges != 1 || c.ResourceServed != 20 {
		t.Errorf("%d exchanges, %d served", c.Exchanges, c.ResourceServed)
	}
}

func TestTheSecretOfAProxyIsSaidOnceAndNowhereElse(t *testing.T) {
	h := withResource(t, (*spendoncetest.TokenServer).ResourceURL)
	p := h.proxy("127.0.0.1:0", "--verbose")
	r := p.ready
	if r.Version != 1 || r.Target != "work" || r.ForwardsTo != h.server.URL() || !strings.HasSuffix(r.URL, "/resource") || r.SecretURL != strings.Replace(r.URL, "/resource", "/"+r.Secret+"/resource", 1) {
		t.Errorf("ready: %+v", p.ready)
	}
	if status, body := p.get("/x"); status != http.StatusOK {
		t.Errorf("by the header: %d %q", status, body)
	}
	p.ready.Secret, p.ready.URL = "", r.SecretURL
	if status, body := p.get("/x?a=b"); status != http.StatusOK || strings.Contains(body, r.Secret) {
		t.Errorf("by the path: %d %q", status, body)
	}
	p.ready.URL = r.URL
	if status, _ := p.get("/x"); status != http.StatusUnauthorized {
		t.Errorf("without: %d", status)
	}
	h.awaitTalk(p.process, `"status":401`)
	secret := canary.Of("secret", r.Secret)
	canary.Absent(t, []canary.Value{secret}, canary.Places{Cmdlines: true, Dirs: []string{h.dir}, Outputs: map[string][]byte{"stderr": []byte(p.err.String())}})
	must(t, p.Process.Signal(syscall.SIGINT))
	if code, _ := p.end(); code != 0 {
		t.Errorf("ended with %d: %q", code, p.err.String())
	}
	if lines := strings.Split(strings.TrimSpace(p.err.String()), "\n"); len(lines) != 3 || !json.Valid([]byte(lines[0])) || strings.Contains(p.err.String(), "/x") {
		t.Errorf("said %q", lines)
	}
}

// B50: an exchange that has begun is committed, and the request that it was
// for is answered; whoever else waits is not.
func TestASignalLetsAProxysExchangeEndAndNothingElse(t *testing.T) {
	h := expiredWithResource(t)
	p := h.proxy(h.socket())
	must(t, h.server.Hold(spendoncetest.After))
	answered := make(chan int, 1)
	go func() {
		status, _ := p.get("/x")
		answered <- status
	}()
	h.held(spendoncetest.After, 1)
	must(t, p.Process.Signal(syscall.SIGTERM))
	h.awaitTalk(p.process, "finishing the refresh")
	must(t, h.server.Release(spendoncetest.After))
	if code, _ := p.end(); code != 0 {
		t.Errorf("ended with %d: %q", code, p.err.String())
	}
	if status := <-answered; status != http.StatusOK {
		t.Errorf("answered %d", status)
	}
	if code, token, _ := h.run("token", "work"); code != 0 || !h.server.Live(token) || h.server.Counters().Exchanges != 1 {
		t.Error("the token that was fetched is lost")
	}
	if _, err := os.Lstat(p.ready.Socket); err == nil {
		t.Error("the socket stays")
	}
}

func TestAKilledProxysSocketIsTakenOverAndALivingOnesIsNot(t *testing.T) {
	h := withResource(t, (*spendoncetest.TokenServer).ResourceURL)
	for range 3 {
		p := h.proxy(h.socket())
		if code, _, talk := h.run("proxy", "work", "--listen", h.socket()); code != 7 || !strings.Contains(talk, fmt.Sprintf("(process %d); stop it, or use another --listen", p.Process.Pid)) {
			t.Errorf("a second one ended with %d: %s", code, talk)
		}
		if status, body := p.get("/x"); status != http.StatusOK {
			t.Errorf("answered %d %q", status, body)
		}
		must(t, p.Process.Kill())
		_, _ = p.end()
		if _, err := os.Lstat(p.ready.Socket); err != nil {
			t.Fatalf("there is no stale socket to take over: %v", err)
		}
	}
}

func TestAProxySeesALoginAndALogoutElsewhere(t *testing.T) {
	h := withResource(t, (*spendoncetest.TokenServer).ResourceURL)
	p := h.proxy(h.socket())
	if status, body := p.get("/x"); status != http.StatusOK {
		t.Errorf("answered %d %q", status, body)
	}
	if code, _, talk := h.run("logout", "work"); code != 0 {
		t.Fatalf("logout ended with %d: %s", code, talk)
	}
	if status, body := p.get("/x"); status != http.StatusUnauthorized || !strings.Contains(body, `"command":"spendonce login work"`) {
		t.Errorf("without a session: %d %q", status, body)
	}
	h.renew()
	if status, body := p.get("/x"); status != http.StatusOK {
		t.Errorf("with another: %d %q", status, body)
	}
}

// The session that a proxy was started for was one of its target's origin.
func TestATokenOfAnotherOriginsSessionIsNotSentToTheOldOne(t *testing.T) {
	came := make(chan string, 10)
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- r.Header.Get("Authorization")
	}))
	defer old.Close()
	h := withResource(t, func(*spendoncetest.TokenServer) string { return old.URL })
	p := h.proxy(h.socket())
	if status, _ := p.get("/x"); status != http.StatusOK || <-came != "Bearer "+h.session.AccessToken.Reveal() {
		t.Fatalf("answered %d", status)
	}
	h.renew()
	h.write("state/sessions/work.json", fmt.Sprintf(`{"version":1,"url":%q}`, h.server.ResourceURL()))
	status, body := p.get("/x")
	if status != http.StatusBadGateway || !strings.Contains(body, `"error":"elsewhere"`) || !strings.Contains(body, "start it again") {
		t.Errorf("answered %d %q", status, body)
	}
	if len(came) > 0 {
		t.Error("the old origin was asked")
	}
	must(t, p.Process.Signal(syscall.SIGTERM))
	_, _ = p.end()
}
