//go:build linux

package main_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// No resolver is ever asked about names in .onion (RFC 7686), so that what
// does not go by the proxy goes nowhere, with or without a network.
const (
	asName  = "as.example.onion"
	apiName = "api.example.onion"
)

// connectProxy knows names that nobody else knows, and whom it serves.
type connectProxy struct {
	*httptest.Server
	password canary.Value

	mu    sync.Mutex
	names map[string]string // host:port to address
	log   []string          // the names asked for; "refused" where the password was wrong
}

func startProxy(t *testing.T) *connectProxy {
	t.Helper()
	p := &connectProxy{password: canary.New("proxy password"), names: map[string]string{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *connectProxy) serve(w http.ResponseWriter, r *http.Request) {
	name := r.Method + " " + r.Host
	if r.Method == http.MethodConnect {
		name, _, _ = net.SplitHostPort(r.Host)
	}
	right := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+p.password.Secret.Reveal()))
	if r.Header.Get("Proxy-Authorization") != right {
		name = "refused"
	}
	p.mu.Lock()
	p.log = append(p.log, name)
	address := p.names[r.Host]
	p.mu.Unlock()
	if name == "refused" {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	there, err := net.Dial("tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(there, here)
		there.Close()
	}()
	_, _ = io.Copy(here, there)
}

// knows lets the proxy connect to a name.
func (p *connectProxy) knows(name, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[name] = address
}

// taken returns how often each name was asked for since the last call.
func (p *connectProxy) taken() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := map[string]int{}
	for _, name := range p.log {
		n[name]++
	}
	p.log = nil
	return n
}

func (p *connectProxy) at(password string) string {
	return "http://me:" + password + "@" + strings.TrimPrefix(p.URL, "http://")
}

// behind is a user whose servers are known to the proxy alone and have a
// certificate of a private authority.
type behind struct {
	*home
	proxy *connectProxy
	env   []string
}

