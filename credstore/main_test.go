package credstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
)

// box is the target of most tests, other the one beside it.
const (
	box   = "box"
	other = "other"
)

// stateDir is where a store may be made; nothing stands there yet.
func stateDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state")
}

// open opens a store that is closed, and awaited, at the end of the test.
func open(t *testing.T, cfg credstore.Config) *credstore.Store {
	t.Helper()
	// A wait for the kernel would stop the clock of a bubble; processes watch.
	hook := cfg.Disk.Hook
	cfg.Disk.Hook = func(s durable.Step, do func() error) error {
		switch {
		case s.Op == "bell":
			return errors.ErrUnsupported
		case hook != nil:
			return hook(s, do)
		default:
			return do()
		}
	}
	if cfg.Keys == nil {
		cfg.Keys = formKeys()
	}
	s, err := credstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func storePath(dir string) string { return filepath.Join(dir, "remote-credentials.json") }

func sessionPath(dir, target string) string { return filepath.Join(dir, "sessions", target+".json") }

// record is a record as it stands in the file, session a session file.
type (
	record  map[string]any
	session map[string]any
)

func oidc(refresh, access string, expires time.Time) record {
	return record{"kind": "oidc", "refreshToken": refresh, "accessJwt": access, "expiresAt": stamp(expires), "org": "acme"}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// in is a moment d from now.
func in(d time.Duration) time.Time { return time.Now().Add(d) }

// putStore writes the store as another program would.
func putStore(t *testing.T, dir string, records map[string]record) {
	t.Helper()
	put(t, storePath(dir), storeRole, records)
}

func putSession(t *testing.T, dir, target string, s session) {
	t.Helper()
	full := session{"version": 1}
	for k, v := range s {
		full[k] = v
	}
	put(t, sessionPath(dir, target), sessionRole(target), full)
}

func put(t *testing.T, path, role string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	putBytes(t, path, inForm(t, role, b))
}

func putBytes(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func bytesOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// storeOf reads the store past the package.
func storeOf(t *testing.T, dir string) map[string]record {
	t.Helper()
	var records map[string]record
	decode(t, opened(t, storePath(dir), storeRole), &records)
	return records
}

func sessionOf(t *testing.T, dir, target string) session {
	t.Helper()
	var s session
	decode(t, opened(t, sessionPath(dir, target), sessionRole(target)), &s)
	return s
}

// namesIn lists everything below a directory; nothing if it does not exist.
func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != dir {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

func temps(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, ".tmp") })
}

// authority is an authorization server without a network. It is strict: what
// it refuses, and that nothing was sent twice, is counted.
type authority struct {
	mu       sync.Mutex
	sends    []credstore.Grant
	lifetime time.Duration // 0: an hour
	// answer, when set, is asked instead of the rotation; n counts from 1.
	answer func(ctx context.Context, n int, g credstore.Grant) (credstore.Tokens, error)
}

func (a *authority) exchange(ctx context.Context, g credstore.Grant) (credstore.Tokens, error) {
	a.mu.Lock()
	a.sends = append(a.sends, g)
	n, answer := len(a.sends), a.answer
	a.mu.Unlock()
	if answer != nil {
		return answer(ctx, n, g)
	}
	return a.rotated(n), nil
}

// rotated is the n-th new pair: A-new-n and R-new-n.
func (a *authority) rotated(n int) credstore.Tokens {
	lifetime := a.lifetime
	if lifetime == 0 {
		lifetime = time.Hour
	}
	return credstore.Tokens{
		AccessToken: secret.New(fmt.Sprintf("A-new-%d", n)), RefreshToken: secret.New(fmt.Sprintf("R-new-%d", n)),
		ExpiresAt: time.Now().Add(lifetime), Lifetime: lifetime,
	}
}

// sent lists the refresh tokens in the order they came.
func (a *authority) sent() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var sent []string
	for _, g := range a.sends {
		sent = append(sent, g.RefreshToken.Reveal())
	}
	return sent
}

func (a *authority) grants() []credstore.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sends)
}

