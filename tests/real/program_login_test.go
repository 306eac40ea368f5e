package real_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestLoginByTheFormGivesALiveToken(t *testing.T) {
	underEach(t, func(t *testing.T, j judge, _ server) {
		for _, way := range []struct {
			name string
			way  loginWay
		}{{"through the browser", byBrowser}, {"by the printed URL", byPrinted}} {
			t.Run(way.name, func(t *testing.T) {
				ctx := testContext(t)
				s := j.start(t)
				u := newUser(t, s)
				r, page := u.login(ctx, way.way, s.Account())
				if r.code != exitOK {
					t.Fatal(r)
				}
				if page.Status != http.StatusOK || page.Body == "" {
					t.Errorf("the browser ends on status %d with %d bytes", page.Status, len(page.Body))
				}
				for secret, kind := range s.Tap().Secrets() {
					if strings.Contains(page.Body, secret) {
						t.Errorf("the last page shows a secret (%s)", kind)
					}
				}
				if n := s.Tap().TokenPosts(); n != 1 {
					t.Errorf("%d token requests, want 1: %v", n, s.Tap().Log())
				}

				token := u.mustRun(ctx, "token", u.target)
				if !s.Live(ctx, token.token()) {
					t.Errorf("the server does not know the token: %v", token)
				}
				inJSON := u.mustRun(ctx, "token", u.target, "--json")
				var printed struct {
					AccessToken string `json:"access_token"`
				}
				if err := json.Unmarshal([]byte(inJSON.stdout), &printed); err != nil || printed.AccessToken != token.token() {
					t.Errorf("--json holds another token (%v): %v", err, inJSON)
				}
				if n := s.Tap().TokenPosts(); n != 1 {
					t.Errorf("a fresh token was refreshed: %d token requests", n)
				}
				if !s.RefreshLive(ctx, u.refreshToken()) {
					t.Error("the stored refresh token is not live")
				}

				listed := u.list(ctx)
				if len(listed) != 1 || listed[0].Target != u.target || listed[0].State != "valid" {
					t.Errorf("listed: %+v", listed)
				} else if listed[0].Account != j.account || listed[0].Issuer != s.Issuer() {
					t.Errorf("listed %+v, want account %q of %s", listed[0], j.account, s.Issuer())
				}
			})
		}
	})
}

func TestLoginSurvivesAWrongPassword(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		who := s.Account()
		who.Mistyped = []string{"wrong", "wrong again"}
		r, page := u.login(ctx, byPrinted, who)
		if r.code != exitOK {
			t.Fatal(r)
		}
		if page.Forms < 3 {
			t.Errorf("%d forms were sent, want at least 3", page.Forms)
		}
		if token := u.mustRun(ctx, "token", u.target); !s.Live(ctx, token.token()) {
			t.Errorf("the server does not know the token: %v", token)
		}
	})
}

// Only one of the judges has a button to say no.
func TestDeniedLoginStoresNothing(t *testing.T) {
	ctx := testContext(t)
	s := startFosite(t)
	u := newUser(t, s)
	who := s.Account()
	who.Deny = true
	r, page := u.login(ctx, byPrinted, who)
	if r.code == exitOK {
		t.Error("a denied login succeeds")
	}
	if !strings.Contains(strings.ToLower(r.stderr), "denied") {
		t.Errorf("the error does not say that it was denied: %v", r)
	}
	if page.Body == "" {
		t.Error("the browser ends on an empty page")
	}
	if len(u.store()) != 0 {
		t.Errorf("%d records stored", len(u.store()))
	}
	if n := s.Tap().TokenPosts(); n != 0 {
		t.Errorf("%d token requests, want none", n)
	}
	if r := u.run(ctx, "token", u.target); r.code == exitOK || r.stdout != "" {
		t.Errorf("a token after a denied login: %v", r)
	}
}

func TestLogoutRemovesTheSession(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		u.mustLogin(ctx)
		u.mustRun(ctx, "logout", u.target)
		if u.store()[u.target] != nil {
			t.Error("the record is still stored")
		}
		if r := u.run(ctx, "token", u.target); r.code != exitNoCredential || r.stdout != "" {
			t.Errorf("after logout: want exit %d and nothing on stdout: %v", exitNoCredential, r)
		}
		if listed := u.list(ctx); len(listed) != 0 {
			t.Errorf("after logout: %+v", listed)
		}
		if r := u.run(ctx, "logout", u.target); r.code == exitOK {
			t.Errorf("a second logout says that it removed something: %v", r)
		}

		u.mustLogin(ctx)
		if token := u.mustRun(ctx, "token", u.target); !s.Live(ctx, token.token()) {
			t.Errorf("after a new login the server does not know the token: %v", token)
		}
	})
}

func TestLogoutEndsTheSessionAtTheServer(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		u.mustLogin(ctx)
		access, refresh := u.accessToken(), u.refreshToken()
		u.mustRun(ctx, "logout", u.target)
		if s.RefreshLive(ctx, refresh) {
			t.Error("the refresh token is still live")
		}
		if s.Live(ctx, access) {
			t.Error("the access token is still live")
		}
	})
}
