package credstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
)

// An edited configuration does not decide where a refresh token goes.
func TestSettingsThatDisagreeWithThePinSendNothing(t *testing.T) {
	for name, edit := range map[string]func(*credstore.Settings){
		"url":                    func(s *credstore.Settings) { s.URL = "https://evil.example" },
		"issuer":                 func(s *credstore.Settings) { s.Pin.Issuer = "https://evil.example" },
		"token_endpoint":         func(s *credstore.Settings) { s.Pin.TokenEndpoint = "https://evil.example" },
		"authorization_endpoint": func(s *credstore.Settings) { s.Pin.AuthorizationEndpoint = "https://evil.example" },
		"revocation_endpoint":    func(s *credstore.Settings) { s.Pin.RevocationEndpoint = "https://evil.example" },
		"client_id":              func(s *credstore.Settings) { s.Pin.ClientID = "https://evil.example" },
		"resource":               func(s *credstore.Settings) { s.Pin.Resource = "https://evil.example" },
		"dialect":                func(s *credstore.Settings) { s.Pin.Dialect = "https://evil.example" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			s := open(t, credstore.Config{Dir: dir})
			login := signedIn("R0", "A0")
			login.Pin.AuthorizationEndpoint, login.Pin.RevocationEndpoint = "https://as.example/authorize", "https://as.example/revoke"
			login.Pin.Resource, login.Pin.Dialect = "https://rs.example/r", "oauth2"
			if err := onlyError(s.Login(t.Context(), box, login)); err != nil {
				t.Fatal(err)
			}
			set := credstore.Settings{URL: login.URL, Pin: login.Pin}
			edit(&set)
			a := &authority{}
			src := sourceWith(t, s, credstore.SourceConfig{
				Target: box, Exchange: a.exchange, Settings: func() (credstore.Settings, error) { return set, nil },
			})
			mustGive(t, src, credstore.Request{}, "A0") // a fresh one needs no settings
			store, session := bytesOf(t, storePath(dir)), bytesOf(t, sessionPath(dir, box))
			err := mustRefuse(t, src, credstore.Request{Refresh: true}, credstore.ErrLoginRequired)
			for _, part := range []string{"evil.example", name, "nothing was sent"} {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("%v: says nothing of %q", err, part)
				}
			}
			mustHaveSent(t, a)
			if bytesOf(t, storePath(dir)) != store || bytesOf(t, sessionPath(dir, box)) != session {
				t.Error("a file has changed")
			}
		})
	}
}

// With empty settings everything comes from the pin: the session file is
// enough to refresh.
func TestASignedInSessionNeedsNoSettings(t *testing.T) {
	dir := stateDir(t)
	s := open(t, credstore.Config{Dir: dir})
	login := signedIn("R0", "A0")
	login.Pin.ClientSecret, login.Pin.Resource, login.Pin.Subject = secret.New("hush"), "https://rs.example/r", "alice"
	if err := onlyError(s.Login(t.Context(), box, login)); err != nil {
		t.Fatal(err)
	}
	a := &authority{}
	src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{Target: box, Exchange: a.exchange})
	mustGive(t, src, credstore.Request{Refresh: true}, "A-new-1")
	g := a.grants()[0]
	if g.Pin.TokenEndpoint != login.Pin.TokenEndpoint || g.Pin.ClientSecret.Reveal() != "hush" || g.Resource != login.Pin.Resource {
		t.Errorf("sent to %+v", g)
	}
	entries, err := s.List()
	if err != nil || entries[0].URL != login.URL || entries[0].Subject != "alice" || entries[0].Issuer != login.Pin.Issuer || !slices.Equal(entries[0].Scope, login.Tokens.Scope) {
		t.Errorf("listed: %+v, %v", entries, err)
	}
	if strings.Contains(bytesOf(t, storePath(dir)), "hush") || strings.Contains(bytesOf(t, storePath(dir)), "as.example") {
		t.Error("the store holds what another program must not see")
	}
}