// failing makes every answer this failure.
func failing(f credstore.Failure) func(context.Context, int, credstore.Grant) (credstore.Tokens, error) {
	return func(context.Context, int, credstore.Grant) (credstore.Tokens, error) { return credstore.Tokens{}, &f }
}

// held makes the first answer wait: arrived is closed when it was asked for,
// and it comes when proceed is.
func held(then func(context.Context, int, credstore.Grant) (credstore.Tokens, error)) (
	answer func(context.Context, int, credstore.Grant) (credstore.Tokens, error), arrived, proceed chan struct{},
) {
	arrived, proceed = make(chan struct{}), make(chan struct{})
	return func(ctx context.Context, n int, g credstore.Grant) (credstore.Tokens, error) {
		if n == 1 {
			close(arrived)
			<-proceed
		}
		return then(ctx, n, g)
	}, arrived, proceed
}

// pinned are settings that name a server.
func pinned() (credstore.Settings, error) {
	return credstore.Settings{URL: "https://rs.example", Pin: credstore.Pin{TokenEndpoint: "https://as.example/token", ClientID: "cid"}}, nil
}

func sourceOf(t *testing.T, s *credstore.Store, target string, a *authority) *credstore.Source {
	t.Helper()
	return sourceWith(t, s, credstore.SourceConfig{Target: target, Settings: pinned, Exchange: a.exchange})
}

func sourceWith(t *testing.T, s *credstore.Store, cfg credstore.SourceConfig) *credstore.Source {
	t.Helper()
	src, err := s.Source(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// get asks for a token with a bound that only a hang reaches.
func get(src *credstore.Source, req credstore.Request) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t, err := src.Get(ctx, req)
	return t.AccessToken.Reveal(), err
}

// mustGive fails the test unless the token is given, without an error.
func mustGive(t *testing.T, src *credstore.Source, req credstore.Request, want string) {
	t.Helper()
	if got, err := get(src, req); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// mustRefuse fails the test unless there is this error and no token.
func mustRefuse(t *testing.T, src *credstore.Source, req credstore.Request, want error) error {
	t.Helper()
	got, err := get(src, req)
	if got != "" || !errors.Is(err, want) {
		t.Errorf("got %q, %v; want the error %q", got, err, want)
	}
	return err
}

func mustHaveSent(t *testing.T, a *authority, want ...string) {
	t.Helper()
	if got := a.sent(); !slices.Equal(got, want) {
		t.Errorf("%q were sent, want %q", got, want)
	}
}

// steps records what is done to the disk, and fails what the test chooses.
type steps struct {
	mu   sync.Mutex
	all  []durable.Step
	fail func(durable.Step) error // nil, or nil from it: the step is done
}

func (s *steps) disk() durable.Disk {
	return durable.Disk{Hook: func(step durable.Step, do func() error) error {
		s.mu.Lock()
		s.all = append(s.all, step)
		fail := s.fail
		s.mu.Unlock()
		if fail != nil {
			if err := fail(step); err != nil {
				return err
			}
		}
		return do()
	}}
}

func (s *steps) setFail(fail func(durable.Step) error) {
	s.mu.Lock()
	s.fail = fail
	s.mu.Unlock()
}

// changes lists the steps that are more than looking.
func (s *steps) changes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []string
	for _, step := range s.all {
		if step.Op != "open" && step.Op != "read" {
			changes = append(changes, step.Op+" "+step.Path)
		}
	}
	return changes
}

// warnings collects what the user is told.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) warn(text string) {
	w.mu.Lock()
	w.said = append(w.said, text)
	w.mu.Unlock()
}

func (w *warnings) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "\n")
}

// chosen is a count: full with SPENDONCE_SOAK=1, else a share of it, and
// short with -short.
func chosen(full, share, short int) int {
	switch {
	case os.Getenv("SPENDONCE_SOAK") == "1":
		return full
	case testing.Short():
		return short
	default:
		return share
	}
}

// onlyError drops what a call returns beside its error.
func onlyError[T any](_ T, err error) error { return err }
