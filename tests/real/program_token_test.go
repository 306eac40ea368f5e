package real_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/tests/real/fositeserver"
)

// slowAnswer makes sure that processes meet an exchange under way: the server
// has retired the old refresh token, and nobody has the new one yet.
const slowAnswer = 300 * time.Millisecond

// oneToken checks that all runs succeeded with the same live token, and
// returns it.
func oneToken(t *testing.T, s server, results []result) string {
	t.Helper()
	token := results[0].token()
	for _, r := range results {
		if r.code != exitOK || r.token() != token {
			t.Errorf("one of %d differs, or failed: %v", len(results), r)
		}
	}
	if !s.Live(t.Context(), token) {
		t.Error("the server does not know the token")
	}
	return token
}

func TestStormOnAnExpiredTokenMakesOneExchange(t *testing.T) {
	rounds := 3
	if os.Getenv("SPENDONCE_SOAK") != "" {
		rounds = 50
	}
	underEach(t, func(t *testing.T, _ judge, s server) {
		u := newUser(t, s)
		u.mustLogin(testContext(t))
		s.Tap().SetLatency(slowAnswer)
		for _, n := range []int{2, 8, 64} {
			for round := range rounds {
				ok := t.Run(fmt.Sprintf("%d processes, round %d", n, round+1), func(t *testing.T) {
					ctx := testContext(t)
					before := s.Tap().TokenPosts()
					old, spent := u.accessToken(), u.refreshToken()
					u.expire()
					token := oneToken(t, s, u.storm(ctx, n, "token", u.target))
					if token == old {
						t.Error("the expired token was handed out")
					}
					if posts := s.Tap().TokenPosts() - before; posts != 1 {
						t.Errorf("%d token requests, want 1: %v", posts, s.Tap().Log())
					}
					if u.refreshToken() == spent || u.accessToken() != token {
						t.Error("what was stored is not what was handed out")
					}
					if !s.RefreshLive(ctx, u.refreshToken()) {
						t.Error("the family is dead")
					}
				})
				if !ok {
					return // without a living family the next rounds say nothing
				}
			}
		}
	})
}

// Two targets in one store, each at a server of its own, are refreshed at the
// same time: neither waits for the other's token, and none goes astray.
func TestStormsOnTwoTargetsMakeOneExchangeEach(t *testing.T) {
	ctx := testContext(t)
	one := newUser(t, startFosite(t))
	two := one.at(startZitadel(t), "other")
	users := []*user{one, two}
	before := make([]int, len(users))
	old := make([]string, len(users))
	for i, u := range users {
		u.mustLogin(ctx)
		u.server.Tap().SetLatency(slowAnswer)
		before[i], old[i] = u.server.Tap().TokenPosts(), u.accessToken()
	}
	for _, u := range users {
		u.expire()
	}
	const each = 16
	var commands [][]string
	for range each {
		for _, u := range users {
			commands = append(commands, []string{"token", u.target})
		}
	}
	byTarget := map[string][]result{}
	for _, r := range one.stormOf(ctx, commands) {
		byTarget[r.args[1]] = append(byTarget[r.args[1]], r)
	}
	for i, u := range users {
		token := oneToken(t, u.server, byTarget[u.target])
		if token == old[i] || token != u.accessToken() {
			t.Errorf("%s: the token handed out is the expired one, or not the stored one", u.target)
		}
		if posts := u.server.Tap().TokenPosts() - before[i]; posts != 1 {
			t.Errorf("%s: %d token requests, want 1: %v", u.target, posts, u.server.Tap().Log())
		}
		if !u.server.RefreshLive(ctx, u.refreshToken()) {
			t.Errorf("%s: the family is dead", u.target)
		}
	}
}