func TestWithNeitherPinNorSettingsNothingIsSent(t *testing.T) {
	for name, settings := range map[string]func() (credstore.Settings, error){
		"none":       nil,
		"empty":      func() (credstore.Settings, error) { return credstore.Settings{}, nil },
		"unreadable": func() (credstore.Settings, error) { return credstore.Settings{}, errors.New("line 3: no such key") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(30*time.Second))})
			a := &authority{}
			var told warnings
			src := sourceWith(t, open(t, credstore.Config{Dir: dir, Warn: told.warn}), credstore.SourceConfig{Target: box, Exchange: a.exchange, Settings: settings})
			mustGive(t, src, credstore.Request{}, "A0")
			if !strings.Contains(told.all(), "nothing was sent") {
				t.Errorf("said: %q", told.all())
			}
			err := mustRefuse(t, src, credstore.Request{Refresh: true}, credstore.ErrConfig)
			if name == "unreadable" && err != nil && !strings.Contains(err.Error(), "line 3") {
				t.Errorf("%v", err)
			}
			mustHaveSent(t, a)
		})
	}
}

func TestAnUnpinnedRecordIsPinnedOnFirstUse(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	s := open(t, credstore.Config{Dir: dir})
	mustGive(t, sourceOf(t, s, box, a), credstore.Request{}, "A-new-1")
	pin := sessionOf(t, dir, box)["pin"].(map[string]any)
	if pin["tokenEndpoint"] != "https://as.example/token" || pin["clientId"] != "cid" || sessionOf(t, dir, box)["url"] != "https://rs.example" {
		t.Errorf("pinned to %v", pin)
	}
	moved := sourceWith(t, s, credstore.SourceConfig{Target: box, Exchange: a.exchange, Settings: func() (credstore.Settings, error) {
		set, _ := pinned()
		set.Pin.TokenEndpoint = "https://evil.example/token"
		return set, nil
	}})
	mustRefuse(t, moved, credstore.Request{Refresh: true}, credstore.ErrLoginRequired)
	mustHaveSent(t, a, "R0")
}

// Programs that share the store by the constant of a minute need it kept.
func TestTheScopeStoreWithAShortConstantIsRefused(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	for _, set := range []credstore.Settings{
		{Scope: credstore.ScopeStore, StaleAfter: time.Second, Pin: credstore.Pin{TokenEndpoint: "https://as.example/token"}},
		{StaleAfter: time.Second, Pin: credstore.Pin{TokenEndpoint: "https://as.example/token", Dialect: "hypaware"}},
	} {
		a := &authority{}
		src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{
			Target: box, Exchange: a.exchange, Settings: func() (credstore.Settings, error) { return set, nil },
		})
		mustRefuse(t, src, credstore.Request{}, credstore.ErrConfig)
		mustHaveSent(t, a)
	}
}

func TestTheScopeSaysWhichLocksARefreshHolds(t *testing.T) {
	for _, tt := range []struct {
		scope   credstore.Scope
		dialect string
		store   bool
	}{
		{"", "", false}, {credstore.ScopeTarget, "", false}, {credstore.ScopeStore, "", true},
		{"", "hypaware", true}, {credstore.ScopeTarget, "hypaware", false},
	} {
		t.Run(fmt.Sprintf("%q %q", tt.scope, tt.dialect), func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			if tt.store {
				onlyInPlain(t, "a store that is shared is not sealed")
			}
			a := &authority{}
			src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{
				Target: box, Settings: func() (credstore.Settings, error) {
					set, _ := pinned()
					set.Scope, set.Pin.Dialect = tt.scope, tt.dialect
					return set, nil
				},
				Exchange: a.exchange,
			})
			a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
				names := namesIn(t, dir)
				if !slices.Contains(names, "locks/box.lock") {
					t.Error("the target lock is not held")
				}
				if got := slices.Contains(names, "remote-credentials.json.lock"); got != tt.store {
					t.Errorf("the store lock is held: %t", got)
				}
				return a.rotated(n), nil
			}
			mustGive(t, src, credstore.Request{}, "A-new-1")
			for _, name := range namesIn(t, dir) {
				if strings.HasSuffix(name, ".lock") {
					t.Errorf("%s is still held", name)
				}
			}
		})
	}
}

