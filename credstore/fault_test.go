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
	"github.com/spendonce/spendonce/internal/durable/durabletest"
	"github.com/spendonce/spendonce/internal/secret"
)

// The tokens of the sweeps; no error and no warning may hold one. Each names
// the server it belongs to.
const (
	oldRefresh, oldAccess     = "refresh-old-00000000", "access-old-00000000"
	loginRefresh, loginAccess = "refresh-login-11111111", "access-login-11111111"
	oldServer, newServer      = "https://old.example/token", "https://new.example/token"
)

// strict is an authorization server that knows what was spent, with a grace
// in which the same token gets the same pair again.
type strict struct {
	t    *testing.T
	home map[string]string // refresh token -> token endpoint it was issued at

	mu    sync.Mutex
	pairs map[string]credstore.Tokens // refresh token -> what it was spent for
	sends map[string]int
	live  string // the access token issued last
}

func newStrict(t *testing.T, home map[string]string) *strict {
	t.Helper()
	return &strict{t: t, home: home, pairs: map[string]credstore.Tokens{}, sends: map[string]int{}}
}

func (s *strict) exchange(_ context.Context, g credstore.Grant) (credstore.Tokens, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refresh := g.RefreshToken.Reveal()
	if home := s.home[refresh]; home != g.Pin.TokenEndpoint {
		s.t.Errorf("%s went to %s", refresh, g.Pin.TokenEndpoint)
	}
	s.sends[refresh]++
	if _, spent := s.pairs[refresh]; !spent {
		n := len(s.pairs) + 1
		s.pairs[refresh] = credstore.Tokens{
			AccessToken: secret.New(fmt.Sprintf("access-new-%08d", n)), RefreshToken: secret.New(fmt.Sprintf("refresh-new-%08d", n)),
			ExpiresAt: in(time.Hour), Lifetime: time.Hour,
		}
		s.home[s.pairs[refresh].RefreshToken.Reveal()] = g.Pin.TokenEndpoint
	}
	s.live = s.pairs[refresh].AccessToken.Reveal()
	return s.pairs[refresh], nil
}

// most is how often any one refresh token was sent.
func (s *strict) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 0
	for _, n := range s.sends {
		most = max(most, n)
	}
	return most
}

// sweepGround makes a store with a session at the old server, a neighbour and
// what we do not know.
func sweepGround(t *testing.T) string {
	t.Helper()
	return sweepGroundIn(t, t.TempDir())
}

func sweepGroundIn(t *testing.T, below string) string {
	t.Helper()
	dir := filepath.Join(below, "ground")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := oidc(oldRefresh, oldAccess, in(-time.Hour))
	r["x-note"] = map[string]any{"n": 1}
	put(t, storePath(dir), storeRole, map[string]any{"x-top": []int{1, 2}, box: r, other: record{"kind": "static", "token": "static-neighbour"}})
	putSession(t, dir, box, session{
		"url": "https://rs.example", "loginId": "L-old", "x-session": "kept",
		"pin": session{"tokenEndpoint": oldServer, "clientId": "cid"}, "refreshToken": secret.New(oldRefresh).Fingerprint(),
	})
	return dir
}

// sound checks what must hold after every fault.
func sound(t *testing.T, dir string, f *durabletest.Fault, err error, told *warnings) {
	t.Helper()
	raw := rawStore(t, dir)
	if compacted(t, raw["x-top"]) != "[1,2]" || !strings.Contains(string(raw[other]), "static-neighbour") {
		t.Errorf("a neighbour was lost: %s", raw)
	}
	if r, there := raw[box]; there && !strings.Contains(compacted(t, r), `"x-note":{"n":1}`) {
		t.Errorf("an unknown member was lost: %s", r)
	}
	text := told.all()
	if err != nil {
		text += err.Error()
	}
	for _, token := range []string{oldRefresh, oldAccess, loginRefresh, loginAccess, "refresh-new-", "access-new-", "static-n"} {
		if strings.Contains(text, token) {
			t.Errorf("%s is shown: %s", token, text)
		}
	}
	// A file stays only where its removal was what failed.
	unlinked := f.Hit() && f.Step().Op == "unlink" && f.Mode == durabletest.NotApplied
	if got := temps(namesIn(t, dir)); len(got) != 0 && f.Mode != durabletest.Crash && !unlinked {
		t.Errorf("left behind: %q", got)
	}
}

