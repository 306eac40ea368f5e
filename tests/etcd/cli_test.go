//go:build linux

package etcd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/etcd/cluster"
)

func TestASessionThatOneMachineSignedInToServesAnother(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Loopback: true, Password: true, Record: true})
	s := newSite(t, c)
	there := newMachine(t, s)
	here := newMachine(t, s, there)
	here.signIn("box")
	token := here.must("token", "box")

	t.Run("token", func(t *testing.T) {
		if got := there.must("token", "box"); got != token {
			t.Error("the other machine has another token")
		}
	})
	t.Run("list", func(t *testing.T) {
		if out := there.must("list"); !strings.Contains(out, "alice@example.test") || strings.Contains(out, token) {
			t.Errorf("list said %s", out)
		}
	})
	t.Run("exec", func(t *testing.T) {
		r := there.run("", "exec", "box", "--", "sh", "-c", `printf %s "$ACCESS_TOKEN"; exit 9`)
		if r.code != 9 || r.out != token {
			t.Errorf("exec ended with %d: %s", r.code, r.err)
		}
	})
	origin := strings.TrimPrefix(s.server.URL(), "http://")
	for name, call := range map[string]struct {
		in   string
		args []string
	}{
		"git":                  {"protocol=http\nhost=" + origin + "\n\n", []string{"credential", "git", "get"}},
		"git with a flag":      {"protocol=http\nhost=" + origin + "\n\n", []string{"credential", "git", "get", "--target", "box"}},
		"docker":               {s.server.URL(), []string{"credential", "docker", "get"}},
		"docker with a flag":   {s.server.URL(), []string{"credential", "docker", "--target", "box", "get"}},
		"kubectl":              {"", []string{"credential", "kubectl", "box"}},
		"headers":              {"", []string{"credential", "headers", "box"}},
		"token with --config":  {"", []string{"--config", filepath.Join(there.dir, "config/spendonce/config.toml"), "token", "box"}},
		"token after a reject": {"none", []string{"token", "box", "--rejected", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			there.t = t
			if r := there.run(call.in, call.args...); r.code != 0 || !strings.Contains(r.out, token) {
				t.Errorf("it ended with %d: %s", r.code, r.err)
			}
		})
	}
	there.t = t
	t.Run("state directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		if got := there.must("--state-dir", dir, "token", "box"); got != token {
			t.Error("with another state directory it is another token")
		}
		if _, err := os.Stat(filepath.Join(dir, "remote-credentials.json")); err == nil {
			t.Error("the session went to a file")
		}
	})
	t.Run("logout", func(t *testing.T) {
		there.must("logout", "box")
		if r := here.run("", "token", "box"); r.code != 3 || !strings.Contains(r.err, "spendonce login box") {
			t.Errorf("after the logout on the other machine, token ended with %d: %s", r.code, r.err)
		}
		if s.server.Live(token) {
			t.Error("what was logged out is not revoked")
		}
	})
}

func TestOneOfManyProcessesOnTwoMachinesRefreshes(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Start(t, cluster.Options{Loopback: true}))
	there := newMachine(t, s)
	here := newMachine(t, s, there)
	here.signIn("box")
	s.server.ExpireAccessTokens()
	token := here.must("token", "box")
	before := s.server.Counters().Exchanges
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for i := range 16 {
		m := []*machine{here, there}[i%2]
		cmd := m.command("token", "box", "--rejected", "-")
		cmd.Stdin = strings.NewReader(token + "\n")
		wg.Go(func() {
			out, err := cmd.Output()
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			got[string(out)]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(got) != 1 || s.server.Counters().Exchanges != before+1 {
		t.Errorf("16 processes sent %d refreshes and got %d tokens", s.server.Counters().Exchanges-before, len(got))
	}
	here.hide("box")
}

func TestTheMCPProxyServesATargetInEtcd(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Start(t, cluster.Options{Loopback: true}))
	m := newMachine(t, s)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !s.server.Live(token) || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	}))
	t.Cleanup(front.Close)
	m.signIn("box")
	path := filepath.Join(m.dir, "config/spendonce/config.toml")
	text, err := os.ReadFile(path)
	must(t, err)
	m.write("config/spendonce/config.toml", strings.Replace(string(text), s.server.ResourceURL(), front.URL+"/mcp", 1))
	m.must("logout", "box")
	m.signIn("box")
	cmd := m.command("mcp", "proxy", "box")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	if r := m.result(cmd); r.code != 0 || !strings.Contains(r.out, `"protocolVersion"`) {
		t.Errorf("it ended with %d: %s%s", r.code, r.out, r.err)
	}
}

func TestWithoutEtcdTheCommandsSaySoWithinSeconds(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Loopback: true})
	s := newSite(t, c)
	m := newMachine(t, s)
	m.signIn("box")
	for _, member := range c.Members {
		member.Kill()
	}
	t.Run("list", func(t *testing.T) {
		start := time.Now()
		r := m.run("", "list", "--json")
		var out struct {
			Targets []struct{ Target, State, Error string }
		}
		if err := json.Unmarshal([]byte(r.out), &out); r.code != 0 || err != nil || len(out.Targets) != 2 {
			t.Fatalf("it ended with %d, %v: %s%s", r.code, err, r.out, r.err)
		}
		if box := out.Targets[0]; box.State != "not reached" || !strings.Contains(box.Error, "cannot be reached") {
			t.Errorf("box: %+v", box)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	t.Run("token", func(t *testing.T) {
		if r := m.run("", "token", "box"); r.code != 5 || !strings.Contains(r.err, "cannot be reached") {
			t.Errorf("it ended with %d: %s", r.code, r.err)
		}
	})
	t.Run("completion", func(t *testing.T) {
		start := time.Now()
		for _, bin := range []string{"spendonce", "spendonce-etcd"} {
			cmd := m.command("__complete", "token", "")
			cmd.Path = filepath.Join(filepath.Dir(m.bin), bin)
			if r := m.result(cmd); r.code != 0 || !strings.HasPrefix(r.out, "box\nlocal\n") {
				t.Errorf("%s completes %s%s", bin, r.out, r.err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	t.Run("a target in a file", func(t *testing.T) {
		if r := m.run("static\n", "login", "local", "--token-file", "-"); r.code != 0 {
			t.Fatalf("login ended with %d: %s", r.code, r.err)
		}
		if got := m.must("token", "local"); got != "static" {
			t.Errorf("token said %s", got)
		}
	})
}

func TestAMissingSpendonceEtcdIsNamed(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newSite(t, cluster.Start(t, cluster.Options{Loopback: true})))
	alone := filepath.Join(m.dir, "alone")
	must(t, os.Mkdir(alone, 0o700))
	must(t, os.Link(m.bin, filepath.Join(alone, "spendonce")))
	for _, call := range []struct {
		code int
		args []string
	}{
		{2, []string{"token", "box"}},
		{2, []string{"list"}},
		{2, []string{"credential", "git", "get"}},
		{125, []string{"exec", "box", "--", "true"}},
	} {
		cmd := m.command(call.args...)
		cmd.Path, cmd.Env = filepath.Join(alone, "spendonce"), append(cmd.Env, "PATH="+alone+":/usr/bin:/bin")
		if r := m.result(cmd); r.code != call.code || !strings.Contains(r.err, "spendonce-etcd, which reaches it, is neither beside this program nor on PATH: install it") {
			t.Errorf("%q ended with %d: %s", call.args, r.code, r.err)
		}
	}
}