func newBehind(t *testing.T) *behind {
	t.Helper()
	id, err := spendoncetest.SelfSigned(asName, apiName)
	must(t, err)
	h := newHome(t, spendoncetest.TokenServerConfig{URL: "https://" + asName, TLS: id.Server})
	must(t, os.Remove(filepath.Join(h.dir, "state/remote-credentials.json")))
	must(t, os.Remove(filepath.Join(h.dir, "config/spendonce/config.toml")))
	h.write("ca.pem", string(id.PEM))
	proxy := startProxy(t)
	control, err := url.Parse(h.server.ControlURL())
	must(t, err)
	proxy.knows(asName+":443", control.Host)

	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metadata := "/.well-known/oauth-protected-resource"
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case strings.HasPrefix(r.URL.Path, metadata):
			_ = json.NewEncoder(w).Encode(map[string]any{
				"resource": "https://" + apiName + strings.TrimPrefix(r.URL.Path, metadata), "authorization_servers": []string{"https://" + asName},
			})
		case !h.server.Live(token):
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="https://%s%s%s"`, apiName, metadata, r.URL.Path))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			fmt.Fprint(w, "hello")
		}
	}))
	api.TLS = id.Server.Clone()
	api.StartTLS()
	t.Cleanup(api.Close)
	proxy.knows(apiName+":443", api.Listener.Addr().String())

	b := &behind{home: h, proxy: proxy}
	b.env = append(slices.Clone(bare), "SSL_CERT_FILE="+filepath.Join(h.dir, "ca.pem"), "SSL_CERT_DIR="+filepath.Join(h.dir, "none"),
		"HTTP_PROXY="+proxy.at(proxy.password.Secret.Reveal()), "HTTPS_PROXY="+proxy.at(proxy.password.Secret.Reveal()), "NO_PROXY=",
		"http_proxy=", "https_proxy=", "no_proxy=")

	p := b.with(nil, "login", "box", "--url", "https://"+apiName+"/v1", "--no-browser")
	v := &voice{}
	p.Stderr = io.MultiWriter(&p.err, v)
	must(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	address := v.await(t, `\n  (https://\S+/authorize\?\S+)\n`)[1]
	through := &http.Transport{TLSClientConfig: id.Client(), Proxy: func(*http.Request) (*url.URL, error) {
		return url.Parse(proxy.at(proxy.password.Secret.Reveal()))
	}}
	t.Cleanup(through.CloseIdleConnections)
	if at := proxy.taken(); at[asName] < 2 || at[apiName] < 1 {
		t.Errorf("discovery and registration went by %v", at)
	}
	back, err := spendoncetest.Person{Transport: through}.Authorize(t.Context(), address)
	must(t, err)
	proxy.taken() // hers
	comeBack(t, back)
	if code, _ := p.end(); code != 0 {
		t.Fatalf("the login ended with %d: %s", code, p.err.String())
	}
	if at := proxy.taken(); at[asName] < 1 {
		t.Errorf("the code's exchange went by %v", at)
	}
	t.Cleanup(func() {
		canary.Absent(t, []canary.Value{proxy.password}, canary.Places{Outputs: map[string][]byte{"what was said": h.outputs.Bytes()}, Dirs: []string{h.dir}})
	})
	return b
}

// with is a command with further variables.
func (b *behind) with(env []string, args ...string) *process {
	p := b.command(args...)
	p.Env = append(append(p.Env, b.env...), env...)
	return p
}

// does runs a command, and returns by which names it went too.
func (b *behind) does(env []string, args ...string) (code int, said string, names map[string]int) {
	b.t.Helper()
	p := b.with(env, args...)
	must(b.t, p.Start())
	code, out := p.end()
	if args[0] == "token" {
		out = ""
	}
	return code, out + p.err.String(), b.proxy.taken()
}

// B46: all legs go one way. Discovery, registration and exchange are the
// login's.
func TestEveryRequestGoesByTheProxyAndTrustsThePrivateAuthority(t *testing.T) {
	b := newBehind(t)
	c := b.server.Counters()
	if c.Registrations != 1 || c.TokenPosts != 1 {
		t.Errorf("%d registrations, %d exchanges of a code", c.Registrations, c.TokenPosts)
	}
	for _, step := range []struct {
		args []string
		as   int
		api  int
		done func(spendoncetest.Counters) bool
	}{
		{[]string{"token", "box", "--refresh"}, 1, 0, func(c spendoncetest.Counters) bool { return c.TokenPosts == 2 }},
		{[]string{"request", "box", "/v1/x"}, 0, 1, func(spendoncetest.Counters) bool { return true }},
		{[]string{"logout", "box"}, 1, 0, func(c spendoncetest.Counters) bool { return c.Revocations > 0 }},
	} {
		code, said, by := b.does(nil, step.args...)
		if code != 0 || by[asName] < step.as || by[apiName] != step.api || !step.done(b.server.Counters()) {
			t.Errorf("%s: exit code %d, %q, by %v", step.args[0], code, said, by)
		}
	}
}

func TestNothingGoesByAProxyThatIsNotNamedOrExempted(t *testing.T) {
	b := newBehind(t)
	for name, tt := range map[string]struct {
		env  []string
		args []string
	}{
		"no proxy, a refresh":       {[]string{"HTTP_PROXY=", "HTTPS_PROXY="}, []string{"token", "box", "--refresh"}},
		"no proxy, a request":       {[]string{"HTTP_PROXY=", "HTTPS_PROXY="}, []string{"request", "box", "/"}},
		"exempted, a refresh":       {[]string{"NO_PROXY=" + asName}, []string{"token", "box", "--refresh"}},
		"exempted, a request":       {[]string{"NO_PROXY=.example.onion"}, []string{"request", "box", "/"}},
		"exempted, looking for one": {[]string{"NO_PROXY=" + apiName}, []string{"login", "other", "--url", "https://" + apiName + "/v1", "--no-browser"}},
	} {
		code, said, by := b.does(tt.env, tt.args...)
		if code != 5 || len(by) != 0 {
			t.Errorf("%s: exit code %d, %q, by %v", name, code, said, by)
		}
		forgetBackoff(b.home)
	}
	if code, said, by := b.does([]string{"NO_PROXY=" + apiName}, "token", "box", "--refresh"); code != 0 || by[asName] != 1 {
		t.Errorf("what is not exempted: exit code %d, %q, by %v", code, said, by)
	}
}

func TestLoopbackNeverGoesByAProxy(t *testing.T) {
	b := newBehind(t)
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
	t.Cleanup(here.Close)
	b.write("config/spendonce/config.toml", fmt.Sprintf("[targets.here]\nurl = %q\nhosts = [%q, %q]\n",
		here.URL, strings.Replace(here.URL, "127.0.0.1", "localhost", 1), b.server.ControlURL()))
	for _, to := range []string{"/", strings.Replace(here.URL, "127.0.0.1", "localhost", 1), b.server.ControlURL() + "../jwks"} {
		code, said, by := b.does([]string{"SPENDONCE_TOKEN_HERE=not-a-secret"}, "request", "here", to)
		if code != 0 || len(by) != 0 {
			t.Errorf("%s: exit code %d, %q, by %v", to, code, said, by)
		}
	}
}

func TestAProxyThatRefusesIsSaidWithoutItsPassword(t *testing.T) {
	b := newBehind(t)
	wrong := canary.New("wrong proxy password")
	for _, args := range [][]string{{"token", "box", "--refresh"}, {"request", "box", "/"}, {"login", "other", "--url", "https://" + apiName, "--no-browser"}} {
		code, said, by := b.does([]string{"HTTPS_PROXY=" + b.proxy.at(wrong.Secret.Reveal())}, args...)
		if code != 5 || by["refused"] == 0 || len(by) != 1 || !strings.Contains(said, "Proxy Authentication Required") {
			t.Errorf("%s: exit code %d, %q, by %v", args[0], code, said, by)
		}
		forgetBackoff(b.home)
	}
	for _, args := range [][]string{{"token", "box", "--refresh"}, {"request", "box", "/"}} {
		if code, said, _ := b.does([]string{"HTTPS_PROXY=http://me:" + wrong.Secret.Reveal() + "@127.0.0.1:1"}, args...); code != 5 {
			t.Errorf("%s by a proxy that is not there: exit code %d, %q", args[0], code, said)
		}
		forgetBackoff(b.home)
	}
	canary.Absent(t, []canary.Value{wrong}, canary.Places{Outputs: map[string][]byte{"what was said": b.outputs.Bytes()}, Dirs: []string{b.dir}})
}

func TestWithoutThePrivateAuthorityNothingIsSent(t *testing.T) {
	b := newBehind(t)
	posts := b.server.Counters().TokenPosts
	for _, args := range [][]string{{"token", "box", "--refresh"}, {"request", "box", "/"}} {
		code, said, _ := b.does([]string{"SSL_CERT_FILE=" + filepath.Join(b.dir, "none")}, args...)
		if code != 5 || !strings.Contains(said, "certificate") {
			t.Errorf("%s: exit code %d, %q", args[0], code, said)
		}
		forgetBackoff(b.home)
	}
	if n := b.server.Counters().TokenPosts; n != posts {
		t.Errorf("%d token requests arrived", n-posts)
	}
}

// forgetBackoff lets the next command try at once what has just failed.
func forgetBackoff(h *home) {
	h.t.Helper()
	name := filepath.Join(h.dir, "state/sessions/box.json")
	b, err := os.ReadFile(name)
	must(h.t, err)
	var s map[string]any
	must(h.t, json.Unmarshal(b, &s))
	delete(s, "notBefore")
	delete(s, "failures")
	b, err = json.Marshal(s)
	must(h.t, err)
	must(h.t, os.WriteFile(name, b, 0o600))
}
