package oauthflow_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

func TestARefreshIsOneFormOverItsOwnConnection(t *testing.T) {
	for name, s := range map[string]*recorder{
		"plain": serve(t, reply(200, "application/json", good)),
		"tls":   serveTLS(t, reply(200, "application/json", good)),
	} {
		at := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
		r := requester(s)
		r.Now = func() time.Time { return at }
		req := refreshRequest(s.URL + "/token?tenant=a")
		req.Scope, req.Resource = []string{"read", "write"}, "https://rs.example/mcp"
		got, err := r.Refresh(deadline(t), req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.AccessToken.Reveal() != "AT2" || got.RefreshToken.Reveal() != "RT2" || !got.ExpiresAt.Equal(at.Add(time.Hour)) || got.ServerDate.IsZero() {
			t.Errorf("%s: tokens %+v", name, got)
		}
		seen := s.seen()
		if len(seen) != 1 {
			t.Fatalf("%s: %d requests", name, len(seen))
		}
		want := url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {"RT1"}, "client_id": {"cid"},
			"scope": {"read write"}, "resource": {"https://rs.example/mcp"},
		}.Encode()
		q := seen[0]
		if q.method != "POST" || q.body != want || q.proto != "HTTP/1.1" || q.header.Get("Accept") != "application/json" ||
			q.header.Get("Content-Type") != "application/x-www-form-urlencoded" || q.header.Get("User-Agent") != "spendonce" {
			t.Errorf("%s: request %+v", name, q)
		}
	}
}

func TestTheSecretTravelsAsTheServerWants(t *testing.T) {
	for _, c := range []struct {
		methods []string
		basic   bool
	}{
		{nil, false},
		{[]string{"client_secret_post", "client_secret_basic"}, false},
		{[]string{"client_secret_basic"}, true},
		{[]string{"private_key_jwt"}, false},
	} {
		s := serve(t, reply(200, "", good))
		req := refreshRequest(s.URL)
		req.Client = oauthflow.Client{ID: "c:id", Secret: secret.New("s%c +")}
		req.Server.TokenAuthMethods = c.methods
		if _, err := requester(s).Refresh(deadline(t), req); err != nil {
			t.Fatal(err)
		}
		form, _ := url.ParseQuery(s.seen()[0].body)
		r := http.Request{Header: s.seen()[0].header}
		user, pass, basic := r.BasicAuth()
		if basic != c.basic {
			t.Errorf("%q: basic is %v", c.methods, basic)
		}
		if basic && (user != "c%3Aid" || pass != "s%25c+%2B" || form.Has("client_id") || form.Has("client_secret")) {
			t.Errorf("basic: %q %q, form %q", user, pass, form)
		}
		if !basic && (form.Get("client_id") != "c:id" || form.Get("client_secret") != "s%c +") {
			t.Errorf("post: form %q", form)
		}
	}
}

func TestHypawareIsAskedInJSON(t *testing.T) {
	s := serve(t, reply(200, "application/json", `{"access_jwt":"J","refresh_token":"R2","org":"acme","expires_at":"2099-01-01T00:00:00Z"}`))
	req := refreshRequest("")
	req.Server = oauthflow.Server{Issuer: s.URL + "/some/page", Dialect: oauthflow.Hypaware}
	got, err := requester(s).Refresh(deadline(t), req)
	if err != nil || got.AccessToken.Reveal() != "J" || got.Org != "acme" {
		t.Fatalf("%+v, %v", got, err)
	}
	q := s.seen()[0]
	var body map[string]string
	if err := json.Unmarshal([]byte(q.body), &body); err != nil || len(body) != 2 || body["grant_type"] != "refresh_token" || body["refresh_token"] != "RT1" {
		t.Errorf("body %q", q.body)
	}
	if q.path != "/v1/identity/token" || q.header.Get("Content-Type") != "application/json" {
		t.Errorf("request %+v", q)
	}
}