// sweepStale is the constant of the sweeps: it is waited for where a crash
// leaves an empty lock file.
const sweepStale = 150 * time.Millisecond

func sweepStore(t *testing.T, dir string, disk durable.Disk, told *warnings) *credstore.Store {
	t.Helper()
	// An empty lock file, of a crash between its making and its writing,
	// stands for as long as that.
	s, err := credstore.Open(credstore.Config{Dir: dir, StaleAfter: sweepStale, Disk: disk, Warn: told.warn, Keys: formKeys()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *credstore.Store) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestNoFaultOfTheDiskLosesASessionInARefresh(t *testing.T) {
	for _, scope := range []credstore.Scope{credstore.ScopeTarget, credstore.ScopeStore} {
		t.Run(string(scope), func(t *testing.T) {
			if scope == credstore.ScopeStore {
				onlyInPlain(t, "a store that is shared is not sealed")
			}
			var dir, got string
			var as *strict
			var told *warnings
			settings := func() (credstore.Settings, error) { return credstore.Settings{Scope: scope}, nil }
			call := func(disk durable.Disk) (string, error) {
				s := sweepStore(t, dir, disk, told)
				defer closed(t, s)
				return get(sourceWith(t, s, credstore.SourceConfig{Target: box, Settings: settings, Exchange: as.exchange}), credstore.Request{})
			}
			steps := durabletest.Sweep(t, func(disk durable.Disk) (err error) {
				dir, told = sweepGround(t), &warnings{}
				as = newStrict(t, map[string]string{oldRefresh: oldServer})
				got, err = call(disk)
				return err
			}, func(f *durabletest.Fault, err error) {
				sound(t, dir, f, err, told)
				sends := as.most()
				switch r := boxIn(t, dir); {
				case err == nil && (got != as.live || r["refreshToken"] != "refresh-new-00000001"):
					t.Errorf("a success gave %q and stored %v", got, r["refreshToken"])
				case errors.Is(err, credstore.ErrNotSaved) && (f.Mode != durabletest.Crash || got != as.live):
					t.Errorf("not saved, though it could have been; gave %q", got)
				case err != nil && !errors.Is(err, credstore.ErrNotSaved) && (sends != 0 || got != ""):
					t.Errorf("%d sends and %q with the error %v", sends, got, err)
				case r["refreshToken"] != oldRefresh && r["refreshToken"] != "refresh-new-00000001":
					t.Errorf("%v is stored", r["refreshToken"])
				}
				// The next call works, whatever happened.
				got, err := call(durable.Disk{})
				spent := strings.Contains(bytesOf(t, dir+"/locks/box.lock.guard"), "mark=spent")
				if err != nil && !spent || err == nil && got != as.live {
					t.Errorf("afterwards: %q, %v", got, err)
				}
				if n := as.most(); n > 1 && f.Mode != durabletest.Crash {
					t.Errorf("a token was sent %d times and no sender died", n)
				}
				if r := boxIn(t, dir); err == nil && as.sends[fmt.Sprint(r["refreshToken"])] != 0 {
					t.Error("a spent token is stored")
				}
				_ = os.RemoveAll(dir)
			})
			t.Logf("%d steps", steps)
		})
	}
}

// boxIn is the target's record, where members beside it are no records.
func boxIn(t *testing.T, dir string) record {
	t.Helper()
	var r record
	raw, there := rawStore(t, dir)[box]
	if !there {
		return nil
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNoFaultOfTheDiskSendsATokenToTheOtherServerAfterALogin(t *testing.T) {
	var dir string
	var told *warnings
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		dir, told = sweepGround(t), &warnings{}
		s := sweepStore(t, dir, disk, told)
		defer closed(t, s)
		return onlyError(s.Login(context.Background(), box, credstore.SignedIn{URL: "https://rs.example", Pin: credstore.Pin{TokenEndpoint: newServer, ClientID: "cid"}, Tokens: credstore.Tokens{
			RefreshToken: secret.New(loginRefresh), AccessToken: secret.New(loginAccess), ExpiresAt: in(-time.Second),
		}}))
	}, func(f *durabletest.Fault, err error) {
		sound(t, dir, f, err, told)
		r := boxIn(t, dir)
		if r["refreshToken"] != loginRefresh && (err == nil || r["refreshToken"] != oldRefresh) {
			t.Errorf("%v is stored, with the error %v", r["refreshToken"], err)
		}
		// Whatever is stored goes to its own server, and is served.
		as := newStrict(t, map[string]string{oldRefresh: oldServer, loginRefresh: newServer})
		s := sweepStore(t, dir, durable.Disk{}, told)
		defer closed(t, s)
		src := sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange})
		mustGive(t, src, credstore.Request{}, "access-new-00000001")
		mustGive(t, src, credstore.Request{Refresh: true}, "access-new-00000002")
		if s := sessionOf(t, dir, box); s["pending"] != nil || s["x-session"] != "kept" {
			t.Errorf("settled as %v", s)
		}
		_ = os.RemoveAll(dir)
	})
	t.Logf("%d steps", steps)
}