// A login that was cut short between its files is settled by the refresh
// token that the store holds.
func TestALoginThatWasCutShortIsSettledByWhatTheStoreHolds(t *testing.T) {
	for name, tt := range map[string]struct {
		stored   string
		endpoint string
	}{
		"before the store": {"R-old", "https://old.example/token"},
		"after the store":  {"R-login", "https://as.example/token"},
		"neither":          {"R-third", ""}, // refreshed by another program, at one server or the other
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc(tt.stored, "A0", in(-time.Hour))})
			putSession(t, dir, box, session{
				"loginId": "L-old", "pin": session{"tokenEndpoint": "https://old.example/token", "clientId": "old"}, "x-kept": 1,
				"pending": session{"loginId": "L-new", "refreshToken": secret.New("R-login").Fingerprint(), "replaces": secret.New("R-old").Fingerprint(), "pin": session{"tokenEndpoint": "https://as.example/token", "clientId": "cid"}},
			})
			a := &authority{}
			src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{Target: box, Exchange: a.exchange})
			a.answer = func(_ context.Context, n int, g credstore.Grant) (credstore.Tokens, error) {
				if g.Pin.TokenEndpoint != tt.endpoint {
					t.Errorf("%s went to %s", tt.stored, g.Pin.TokenEndpoint)
				}
				if sessionOf(t, dir, box)["pending"] != nil {
					t.Error("the login was not settled before the send")
				}
				return a.rotated(n), nil
			}
			if tt.endpoint == "" {
				for range 2 {
					mustRefuse(t, src, credstore.Request{}, credstore.ErrLoginRequired)
				}
				mustHaveSent(t, a)
				return
			}
			mustGive(t, src, credstore.Request{}, "A-new-1")
			if s := sessionOf(t, dir, box); s["pending"] != nil || s["x-kept"] != 1.0 || s["loginId"] == "L-new" != (tt.stored == "R-login") {
				t.Errorf("settled as %v", s)
			}
		})
	}
}

func TestALoginThatCannotBeSavedSaysSo(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{other: {"kind": "static", "token": "S"}})
	before := bytesOf(t, storePath(dir))
	var disk steps
	s := open(t, credstore.Config{Dir: dir, Disk: disk.disk()})
	if err := s.Writable(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	disk.setFail(func(step durable.Step) error {
		if step.Op == "rename" && step.Path == storePath(dir) {
			return os.ErrPermission
		}
		return nil
	})
	err := onlyError(s.Login(t.Context(), box, signedIn("R0", "A0")))
	if !errors.Is(err, credstore.ErrNotSaved) {
		t.Errorf("%v", err)
	}
	if bytesOf(t, storePath(dir)) != before {
		t.Error("the store has changed")
	}
	disk.setFail(nil)
	mustRefuse(t, sourceOf(t, s, box, &authority{}), credstore.Request{}, credstore.ErrNoCredential)
}

func TestAStaticWriteTouchesASessionFileOnlyWhereThereIsOne(t *testing.T) {
	dir := stateDir(t)
	s := open(t, credstore.Config{Dir: dir})
	if err := s.SetStatic(t.Context(), box, secret.New("S")); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(namesIn(t, dir), "sessions/box.json") {
		t.Error("a session file was made")
	}
	if err := onlyError(s.Login(t.Context(), other, signedIn("R0", "A0"))); err != nil {
		t.Fatal(err)
	}
	first := sessionOf(t, dir, other)["loginId"]
	if err := s.SetStatic(t.Context(), other, secret.New("S")); err != nil {
		t.Fatal(err)
	}
	after := sessionOf(t, dir, other)
	if after["pin"] != nil || after["url"] != nil || after["loginId"] == first {
		t.Errorf("the session file still speaks of the session: %v", after)
	}
	if err := onlyError(s.Remove(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
	if err := onlyError(s.Remove(t.Context(), other)); !errors.Is(err, credstore.ErrNoCredential) {
		t.Errorf("removed twice: %v", err)
	}
}
