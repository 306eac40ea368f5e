package real_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// user is one target of one person on a machine, and where its session is.
type user struct {
	*machine
	server server
	target string
}

// machine is the account of a person: directories, an environment, and a memory
// of everything the program printed. When its test ends, outputs and files are
// searched for every secret that crossed the wire.
type machine struct {
	t      *testing.T
	binary string
	home   string // everything the program may write is below

	mu      sync.Mutex
	runs    []result
	issuers []interface{ Secrets() map[string]string }
}

// result is one finished run.
type result struct {
	args   []string
	stdout string
	stderr string
	code   int
}

func (r result) String() string {
	return fmt.Sprintf("spendonce %s: exit %d\nstdout: %s\nstderr: %s",
		strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

// token is what a run of "token" printed.
func (r result) token() string { return strings.TrimSuffix(r.stdout, "\n") }

func newUser(t *testing.T, s server) *user {
	t.Helper()
	return (&user{machine: newMachine(t)}).at(s, "demo")
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, binary: binary, home: t.TempDir()}
	for _, dir := range []string{m.stateDir(), m.configDir(), m.tempDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, leak := range m.leaks() {
			t.Error(leak)
		}
	})
	return m
}

// knows has the secrets of an authority searched for at the end.
func (m *machine) knows(a interface{ Secrets() map[string]string }) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.issuers = append(m.issuers, a)
}

// at is another target on the same machine.
func (u *user) at(s server, target string) *user {
	u.knows(s)
	return &user{machine: u.machine, server: s, target: target}
}

func (m *machine) stateDir() string  { return filepath.Join(m.home, "state") }
func (m *machine) configDir() string { return filepath.Join(m.home, "config") }
func (m *machine) tempDir() string   { return filepath.Join(m.home, "tmp") }
func (m *machine) storePath() string { return filepath.Join(m.stateDir(), "remote-credentials.json") }

func (m *machine) environment(extra ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + m.home,
		"TMPDIR=" + m.tempDir(),
		"LC_ALL=C",
		"XDG_CONFIG_HOME=" + m.configDir(),
		"SPENDONCE_STATE_DIR=" + m.stateDir(),
		"BROWSER=false", // whoever wants one says so
	}, extra...)
}

func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.binary, args...)
	cmd.Env = m.environment()
	cmd.Dir = m.tempDir()
	return cmd
}

func (m *machine) remember(r result) result {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs = append(m.runs, r)
	return r
}

// store reads the credential file as any other program would.
func (m *machine) store() map[string]map[string]any {
	m.t.Helper()
	data, err := os.ReadFile(m.storePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	var records map[string]map[string]any
	if err := json.Unmarshal(data, &records); err != nil {
		m.t.Fatalf("the store is damaged: %v", err)
	}
	return records
}

func (u *user) member(name string) string {
	u.t.Helper()
	value, _ := u.store()[u.target][name].(string)
	return value
}

func (u *user) accessToken() string  { u.t.Helper(); return u.member("accessJwt") }
func (u *user) refreshToken() string { u.t.Helper(); return u.member("refreshToken") }

// expire makes the stored access token look expired, by replacing the file as
// a program that shares it would. It stands in for waiting.
func (u *user) expire() {
	u.t.Helper()
	records := u.store()
	if records[u.target] == nil {
		u.t.Fatal("nothing stored that could expire")
	}
	records[u.target]["expiresAt"] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	data, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		u.t.Fatal(err)
	}
	next := u.storePath() + ".test"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		u.t.Fatal(err)
	}
	if err := os.Rename(next, u.storePath()); err != nil {
		u.t.Fatal(err)
	}
}

// secretFile writes a token to a file that is the test's, not the program's.
func (m *machine) secretFile(token string) string {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "rejected")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// leaks searches everything the program printed and every file it may have
// written. A secret may stand in the store, and an access token in what
// "token" prints on stdout; nowhere else.
func (m *machine) leaks() []string {
	secrets := map[string]string{}
	for _, a := range m.issuers {
		maps.Copy(secrets, a.Secrets())
	}
	values := slices.Sorted(maps.Keys(secrets))
	var found []string
	search := func(where, text string, allowed string) {
		for _, value := range values {
			kind := secrets[value]
			if kind == allowed {
				continue
			}
			if strings.Contains(text, value) || strings.Contains(text, url.QueryEscape(value)) {
				found = append(found, fmt.Sprintf("%s holds a secret (%s)", where, kind))
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		what := strings.Join(r.args, " ")
		allowed := ""
		if r.args[0] == "token" {
			allowed = "access_token"
		}
		search("stdout of "+what, r.stdout, allowed)
		search("stderr of "+what, r.stderr, "")
	}
	err := filepath.WalkDir(m.home, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path == m.storePath() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			search(path, string(data), "")
		}
		return err
	})
	if err != nil {
		found = append(found, fmt.Sprintf("searching the files: %v", err))
	}
	return found
}