func TestNoFaultOfTheDiskHalvesAStaticWrite(t *testing.T) {
	var dir string
	var told *warnings
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		dir, told = sweepGround(t), &warnings{}
		s := sweepStore(t, dir, disk, told)
		defer closed(t, s)
		return s.SetStatic(context.Background(), box, secret.New("static-new"))
	}, func(f *durabletest.Fault, err error) {
		sound(t, dir, f, err, told)
		as := newStrict(t, map[string]string{oldRefresh: oldServer})
		s := sweepStore(t, dir, durable.Disk{}, told)
		defer closed(t, s)
		src := sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange})
		want := "static-new"
		if boxIn(t, dir)["kind"] == "oidc" {
			want = "access-new-00000001"
			if err == nil {
				t.Error("a success stored nothing")
			}
		}
		mustGive(t, src, credstore.Request{}, want)
		if err := s.SetStatic(context.Background(), box, secret.New("static-next")); err != nil {
			t.Errorf("the next write: %v", err)
		}
		mustGive(t, src, credstore.Request{}, "static-next")
		_ = os.RemoveAll(dir)
	})
	t.Logf("%d steps", steps)
}

func TestNoFaultOfTheDiskHalvesALogout(t *testing.T) {
	var dir string
	var told *warnings
	steps := durabletest.Sweep(t, func(disk durable.Disk) error {
		dir, told = sweepGround(t), &warnings{}
		s := sweepStore(t, dir, disk, told)
		defer closed(t, s)
		return onlyError(s.Remove(context.Background(), box))
	}, func(f *durabletest.Fault, err error) {
		sound(t, dir, f, err, told)
		as := newStrict(t, map[string]string{oldRefresh: oldServer})
		s := sweepStore(t, dir, durable.Disk{}, told)
		defer closed(t, s)
		src := sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: as.exchange})
		if boxIn(t, dir) == nil {
			mustRefuse(t, src, credstore.Request{}, credstore.ErrNoCredential)
		} else {
			if err == nil {
				t.Error("a success removed nothing")
			}
			mustGive(t, src, credstore.Request{}, "access-new-00000001")
		}
		// The next logout leaves nothing, whatever stayed.
		if err := onlyError(s.Remove(context.Background(), box)); err != nil && !errors.Is(err, credstore.ErrNoCredential) {
			t.Errorf("the next logout: %v", err)
		}
		if boxIn(t, dir) != nil || slices.Contains(namesIn(t, dir), "sessions/box.json") {
			t.Error("something stayed")
		}
		_ = os.RemoveAll(dir)
	})
	t.Logf("%d steps", steps)
}
