package real_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/tests/real/fositeserver"
	"github.com/spendonce/spendonce/tests/real/person"
	"github.com/spendonce/spendonce/tests/real/protected"
	"github.com/spendonce/spendonce/tests/real/zitadelserver"
)

// site is a service and its authorization server, of which a person is told
// the service's URL and nothing else.
type site struct {
	authority
	url           string
	registrations func() int
	refreshes     func() int  // refresh tokens that came to the token endpoint
	asked         func() bool // whether the service was, for its server
}

// siteKind is one implementation, and what it shows of an account.
type siteKind struct {
	name    string
	start   func(*testing.T) site
	account string // "": no ID tokens
	devices bool   // RFC 8628
}

var siteKinds = []siteKind{
	{name: "fosite", start: fositeSite},
	{name: "zitadel", start: zitadelSite, account: "id1", devices: true},
	{name: "strict", start: strictSite, account: "alice@example.test", devices: true},
}

// front puts a service before an authorization server that knows none.
func front(t *testing.T, s server) (url string, asked func() bool) {
	t.Helper()
	r := protected.Start(protected.Config{Issuer: s.Issuer(), Scopes: s.Scopes(), Live: s.Live})
	t.Cleanup(r.Close)
	return r.URL(), func() bool {
		challenges, metadata := r.Asked()
		return challenges > 0 && metadata > 0
	}
}

