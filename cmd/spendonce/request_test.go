//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
)

// withResource is a user whose access token lives long, for a resource.
func withResource(t *testing.T, url func(*spendoncetest.TokenServer) string) *home {
	t.Helper()
	h := newHome(t, spendoncetest.TokenServerConfig{})
	h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\n", url(h.server), h.server.TokenEndpoint(), h.server.ClientID()))
	b, err := json.Marshal(map[string]any{"work": map[string]string{
		"kind": "oidc", "refreshToken": h.session.RefreshToken.Reveal(), "accessJwt": h.session.AccessToken.Reveal(), "expiresAt": "2999-01-01T00:00:00.000Z",
	}})
	must(t, err)
	h.write("state/remote-credentials.json", string(b))
	return h
}

// guarded is a resource of ours that asks the token server about tokens.
func guarded(t *testing.T, handle http.HandlerFunc) (h *home) {
	t.Helper()
	var server atomic.Pointer[spendoncetest.TokenServer]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !server.Load().Live(token) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	h = withResource(t, func(*spendoncetest.TokenServer) string { return s.URL })
	server.Store(h.server)
	return h
}

// B10, by processes.
func TestTwentyRequestsAtOnceWithARefusedTokenMakeOneExchange(t *testing.T) {
	h := withResource(t, (*spendoncetest.TokenServer).ResourceURL)
	must(t, h.server.RevokeAccessToken(h.session.AccessToken.Reveal()))
	var all []*process
	for i := range 20 {
		all = append(all, h.start("request", "work", fmt.Sprint("n", i)))
	}
	for i, p := range all {
		if code, out := p.end(); code != 0 || !strings.Contains(out, fmt.Sprintf(`"path":"/resource/n%d"`, i)) || p.err.String() != "" {
			t.Errorf("exit code %d, %q, %q", code, out, p.err.String())
		}
	}
	if c := h.server.Counters(); c.Exchanges != 1 || c.DoubleSpends != 0 || c.ResourceServed != 20 {
		t.Errorf("%d exchanges, %d double spends, %d served", c.Exchanges, c.DoubleSpends, c.ResourceServed)
	}
}

// B09, by processes: the brake is in the session file.
func TestRequestsToAResourceThatRefusesEverythingAreBraked(t *testing.T) {
	h := withResource(t, (*spendoncetest.TokenServer).ResourceURL)
	must(t, h.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.RejectResource = true }))
	for i := range 8 {
		code, out, err := h.run("request", "work", "/resource")
		if code != 8 || !strings.Contains(out, "invalid_token") || strings.Count(err, "\n") != 1 {
			t.Errorf("request %d: exit code %d, %q, %q", i, code, out, err)
		}
	}
	if c := h.server.Counters(); c.Exchanges != 5 || c.ResourceRequests != 5*2+3 {
		t.Errorf("%d exchanges, %d requests", c.Exchanges, c.ResourceRequests)
	}
}

func TestABodyOfAnyLengthIsSentAgainIfItIsAFile(t *testing.T) {
	const size = 3 << 20
	count := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %c", len(b), b[0])
	}
	start := func(t *testing.T) (h *home, body string) {
		h = guarded(t, count)
		h.write("body", strings.Repeat("y", 10)+strings.Repeat("x", size-10))
		must(t, h.server.RevokeAccessToken(h.session.AccessToken.Reveal()))
		return h, filepath.Join(h.dir, "body")
	}
	t.Run("by name", func(t *testing.T) {
		h, body := start(t)
		if code, out, err := h.run("request", "work", "/", "--data", "@"+body); code != 0 || out != fmt.Sprint(size, " y") {
			t.Errorf("exit code %d, %q, %q", code, out, err)
		}
	})
	t.Run("as standard input, from where it stands", func(t *testing.T) {
		h, body := start(t)
		f, err := os.Open(body)
		must(t, err)
		defer f.Close()
		_, err = f.Seek(10, io.SeekStart)
		must(t, err)
		p := h.command("request", "work", "/", "--data", "-")
		p.Stdin = f
		must(t, p.Start())
		if code, out := p.end(); code != 0 || out != fmt.Sprint(size-10, " x") {
			t.Errorf("exit code %d, %q, %q", code, out, p.err.String())
		}
	})
	t.Run("not from a pipe, which is said, and the next one is served", func(t *testing.T) {
		h, _ := start(t)
		run := func(size int) (int, string, string) {
			p := h.command("request", "work", "/", "--data", "-")
			p.Stdin = io.MultiReader(strings.NewReader(strings.Repeat("x", size))) // exec makes a pipe of it
			must(t, p.Start())
			code, out := p.end()
			return code, out, p.err.String()
		}
		if code, out, err := run(size); code != 5 || out != "" || !strings.Contains(err, "cannot be sent twice") {
			t.Errorf("the first: exit code %d, %q, %q", code, out, err)
		}
		if code, out, err := run(size); code != 0 || out != fmt.Sprint(size, " x") {
			t.Errorf("the second: exit code %d, %q, %q", code, out, err)
		}
	})
	t.Run("or a short pipe", func(t *testing.T) {
		h, _ := start(t)
		p := h.command("request", "work", "/", "--data", "-")
		p.Stdin = io.MultiReader(strings.NewReader("hello"))
		must(t, p.Start())
		if code, out := p.end(); code != 0 || out != "5 h" {
			t.Errorf("exit code %d, %q, %q", code, out, p.err.String())
		}
	})
}

func TestAnAnswerIsPrintedAsItArrives(t *testing.T) {
	next := make(chan struct{})
	h := guarded(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
			}
		}
	})
	p := h.command("request", "work", "/")
	p.Stdout = nil
	out, err := p.StdoutPipe()
	must(t, err)
	must(t, p.Start())
	for i := range 3 {
		line := make([]byte, len("data: 0\n"))
		if _, err := io.ReadFull(out, line); err != nil || string(line) != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		next <- struct{}{}
	}
	if code, _ := p.end(); code != 0 {
		t.Errorf("exit code %d, %q", code, p.err.String())
	}
}

func TestASignalEndsARequestAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		args  []string
		serve func(w http.ResponseWriter, r *http.Request)
	}{
		"that is not answered":     {[]string{"/"}, func(http.ResponseWriter, *http.Request) {}},
		"whose body does not come": {[]string{"/", "--data", "-"}, func(http.ResponseWriter, *http.Request) {}},
		"whose answer does not end": {[]string{"/"}, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "the beginning")
			_ = http.NewResponseController(w).Flush()
		}},
		"whose answer nobody reads": {[]string{"/"}, func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			arrived, done := make(chan struct{}, 1), make(chan struct{})
			h := guarded(t, func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				tt.serve(w, r)
				<-done
			})
			defer close(done)
			p := h.command(append([]string{"request", "work"}, tt.args...)...)
			stdin, err := p.StdinPipe()
			must(t, err)
			defer stdin.Close()
			p.Stdout = nil
			out, err := p.StdoutPipe() // read by nobody
			must(t, err)
			defer out.Close()
			must(t, p.Start())
			t.Cleanup(func() { _ = p.Process.Kill() })
			<-arrived
			must(t, p.Process.Signal(syscall.SIGINT))
			if code, _ := p.end(); code != 130 {
				t.Errorf("exit code %d, %q", code, p.err.String())
			}
		})
	}
}
