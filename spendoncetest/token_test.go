package spendoncetest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/spendoncetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server for one test; the client's idle connections end first.
func start(t *testing.T, cfg spendoncetest.TokenServerConfig) *spendoncetest.TokenServer {
	t.Helper()
	s, err := spendoncetest.StartTokenServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func withDeadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type answer struct {
	status int
	header http.Header
	body   string
	m      map[string]any
}

func (a answer) text(name string) string {
	v, _ := a.m[name].(string)
	return v
}

func read(t *testing.T, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(body)}
	_ = json.Unmarshal(body, &a.m)
	return a
}

func postForm(t *testing.T, to string, kv ...string) answer {
	t.Helper()
	resp, err := http.PostForm(to, form(kv...))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

func form(kv ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(kv); i += 2 {
		v.Add(kv[i], kv[i+1])
	}
	return v
}

func refresh(t *testing.T, s *spendoncetest.TokenServer, rt string) answer {
	t.Helper()
	return postForm(t, s.TokenEndpoint(), "grant_type", "refresh_token", "refresh_token", rt, "client_id", s.ClientID())
}

func refreshHypaware(t *testing.T, s *spendoncetest.TokenServer, rt string) answer {
	t.Helper()
	resp, err := http.Post(s.HypawareEndpoint(), "application/json",
		strings.NewReader(`{"grant_type":"refresh_token","refresh_token":"`+rt+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

func TestARefreshTokenIsGoodForOneUseAndASecondEndsItsFamily(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	first := s.NewSession("alice")
	other := s.NewSession("bob")

	a := refresh(t, s, first.RefreshToken.Reveal())
	if a.status != 200 || a.text("refresh_token") == "" || a.m["expires_in"] != 3600.0 || a.text("token_type") != "Bearer" {
		t.Fatalf("first use: %d %v", a.status, a.m["error"])
	}
	if !s.Live(a.text("access_token")) || !s.Live(first.AccessToken.Reveal()) || !s.Spendable(a.text("refresh_token")) {
		t.Fatal("a refresh does not leave both access tokens and the new refresh token alive")
	}
	if again := refresh(t, s, first.RefreshToken.Reveal()); again.status != 400 || again.text("error") != "invalid_grant" {
		t.Fatalf("second use: %d %s", again.status, again.body)
	}
	if s.Live(a.text("access_token")) || s.Live(first.AccessToken.Reveal()) {
		t.Fatal("an access token of the revoked family lives")
	}
	if successor := refresh(t, s, a.text("refresh_token")); successor.text("error") != "invalid_grant" {
		t.Fatal("a refresh token of the revoked family was spent")
	}
	if !s.Live(other.AccessToken.Reveal()) || !s.Spendable(other.RefreshToken.Reveal()) {
		t.Fatal("another family suffered")
	}
	c := s.Counters()
	if c.TokenPosts != 3 || c.Exchanges != 1 || c.DoubleSpends != 1 || c.FamiliesRevoked != 1 || c.RefusedRefreshes != 2 || c.LiveFamilies != 1 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestTheHypawareDialectAnswersInItsOwnWords(t *testing.T) {
	for _, rfc3339 := range []bool{false, true} {
		s := start(t, spendoncetest.TokenServerConfig{RFC3339Expiry: rfc3339, Org: "acme"})
		a := refreshHypaware(t, s, s.NewSession("alice").RefreshToken.Reveal())
		if a.status != 200 || a.text("org") != "acme" || a.text("refresh_token") == "" || strings.Count(a.text("access_jwt"), ".") != 2 {
			t.Fatalf("%d, members %d", a.status, len(a.m))
		}
		if !s.Live(a.text("access_jwt")) {
			t.Fatal("the access token does not live")
		}
		if rfc3339 {
			if _, err := time.Parse(time.RFC3339, a.text("expires_at")); err != nil {
				t.Fatal(err)
			}
		} else if at, ok := a.m["expires_at"].(float64); !ok || at < float64(time.Now().Unix()) {
			t.Fatalf("expires_at = %v", a.m["expires_at"])
		}
		if _, ok := a.m["access_token"]; ok {
			t.Fatal("the answer speaks two dialects")
		}
	}
}

func TestWithinTheGraceTheSameTokenGivesTheSamePair(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{ReuseGrace: time.Hour})
	rt := s.NewSession("alice").RefreshToken.Reveal()
	a, b := refresh(t, s, rt), refresh(t, s, rt)
	if a.status != 200 || b.status != 200 || a.text("access_token") != b.text("access_token") || a.text("refresh_token") != b.text("refresh_token") {
		t.Fatal("a replay within the grace does not give the same pair")
	}
	if c := s.Counters(); c.Exchanges != 1 || c.GraceReplays != 1 || c.DoubleSpends != 0 || c.FamiliesRevoked != 0 {
		t.Fatalf("counters: %+v", c)
	}
	if err := s.Configure(func(c *spendoncetest.TokenServerConfig) { c.ReuseGrace = 1 }); err != nil {
		t.Fatal(err)
	}
	if c := refresh(t, s, rt); c.text("error") != "invalid_grant" {
		t.Fatal("the token was replayed after the grace")
	}
	if c := s.Counters(); c.DoubleSpends != 1 || c.FamiliesRevoked != 1 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestOfManyConcurrentUsesOneSucceeds(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{Latency: time.Millisecond})
	rt := s.NewSession("alice").RefreshToken.Reveal()
	const n = 64
	var wg sync.WaitGroup
	statuses := make(chan int, n)
	for range n {
		wg.Go(func() {
			resp, err := http.PostForm(s.TokenEndpoint(), form("grant_type", "refresh_token", "refresh_token", rt))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			statuses <- resp.StatusCode
		})
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for st := range statuses {
		count[st]++
	}
	if count[200] != 1 || count[400] != n-1 {
		t.Fatalf("statuses: %v", count)
	}
	if c := s.Counters(); c.TokenPosts != n || c.Exchanges != 1 || c.DoubleSpends != n-1 || c.FamiliesRevoked != 1 || c.LiveFamilies != 0 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestWithoutRotationARefreshTokenStays(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{NoRotation: true})
	rt := s.NewSession("alice").RefreshToken.Reveal()
	for range 3 {
		a := refresh(t, s, rt)
		if _, ok := a.m["refresh_token"]; a.status != 200 || ok {
			t.Fatalf("%d %v", a.status, ok)
		}
	}
	if c := s.Counters(); c.Exchanges != 3 || c.DoubleSpends != 0 {
		t.Fatalf("counters: %+v", c)
	}
}

func TestOnlyLoopbackIsListenedOn(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "10.0.0.1:1"} {
		if s, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{Listen: addr}); err == nil {
			s.Close()
			t.Errorf("%s was accepted", addr)
		}
	}
}

func BenchmarkRefresh(b *testing.B) {
	s, err := spendoncetest.StartTokenServer(spendoncetest.TokenServerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	rt := s.NewSession("alice").RefreshToken.Reveal()
	for b.Loop() {
		resp, err := http.PostForm(s.TokenEndpoint(), form("grant_type", "refresh_token", "refresh_token", rt))
		if err != nil {
			b.Fatal(err)
		}
		var got struct {
			Refresh string `json:"refresh_token"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		rt = got.Refresh
	}
}