func fositeSite(t *testing.T) site {
	t.Helper()
	s, err := fositeserver.Start(fositeserver.Config{Registration: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	url, asked := front(t, s)
	return site{s, url, s.Registrations, func() int { return s.Tap().TokenPosts("refresh_token") }, asked}
}

func zitadelSite(t *testing.T) site {
	t.Helper()
	s := zitadelserver.Start(zitadelserver.Config{Registration: true})
	t.Cleanup(s.Close)
	url, asked := front(t, s)
	return site{s, url, s.Registrations, func() int { return s.Tap().TokenPosts("refresh_token") }, asked}
}

// strictSite wants its resource named on every leg (RFC 8707).
func strictSite(t *testing.T) site {
	t.Helper()
	s := startStrict(t, spendoncetest.TokenServerConfig{RequireResource: "/resource", DeviceInterval: time.Second})
	return site{s, s.ResourceURL(),
		func() int { return s.Counters().Registrations },
		func() int { return s.Counters().Exchanges + s.Counters().RefusedRefreshes },
		func() bool { return s.Counters().ResourceRejected > 0 }}
}

// atEachSite runs a test once for each implementation.
func atEachSite(t *testing.T, test func(t *testing.T, k siteKind, u *visitor)) {
	t.Helper()
	for _, k := range siteKinds {
		t.Run(k.name, func(t *testing.T) { test(t, k, visit(t, k.start(t))) })
	}
}

// visitor is a user who knows a URL.
type visitor struct {
	*user
	site site
}

func visit(t *testing.T, s site) *visitor {
	t.Helper()
	m := newMachine(t)
	m.knows(s)
	return &visitor{&user{machine: m, target: "demo"}, s}
}

// signInByURL is the whole of what has to be typed.
func (v *visitor) signInByURL(ctx context.Context, who person.Person) (result, person.Page) {
	v.t.Helper()
	return v.signIn(ctx, byBrowser, v.site, []string{"login", v.target, "--url", v.site.url}, who.SignIn)
}

func (v *visitor) signInByDevice(ctx context.Context, who person.Person) result {
	v.t.Helper()
	r, _ := v.signIn(ctx, byDevice, v.site, []string{"login", v.target, "--url", v.site.url, "--device"}, who.Visit)
	return r
}

// opens reports whether the service takes a token.
func (v *visitor) opens(ctx context.Context, token string) bool {
	v.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.site.url, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		v.t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// tokenThatWorks is what "token" prints, once server and service take it.
func (v *visitor) tokenThatWorks(ctx context.Context) string {
	v.t.Helper()
	r := v.mustRun(ctx, "token", v.target)
	if !v.site.Live(ctx, r.token()) {
		v.t.Errorf("the server does not know the token: %v", r)
	}
	if !v.opens(ctx, r.token()) {
		v.t.Error("the service does not take the token")
	}
	return r.token()
}

// renew makes the token look expired, and demands another pair in its place.
func (v *visitor) renew(ctx context.Context) {
	v.t.Helper()
	access, refresh, before := v.accessToken(), v.refreshToken(), v.site.refreshes()
	v.expire()
	if token := v.tokenThatWorks(ctx); token == access {
		v.t.Error("the token after the refresh is the one before it")
	}
	if n := v.site.refreshes() - before; n != 1 {
		v.t.Errorf("%d refresh tokens were sent, want 1", n)
	}
	if v.refreshToken() == refresh || v.site.RefreshLive(ctx, refresh) {
		v.t.Error("the refresh token was not replaced")
	}
	if !v.site.RefreshLive(ctx, v.refreshToken()) {
		v.t.Error("the new refresh token is not live")
	}
}

// signOut ends the session, and demands that the server has ended it too.
func (v *visitor) signOut(ctx context.Context) {
	v.t.Helper()
	access, refresh := v.accessToken(), v.refreshToken()
	if access == "" || refresh == "" {
		v.t.Fatal("there is no session to end")
	}
	r := v.mustRun(ctx, "logout", v.target)
	if !strings.Contains(r.stderr, "revoked") {
		v.t.Errorf("it does not say that tokens were revoked: %v", r)
	}
	if v.site.RefreshLive(ctx, refresh) || v.site.Live(ctx, access) {
		v.t.Error("a token outlived the session")
	}
	if r := v.run(ctx, "token", v.target); r.code != exitNoCredential {
		v.t.Errorf("after logout: %v", r)
	}
}

func TestAURLIsEnoughToSignInRefreshAndSignOut(t *testing.T) {
	atEachSite(t, func(t *testing.T, k siteKind, v *visitor) {
		ctx := testContext(t)
		r, page := v.signInByURL(ctx, v.site.Account())
		if r.code != exitOK {
			t.Fatal(r)
		}
		words := "igned in to demo"
		if k.account != "" {
			words += " as " + k.account
		}
		if !strings.Contains(r.stderr, words) {
			t.Errorf("it does not say %q: %v", words, r)
		}
		if page.Status != http.StatusOK || !strings.Contains(page.Words(), "S"+words) {
			t.Errorf("the browser ends on status %d: %q", page.Status, page.Words())
		}
		if !v.site.asked() {
			t.Error("the service was not asked for its authorization server")
		}
		if n := v.site.registrations(); n != 1 {
			t.Errorf("%d clients were registered, want 1", n)
		}
		if listed := v.list(ctx); len(listed) != 1 || listed[0].State != "valid" ||
			listed[0].Account != k.account || listed[0].Issuer != v.site.Issuer() {
			t.Errorf("listed %+v, want account %q of %s", listed, k.account, v.site.Issuer())
		}
		v.tokenThatWorks(ctx)
		v.renew(ctx)
		v.renew(ctx)
		v.signOut(ctx)
	})
}

func TestAURLAndACodeAreEnoughToSignInADevice(t *testing.T) {
	atEachSite(t, func(t *testing.T, k siteKind, v *visitor) {
		ctx := testContext(t)
		r := v.signInByDevice(ctx, v.site.Account())
		if !k.devices {
			if r.code != 2 || !strings.Contains(r.stderr, "offers no sign-in by device code") {
				t.Errorf("a server without that flow: %v", r)
			}
			return
		}
		if r.code != exitOK {
			t.Fatal(r)
		}
		v.tokenThatWorks(ctx)
		v.renew(ctx)
		v.signOut(ctx)
	})
}

func TestADeviceThatIsDeniedStoresNothing(t *testing.T) {
	for _, k := range siteKinds {
		if !k.devices {
			continue // the test above shows how that is said
		}
		t.Run(k.name, func(t *testing.T) {
			v := visit(t, k.start(t))
			ctx := testContext(t)
			who := v.site.Account()
			who.Deny = true
			if r := v.signInByDevice(ctx, who); r.code != 1 || !strings.Contains(r.stderr, "refused") {
				t.Errorf("denied: %v", r)
			}
			if len(v.store()) != 0 {
				t.Errorf("%d records stored", len(v.store()))
			}
		})
	}
}
