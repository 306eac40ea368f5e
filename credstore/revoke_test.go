package credstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

// registry notes what was revoked.
type registry struct {
	mu      sync.Mutex
	revoked []credstore.Ended
	err     error
}

func (r *registry) revoke(_ context.Context, e credstore.Ended) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revoked = append(r.revoked, e)
	return r.err
}

// refreshing runs a refresh of box during which something else happens, and
// returns what was revoked when the store is closed.
func refreshing(t *testing.T, dir string, during func(s *credstore.Store)) (token string, revoked []credstore.Ended, said string) {
	t.Helper()
	a, r := &authority{}, &registry{err: errors.New("no answer")}
	answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil })
	a.answer = answer
	var told warnings
	s := open(t, credstore.Config{Dir: dir, Warn: told.warn})
	src := sourceWith(t, s, credstore.SourceConfig{Target: box, Settings: pinned, Exchange: a.exchange, Revoke: r.revoke})
	done := make(chan string)
	go func() {
		token, err := get(src, credstore.Request{})
		if err != nil {
			t.Error(err)
		}
		done <- token
	}()
	<-arrived
	during(open(t, credstore.Config{Dir: dir}))
	close(proceed)
	token = <-done
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return token, r.revoked, told.all()
}

func expired(t *testing.T, loginID string) string {
	t.Helper()
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	if loginID != "" {
		putSession(t, dir, box, session{"loginId": loginID, "pin": map[string]any{"tokenEndpoint": "https://as.example/token", "clientId": "cid"}})
	}
	return dir
}

func mustHaveRevoked(t *testing.T, got []credstore.Ended, refresh, access string) {
	t.Helper()
	if len(got) != 1 || got[0].RefreshToken.Reveal() != refresh || got[0].AccessToken.Reveal() != access || got[0].Pin.TokenEndpoint != "https://as.example/token" {
		t.Errorf("revoked %d sessions, and not %s and %s alone", len(got), refresh, access)
	}
}

func TestTokensThatALogoutOvertookAreRevoked(t *testing.T) {
	token, revoked, said := refreshing(t, expired(t, ""), func(s *credstore.Store) {
		if err := onlyError(s.Remove(t.Context(), box)); err != nil {
			t.Error(err)
		}
	})
	if token != "A-new-1" {
		t.Error("the caller did not get its token")
	}
	mustHaveRevoked(t, revoked, "R-new-1", "A-new-1")
	if !strings.Contains(said, "could not be revoked") {
		t.Errorf("a failure is not said: %q", said)
	}
}

func TestTokensThatANewLoginOvertookAreRevoked(t *testing.T) {
	_, revoked, _ := refreshing(t, expired(t, "L0"), func(s *credstore.Store) {
		if err := onlyError(s.Login(t.Context(), box, signedIn("R-login", "A-login"))); err != nil {
			t.Error(err)
		}
	})
	mustHaveRevoked(t, revoked, "R-new-1", "A-new-1")
}

// Another program's refresh of the same session is no reason to end it.
func TestNothingIsRevokedAfterAnotherRefresh(t *testing.T) {
	for _, loginID := range []string{"", "L0"} {
		dir := expired(t, loginID)
		_, revoked, _ := refreshing(t, dir, func(*credstore.Store) {
			putStore(t, dir, map[string]record{box: oidc("R-theirs", "A-theirs", in(time.Hour))})
		})
		if len(revoked) != 0 {
			t.Errorf("login id %q: revoked %d sessions", loginID, len(revoked))
		}
	}
}

func TestALoginGivesBackWhatItReplaced(t *testing.T) {
	s := open(t, credstore.Config{Dir: expired(t, "L0")})
	replaced, err := s.Login(t.Context(), box, signedIn("R1", "A1"))
	if err != nil {
		t.Fatal(err)
	}
	mustHaveRevoked(t, []credstore.Ended{replaced}, "R0", "A0")
	// A server that gives the same refresh token again must not lose it.
	replaced, err = s.Login(t.Context(), box, signedIn("R1", "A2"))
	if err != nil {
		t.Fatal(err)
	}
	mustHaveRevoked(t, []credstore.Ended{replaced}, "", "A1")
}

func TestALogoutGivesBackWhatItRemoved(t *testing.T) {
	s := open(t, credstore.Config{Dir: expired(t, "L0")})
	removed, err := s.Remove(t.Context(), box)
	if err != nil {
		t.Fatal(err)
	}
	mustHaveRevoked(t, []credstore.Ended{removed}, "R0", "A0")
}

func TestEverySendIsOneLineOfTheAuditLog(t *testing.T) {
	dir := expired(t, "")
	broken := true
	a := &authority{}
	a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		if broken {
			broken = false
			return credstore.Tokens{}, &credstore.Failure{Class: credstore.ClassTemporary, Broken: true, Status: 0}
		}
		return a.rotated(n), nil
	}
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, "A-new-2")
	lines := strings.Split(strings.TrimSuffix(bytesOf(t, dir+"/audit.log"), "\n"), "\n")
	var outcomes, nonces []string
	for _, line := range lines {
		var l struct{ Target, Host, Before, After, Outcome, Nonce string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Target != box || l.Host != "as.example" || l.Before != secret.New("R0").Fingerprint() {
			t.Errorf("%q: %v", line, err)
		}
		outcomes, nonces = append(outcomes, l.Outcome+" "+l.After), append(nonces, l.Nonce)
	}
	if len(outcomes) != 2 || outcomes[0] != "temporary " || outcomes[1] != "success "+secret.New("R-new-2").Fingerprint() || nonces[0] != nonces[1] || nonces[0] == "" {
		t.Errorf("%q under %q", outcomes, nonces)
	}
}

func TestTheAuditLogIsCapped(t *testing.T) {
	dir := expired(t, "")
	if err := os.WriteFile(dir+"/audit.log", []byte(strings.Repeat("x", 1<<20)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, &authority{}), credstore.Request{}, "A-new-1")
	if got := bytesOf(t, dir+"/audit.log"); strings.Count(got, "\n") != 1 || len(bytesOf(t, dir+"/audit.log.1")) <= 1<<20 {
		t.Errorf("the log has %d bytes", len(got))
	}
}