func TestTokenThatTheServerRejectsIsReplacedOnce(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		u.mustLogin(ctx)
		rejected := u.mustRun(ctx, "token", u.target).token()
		if err := s.KillAccessToken(ctx, rejected); err != nil {
			t.Fatal(err)
		}
		s.Tap().SetLatency(slowAnswer)
		before := s.Tap().TokenPosts()
		file := u.secretFile(rejected)
		token := oneToken(t, s, u.storm(ctx, 16, "token", u.target, "--rejected", file))
		if posts := s.Tap().TokenPosts() - before; posts != 1 {
			t.Errorf("%d token requests, want 1: %v", posts, s.Tap().Log())
		}

		// Somebody who held the old one longer comes late: the stored one answers.
		late := u.start(ctx, strings.NewReader(rejected+"\n"), "token", u.target, "--rejected", "-")
		if r := late.wait(); r.code != exitOK || r.token() != token {
			t.Errorf("a latecomer got something else: %v", r)
		}
		if posts := s.Tap().TokenPosts() - before; posts != 1 {
			t.Errorf("after the latecomer %d token requests, want 1", posts)
		}
		if !s.RefreshLive(ctx, u.refreshToken()) {
			t.Error("the family is dead")
		}
	})
}

func TestForcedRefreshReplacesAFreshToken(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		u.mustLogin(ctx)
		old := u.accessToken()
		r := u.mustRun(ctx, "token", u.target, "--refresh")
		if r.token() == old || !s.Live(ctx, r.token()) {
			t.Errorf("--refresh gave the old token, or a dead one: %v", r)
		}
		if n := s.Tap().TokenPosts("refresh_token"); n != 1 {
			t.Errorf("%d refreshes, want 1", n)
		}
	})
}

// No edit of the store here: the token ends by itself.
func TestTokenThatEndsByItselfIsReplaced(t *testing.T) {
	ctx := testContext(t)
	s, err := fositeserver.Start(fositeserver.Config{AccessTokenLifetime: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	u := newUser(t, s)
	u.mustLogin(ctx)
	old := u.accessToken()
	for s.Live(ctx, old) {
		if ctx.Err() != nil {
			t.Fatal("a token of four seconds does not end")
		}
		time.Sleep(20 * time.Millisecond)
	}
	token := oneToken(t, s, u.storm(ctx, 8, "token", u.target))
	if token == old {
		t.Error("the expired token was handed out")
	}
	if n := s.Tap().TokenPosts("refresh_token"); n != 1 {
		t.Errorf("%d refreshes, want 1: %v", n, s.Tap().Log())
	}
}

// Somebody else used an old copy of the session. The server ends it, and the
// program has to say so, keep what it has, and not ask again.
func TestSessionThatTheServerEndedAsksForALogin(t *testing.T) {
	underEach(t, func(t *testing.T, j judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		u.mustLogin(ctx)
		stolen := u.refreshToken()
		u.mustRun(ctx, "token", u.target, "--refresh")
		current := u.refreshToken()
		if j.revokesFamily {
			answer, err := newRawClient(t, s).refresh(ctx, stolen)
			if err != nil || answer.Error != "invalid_grant" {
				t.Fatalf("reuse: status %d, error %q, %v; want invalid_grant", answer.Status, answer.Error, err)
			}
		} else if err := s.EndSession(ctx, current); err != nil {
			t.Fatal(err)
		}
		if s.RefreshLive(ctx, current) {
			t.Fatal("the family is alive")
		}

		u.expire()
		before := s.Tap().TokenPosts()
		for attempt := range 3 {
			r := u.run(ctx, "token", u.target)
			if r.code != exitLoginRequired || r.stdout != "" {
				t.Errorf("attempt %d: want exit %d and nothing on stdout: %v", attempt+1, exitLoginRequired, r)
			}
			if !strings.Contains(r.stderr, "spendonce login "+u.target) {
				t.Errorf("attempt %d does not say that a login is required: %v", attempt+1, r)
			}
		}
		if posts := s.Tap().TokenPosts() - before; posts != 1 {
			t.Errorf("%d token requests after the end, want 1", posts)
		}
		if u.refreshToken() != current {
			t.Error("the record was not kept")
		}
		if listed := u.list(ctx); len(listed) != 1 || listed[0].State != "login required" {
			t.Errorf("listed: %+v", listed)
		}

		u.mustLogin(ctx)
		if token := u.mustRun(ctx, "token", u.target); !s.Live(ctx, token.token()) {
			t.Errorf("after a new login the server does not know the token: %v", token)
		}
	})
}

// The holder dies when the server has spent the refresh token and the answer is
// still on its way. Nothing can save that session; the program has to say that
// it does not know, keep the record, and be repaired by a login.
func TestHolderKilledInMidExchangeLeavesAClearError(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		u.mustLogin(ctx)
		spent := u.refreshToken()
		u.expire()
		decided, release := s.Tap().HoldNextAnswer()
		defer release()

		holder := u.start(ctx, nil, "token", u.target)
		select {
		case <-decided:
		case <-ctx.Done():
			t.Fatal("no token request arrived")
		}
		if err := holder.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if r := holder.wait(); r.code != 128+int(syscall.SIGKILL) {
			t.Fatalf("the holder was not killed: %v", r)
		}
		release()

		for _, r := range u.storm(ctx, 8, "token", u.target) {
			if r.code != exitLoginRequired || r.stdout != "" {
				t.Errorf("want exit %d and nothing on stdout: %v", exitLoginRequired, r)
			}
		}
		if posts := s.Tap().TokenPosts("refresh_token"); posts != 2 {
			t.Errorf("%d refreshes, want 2: the lost one and one that tells: %v", posts, s.Tap().Log())
		}
		if u.refreshToken() != spent {
			t.Error("the record was not kept")
		}
		u.mustLogin(ctx)
		if token := u.mustRun(ctx, "token", u.target); !s.Live(ctx, token.token()) {
			t.Errorf("after a new login the server does not know the token: %v", token)
		}
	})
}