func TestACodeIsExchangedWithItsVerifier(t *testing.T) {
	s := serve(t, reply(200, "", good))
	_, err := requester(s).ExchangeCode(deadline(t), oauthflow.CodeRequest{
		Server: oauthflow.Server{TokenEndpoint: s.URL}, Client: oauthflow.Client{ID: "cid"},
		Code: secret.New("co/de"), Verifier: secret.New("ver"), RedirectURI: "http://127.0.0.1:1/callback", Resource: "https://rs.example",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{
		"grant_type": {"authorization_code"}, "code": {"co/de"}, "code_verifier": {"ver"}, "client_id": {"cid"},
		"redirect_uri": {"http://127.0.0.1:1/callback"}, "resource": {"https://rs.example"},
	}.Encode()
	if got := s.seen()[0].body; got != want {
		t.Errorf("form %q, want %q", got, want)
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	second := serve(t, reply(200, "application/json", good))
	for _, status := range []int{301, 302, 303, 307, 308} {
		for name, target := range map[string]string{"same origin": "/other", "cross origin": second.URL} {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", target)
				w.WriteHeader(status)
			})
			_, err := requester(s).Refresh(deadline(t), refreshRequest(s.URL+"/token"))
			e := asError(t, err)
			if e.Class != oauthflow.ClassTemporary || !strings.Contains(e.Text, "redirect") || e.Status != status {
				t.Errorf("%d %s: %v", status, name, e)
			}
			if n := len(s.seen()); n != 1 {
				t.Errorf("%d %s: %d requests", status, name, n)
			}
		}
	}
	if got := second.seen(); len(got) != 0 {
		t.Errorf("the other origin got %+v", got)
	}
}

func TestNothingIsSentToAnUnsafeEndpoint(t *testing.T) {
	for _, bad := range []string{
		"http://as.example/token", "http://127.1/token", "http://2130706433/", "http://localhost.example/", "http://[::ffff:127.0.0.1]/",
		"http://127.0.0.1.example/", "ftp://as.example/", "//as.example/token", "/token", "as.example/token", "",
		"https://user:canary@as.example/", "https://as.example/#f", "https:///token", "https:as.example", "ht tp://x", "http://10.0.0.1/",
	} {
		_, err := (&oauthflow.Requester{}).Refresh(deadline(t), refreshRequest(bad))
		e := asError(t, err)
		if !e.NotSent || e.Broken || e.Class != oauthflow.ClassWrongRequest || !strings.Contains(e.Error(), "token endpoint") || strings.Contains(e.Error(), "canary") {
			t.Errorf("%q: %+v", bad, e)
		}
		if strings.HasPrefix(bad, "http://") && !errors.Is(err, oauthflow.ErrInsecure) {
			t.Errorf("%q: the error does not say why: %v", bad, err)
		}
	}
	for _, fine := range []string{"https://as.example/t", "http://127.0.0.1:1/t", "http://127.200.3.4/", "http://[::1]:9/", "http://localhost:8/", "http://LOCALHOST/"} {
		if err := oauthflow.CheckEndpoint("token endpoint", fine); err != nil {
			t.Errorf("%q: %v", fine, err)
		}
	}
	_, err := (&oauthflow.Requester{}).Refresh(deadline(t), oauthflow.RefreshRequest{Server: oauthflow.Server{TokenEndpoint: "http://127.0.0.1:1"}})
	if e := asError(t, err); !e.NotSent || e.Class != oauthflow.ClassWrongRequest {
		t.Errorf("without a refresh token: %+v", e)
	}
}

func TestLocalhostIsThisMachineWhateverTheResolverSays(t *testing.T) {
	s := serve(t, reply(200, "", good))
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	if _, err := requester(s).Refresh(deadline(t), refreshRequest("http://localhost:"+port+"/")); err != nil {
		t.Fatal(err)
	}
}

func TestAnswersAreReadUpToOneMiB(t *testing.T) {
	pad := func(n int) string { return `{"access_token":"AT2","x":"` + strings.Repeat("x", n-29) + `"}` }
	for n, wantOK := range map[int]bool{1 << 20: true, 1<<20 + 1: false, 8 << 20: false} {
		if len(pad(n)) != n {
			t.Fatalf("the pad is %d bytes long, not %d", len(pad(n)), n)
		}
		s := serve(t, reply(200, "application/json", pad(n)))
		_, err := requester(s).Refresh(deadline(t), refreshRequest(s.URL))
		if wantOK != (err == nil) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err != nil && asError(t, err).Class != oauthflow.ClassTemporary {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
