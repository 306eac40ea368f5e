//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// forge serves a repository over git's smart HTTP to whoever has a live
// token, as the password of a Basic or as a Bearer.
type forge struct {
	*httptest.Server
	mu       sync.Mutex
	presents []string // every Authorization that came
}

func newForge(t *testing.T, h *home) *forge {
	t.Helper()
	root := filepath.Join(h.dir, "forge")
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main", root + "/work"},
		{"-C", root + "/work", "commit", "--quiet", "--allow-empty", "--message=first"},
		{"clone", "--quiet", "--bare", root + "/work", root + "/repo.git"},
	} {
		h.git(t, args...)
	}
	where, err := exec.Command("git", "--exec-path").Output()
	must(t, err)
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(where)), "git-http-backend"), Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + h.dir, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	f := &forge{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer {
			_, token, _ = r.BasicAuth()
		}
		if r.Header.Get("Authorization") != "" {
			f.mu.Lock()
			f.presents = append(f.presents, token)
			f.mu.Unlock()
		}
		if !h.server.Live(token) {
			w.Header().Add("WWW-Authenticate", `Basic realm="forge"`)
			w.Header().Add("WWW-Authenticate", `Bearer realm="forge"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *forge) presented() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.presents...)
}

// gitHome is a user whose target's URL is the forge, and whose git asks us.
func gitHome(t *testing.T, cfg spendoncetest.TokenServerConfig) (*home, *forge) {
	h := newHome(t, cfg)
	f := newForge(t, h)
	h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ntoken_endpoint = %q\nclient_id = %q\n", f.URL, h.server.TokenEndpoint(), h.server.ClientID()))
	return h, f
}

func (h *home) gitCommand(args ...string) *process {
	p := h.command()
	p.Path, p.Err = exec.LookPath("git")
	p.Args = append([]string{"git"}, args...)
	p.Env = append(p.Env,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_TRACE=0", "GIT_CURL_VERBOSE=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=credential.helper", "GIT_CONFIG_VALUE_0=!"+h.bin+" credential git",
	)
	return p
}

func (h *home) git(t *testing.T, args ...string) {
	t.Helper()
	if code, out, said := h.tryGit(args...); code != 0 {
		t.Fatalf("git %q ended with %d: %s%s", args, code, out, said)
	}
}

func (h *home) tryGit(args ...string) (int, string, string) {
	h.t.Helper()
	p := h.gitCommand(args...)
	if err := p.Start(); err != nil {
		h.t.Fatal(err)
	}
	code, out := p.end()
	return code, out, p.err.String()
}

func TestGitGetsTheTokenOfItsOrigin(t *testing.T) {
	h, f := gitHome(t, spendoncetest.TokenServerConfig{})
	h.git(t, "clone", "--quiet", f.URL+"/repo.git", filepath.Join(h.dir, "clone"))
	h.git(t, "-C", filepath.Join(h.dir, "clone"), "fetch", "--quiet")
	if c := h.server.Counters(); c.Exchanges != 1 || c.TokenPosts != 1 {
		t.Errorf("%d exchanges in %d posts", c.Exchanges, c.TokenPosts)
	}
	for _, token := range f.presented() {
		if !h.server.Live(token) {
			t.Error("the forge was shown a token that is not live")
		}
	}
}

// git cannot ask again within one command. It says that the token was
// refused, and the next command has another one.
func TestATokenThatTheForgeRefusesIsRefreshedForTheNextCommand(t *testing.T) {
	h, f := gitHome(t, spendoncetest.TokenServerConfig{})
	_, first, _ := h.run("token", "work")
	must(t, h.server.RevokeAccessToken(first))
	before := h.server.Counters().Exchanges
	if code, _, _ := h.tryGit("ls-remote", f.URL+"/repo.git"); code == 0 {
		t.Fatal("a refused token worked")
	}
	if n := h.server.Counters().Exchanges - before; n != 1 {
		t.Fatalf("git's erase made %d exchanges", n)
	}
	h.git(t, "ls-remote", "--exit-code", f.URL+"/repo.git")
	if c := h.server.Counters(); c.Exchanges-before != 1 || c.DoubleSpends != 0 {
		t.Errorf("%d exchanges, %d double spends", c.Exchanges-before, c.DoubleSpends)
	}
}

func TestGitOfAnotherOriginGetsNothing(t *testing.T) {
	h, f := gitHome(t, spendoncetest.TokenServerConfig{})
	stranger := newStranger(t)
	for _, url := range []string{stranger.URL, strings.Replace(f.URL, "127.0.0.1", "localhost", 1), strings.Replace(f.URL, "//", "//work@", 1) + "0"} {
		if code, _, _ := h.tryGit("ls-remote", url+"/repo.git"); code == 0 {
			t.Errorf("%s let git in", url)
		}
	}
	if got := append(stranger.presented(), f.presented()...); len(got) != 0 {
		t.Errorf("something was presented: %d times", len(got))
	}
	if c := h.server.Counters(); c.TokenPosts != 0 {
		t.Errorf("%d token requests for strangers", c.TokenPosts)
	}
}

// newStranger is a server of nobody we know, which would like a token.
func newStranger(t *testing.T) *forge {
	t.Helper()
	f := &forge{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			f.mu.Lock()
			f.presents = append(f.presents, r.Header.Get("Authorization"))
			f.mu.Unlock()
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="stranger"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(f.Close)
	return f
}

func TestStormOfGitFetchesTokensAndCommandsMakesOneExchange(t *testing.T) {
	h, f := gitHome(t, spendoncetest.TokenServerConfig{Latency: 20 * time.Millisecond})
	const fetches, tokens, commands = 20, 20, 5
	for i := range fetches {
		h.git(t, "init", "--quiet", "--initial-branch=main", h.clone(i))
	}
	count := rounds(t, 2, 20)
	for range count {
		h.renew()
		var all []*process
		for i := range fetches {
			all = append(all, h.gitCommand("-C", h.clone(i), "fetch", "--quiet", f.URL+"/repo.git", "main"))
		}
		for range tokens {
			all = append(all, h.command("token", "work"))
		}
		for range commands {
			all = append(all, h.command("exec", "work", "--", "sh", "-c", `printf %s "$ACCESS_TOKEN"`))
		}
		h.atOnce(t, all)
		printed := map[string]int{}
		for i, p := range all {
			code, out := p.end()
			if code != 0 {
				t.Errorf("%s ended with %d: %s", p.Args[4:], code, p.err.String())
			}
			if i >= fetches {
				printed[out]++
			}
		}
		if len(printed) != 1 {
			t.Errorf("%d different tokens were printed", len(printed))
		}
		for token, n := range printed {
			if !h.server.Live(token) || n != tokens+commands {
				t.Errorf("%d printed a token that is live: %v", n, h.server.Live(token))
			}
			canary.Absent(t, []canary.Value{{Name: "new access token", Secret: secret.New(token)}}, canary.Places{
				Outputs: map[string][]byte{"stderr": h.outputs.Bytes()}, Dirs: []string{h.dir}, Allow: []string{filepath.Join(h.dir, "state", "remote-credentials.json")},
			})
		}
		for i := range fetches {
			if _, err := os.Stat(filepath.Join(h.clone(i), ".git", "FETCH_HEAD")); err != nil {
				t.Errorf("fetch %d fetched nothing: %v", i, err)
			}
			must(t, os.Remove(filepath.Join(h.clone(i), ".git", "FETCH_HEAD")))
		}
	}
	if c := h.server.Counters(); c.Exchanges != count || c.TokenPosts != count || c.DoubleSpends != 0 || c.FamiliesRevoked != 0 {
		t.Errorf("%d rounds made %d exchanges in %d posts, %d double spends, %d families revoked", count, c.Exchanges, c.TokenPosts, c.DoubleSpends, c.FamiliesRevoked)
	}
}

func (h *home) clone(i int) string { return filepath.Join(h.dir, fmt.Sprintf("clone-%d", i)) }

// atOnce starts processes that wait for each other.
func (h *home) atOnce(t *testing.T, all []*process) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	for _, p := range all {
		p.Args = append([]string{"sh", "-c", `read -r _; exec "$0" "$@" </dev/null`, p.Path}, p.Args[1:]...)
		p.Path, p.Stdin = "/bin/sh", r
		must(t, p.Start())
		t.Cleanup(func() { _ = p.Process.Kill() })
	}
	must(t, r.Close())
	must(t, w.Close())
}