// Somebody logs out while a refresh is under way. Who asked before it gets an
// answer, and the record does not come back.
func TestLogoutDuringARefreshIsFinal(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		logoutDuringRefresh(ctx, t, u)
		if u.store()[u.target] != nil {
			t.Error("the record came back")
		}
		if r := u.run(ctx, "token", u.target); r.code != exitNoCredential {
			t.Errorf("after logout: want exit %d: %v", exitNoCredential, r)
		}
	})
}

// What that refresh brought is nobody's any more, and only the program that
// got it can end it.
func TestLogoutDuringARefreshEndsTheSessionAtTheServer(t *testing.T) {
	underEach(t, func(t *testing.T, _ judge, s server) {
		ctx := testContext(t)
		u := newUser(t, s)
		logoutDuringRefresh(ctx, t, u)
		for secret, kind := range s.Tap().Secrets() {
			if kind == "refresh_token" && s.RefreshLive(ctx, secret) {
				t.Errorf("a refresh token of the session is still live: %v", s.Tap().Log())
			}
		}
	})
}

func logoutDuringRefresh(ctx context.Context, t *testing.T, u *user) {
	t.Helper()
	u.mustLogin(ctx)
	u.expire()
	decided, release := u.server.Tap().HoldNextAnswer()
	defer release()
	refresh := u.start(ctx, nil, "token", u.target)
	select {
	case <-decided:
	case <-ctx.Done():
		t.Fatal("no token request arrived")
	}
	u.mustRun(ctx, "logout", u.target)
	release()
	if r := refresh.wait(); r.code != exitOK || r.token() == "" {
		t.Errorf("who asked before the logout got no answer: %v", r)
	}
}

// Every test above ends with a search for secrets. This one shows that the
// search finds one.
func TestSearchForSecretsFindsAPlantedOne(t *testing.T) {
	ctx := testContext(t)
	s := startFosite(t)
	u := newUser(t, s)
	u.mustLogin(ctx)
	if leaks := u.leaks(); len(leaks) != 0 {
		t.Fatal(leaks)
	}
	planted := filepath.Join(u.stateDir(), "planted")
	for _, secret := range []string{u.accessToken(), u.refreshToken()} {
		if err := os.WriteFile(planted, []byte("x"+secret+"y"), 0o600); err != nil {
			t.Fatal(err)
		}
		if leaks := u.leaks(); len(leaks) != 1 || !strings.Contains(leaks[0], planted) {
			t.Errorf("found %q, want the planted file", leaks)
		}
	}
	if err := os.Remove(planted); err != nil {
		t.Fatal(err)
	}
	u.remember(result{args: []string{"token", u.target}, stderr: u.accessToken()})
	u.remember(result{args: []string{"token", u.target}, stdout: u.refreshToken()})
	u.remember(result{args: []string{"list"}, stdout: u.accessToken()})
	if leaks := u.leaks(); len(leaks) != 3 {
		t.Errorf("found %q, want three outputs", leaks)
	}
	u.runs = nil
}
