package real_test

import (
	"encoding/json"
	"net/http"
	"slices"
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

				token := u.mustRun(ctx, "token", target)
				if !s.Live(ctx, token.token()) {
					t.Errorf("the server does not know the token: %v", token)
				}
				if n := s.Tap().TokenPosts(); n != 1 {
					t.Errorf("a fresh token was refreshed: %d token requests", n)
				}
				if !s.RefreshLive(ctx, u.refreshToken()) {
					t.Error("the stored refresh token is not live")
				}

				list := u.mustRun(ctx, "list", "--json")
				var document any
				if err := json.Unmarshal([]byte(list.stdout), &document); err != nil {
					t.Fatalf("list --json: %v\n%v", err, list)
				}
				if !mentions(document, target) {
					t.Errorf("the session is not listed: %v", list)
				}
			})
		}
	})
}

// mentions tells whether a JSON document has a name or a value that is text.
func mentions(document any, text string) bool {
	switch node := document.(type) {
	case string:
		return node == text
	case []any:
		return slices.ContainsFunc(node, func(v any) bool { return mentions(v, text) })
	case map[string]any:
		for name, value := range node {
			if name == text || mentions(value, text) {
				return true
			}
		}
	}
	return false
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
		if token := u.mustRun(ctx, "token", target); !s.Live(ctx, token.token()) {
			t.Errorf("the server does not know the token: %v", token)
		}
	})
}

func TestDeniedLoginStoresNothing(t *testing.T) {
	underEach(t, func(t *testing.T, j judge, s server) {
		if !j.asksConsent {
			t.Skip("this server does not ask for consent, so nobody can deny it")
		}
		ctx := testContext(t)
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
		if r := u.run(ctx, "token", target); r.code == exitOK || r.stdout != "" {
			t.Errorf("a token after a denied login: %v", r)
		}
	})
}

func TestLogoutRemovesAndRevokes(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		u.mustLogin(ctx)
		access, refresh := u.accessToken(), u.refreshToken()
		u.mustRun(ctx, "logout", target)
		if record := u.store()[target]; record != nil {
			t.Error("the record is still stored")
		}
		if s.RefreshLive(ctx, refresh) || s.Live(ctx, access) {
			t.Error("the server still knows the session")
		}
		if r := u.run(ctx, "token", target); r.code != exitNoCredential || r.stdout != "" {
			t.Errorf("after logout: want exit %d and nothing on stdout: %v", exitNoCredential, r)
		}
		list := u.mustRun(ctx, "list", "--json")
		var document any
		if err := json.Unmarshal([]byte(list.stdout), &document); err != nil || mentions(document, target) {
			t.Errorf("after logout the session is listed, or the list is no JSON (%v): %v", err, list)
		}

		u.mustLogin(ctx)
		if token := u.mustRun(ctx, "token", target); !s.Live(ctx, token.token()) {
			t.Errorf("after a new login the server does not know the token: %v", token)
		}
	})
}
