package oauthflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

const deviceAnswer = `{"device_code":"canary-code-3","user_code":"ABCD-EFGH","verification_uri":"https://as.example/device","expires_in":600,"interval":%s}`

// A deviceServer gives out one device code and then its answers, in turn; the
// last one for ever.
type deviceServer struct {
	*recorder
	polls atomic.Int32
}

func serveDevice(t *testing.T, grant string, answers ...http.HandlerFunc) *deviceServer {
	s := &deviceServer{}
	s.recorder = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/device" {
			reply(200, "application/json", grant)(w, r)
			return
		}
		n := int(s.polls.Add(1))
		answers[min(n, len(answers))-1](w, r)
	})
	return s
}

// login is a sign-in at the server whose pauses are noted and do not last.
func (s *deviceServer) login(pauses *[]time.Duration) *oauthflow.DeviceLogin {
	at := now
	l := &oauthflow.DeviceLogin{
		Requester: oauthflow.Requester{Now: func() time.Time { return at }},
		Server:    oauthflow.Server{DeviceAuthorizationEndpoint: s.URL + "/device", TokenEndpoint: s.URL + "/token"},
		Client:    oauthflow.Client{ID: "cid"}, Prompt: func(oauthflow.DevicePrompt) {},
	}
	l.Drive(func(ctx context.Context, d time.Duration) error {
		*pauses = append(*pauses, d)
		at = at.Add(d)
		return ctx.Err()
	}, 0)
	return l
}

func oauthErr(code string) http.HandlerFunc {
	return reply(400, "application/json", `{"error":"`+code+`","error_description":"why"}`)
}

func dropped(w http.ResponseWriter, _ *http.Request) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

func seconds(list ...int) (all []time.Duration) {
	for _, n := range list {
		all = append(all, time.Duration(n)*time.Second)
	}
	return all
}

func TestADeviceAsksAtThePaceThatTheServerWants(t *testing.T) {
	pending, slow, fine := oauthErr("authorization_pending"), oauthErr("slow_down"), reply(200, "", good)
	busy := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "120")
		reply(503, "", "")(w, r)
	}
	for name, c := range map[string]struct {
		interval string
		answers  []http.HandlerFunc
		want     []time.Duration
	}{
		"its interval":             {"7", []http.HandlerFunc{pending, pending, fine}, seconds(7, 7, 7)},
		"five seconds more":        {"7", []http.HandlerFunc{pending, slow, pending, slow, fine}, seconds(7, 7, 12, 12, 17)},
		"slow down by status 429":  {"7", []http.HandlerFunc{reply(429, "", `{"error":"slow_down"}`), fine}, seconds(7, 12)},
		"none said":                {"null", []http.HandlerFunc{fine}, seconds(5)},
		"zero":                     {"0", []http.HandlerFunc{fine}, seconds(5)},
		"negative":                 {"-3", []http.HandlerFunc{fine}, seconds(5)},
		"no number":                {`"soon"`, []http.HandlerFunc{fine}, seconds(5)},
		"a number in a string":     {`"3"`, []http.HandlerFunc{fine}, seconds(3)},
		"next to nothing":          {"1e-9", []http.HandlerFunc{fine}, []time.Duration{50 * time.Millisecond}},
		"longer than the code":     {"1e300", []http.HandlerFunc{pending}, seconds(600)},
		"after broken connections": {"5", []http.HandlerFunc{dropped, dropped, pending, fine}, seconds(5, 10, 20, 5)},
		"at most a minute":         {"20", []http.HandlerFunc{dropped, dropped, dropped, fine}, seconds(20, 40, 60, 60)},
		"but the server's":         {"90", []http.HandlerFunc{dropped, fine}, seconds(90, 90)},
		"Retry-After":              {"5", []http.HandlerFunc{busy, fine}, seconds(5, 120)},
		"a captive portal's page":  {"5", []http.HandlerFunc{reply(200, "text/html", "<html>"), fine}, seconds(5, 10)},
	} {
		var pauses []time.Duration
		s := serveDevice(t, fmt.Sprintf(deviceAnswer, c.interval), c.answers...)
		_, err := s.login(&pauses).Run(deadline(t))
		if !slices.Equal(pauses, c.want) || err != nil != (name == "longer than the code") {
			t.Errorf("%s: %v, want %v, %v", name, pauses, c.want, err)
		}
	}
}

func TestAnAnswerThatDoesNotComeIsWaitedForAndAskedForLater(t *testing.T) {
	var pauses []time.Duration
	s := serveDevice(t, fmt.Sprintf(deviceAnswer, "5"),
		func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, reply(200, "", good))
	l := s.login(&pauses)
	wait := func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
	l.Drive(wait, 50*time.Millisecond)
	if _, err := l.Run(deadline(t)); err != nil || !slices.Equal(pauses, seconds(5, 10)) {
		t.Errorf("%v, %v", pauses, err)
	}
}

// The real timer, with the clock of a bubble; the server is outside of it.
func TestTheTimeBetweenTwoQuestionsPasses(t *testing.T) {
	s := serveDevice(t, fmt.Sprintf(deviceAnswer, "5"), oauthErr("authorization_pending"), oauthErr("slow_down"), reply(200, "", good))
	synctest.Test(t, func(t *testing.T) {
		l := oauthflow.DeviceLogin{Server: oauthflow.Server{DeviceAuthorizationEndpoint: s.URL + "/device", TokenEndpoint: s.URL + "/token"},
			Client: oauthflow.Client{ID: "cid"}, Prompt: func(oauthflow.DevicePrompt) {}}
		start := time.Now()
		_, err := l.Run(t.Context())
		if took := time.Since(start); err != nil || took != 20*time.Second {
			t.Errorf("%v, %v", took, err)
		}
	})
}

func TestADeviceLoginEndsInSoManyWays(t *testing.T) {
	pending := oauthErr("authorization_pending")
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		is      error
		code    string
		says    string
	}{
		"denied":               {[]http.HandlerFunc{pending, oauthErr("access_denied")}, oauthflow.ErrDeviceDenied, "access_denied", "start it again"},
		"expired":              {[]http.HandlerFunc{oauthErr("expired_token")}, oauthflow.ErrDeviceExpired, "expired_token", "start the sign-in again"},
		"never approved":       {[]http.HandlerFunc{pending}, oauthflow.ErrDeviceExpired, "expired_token", "start the sign-in again"},
		"never reached":        {[]http.HandlerFunc{dropped}, oauthflow.ErrDeviceExpired, "expired_token", "start the sign-in again"},
		"refused":              {[]http.HandlerFunc{oauthErr("invalid_grant")}, nil, "invalid_grant", "why"},
		"our client is gone":   {[]http.HandlerFunc{oauthErr("invalid_client")}, nil, "invalid_client", "why"},
		"the tokens were lost": {[]http.HandlerFunc{dropped, oauthErr("invalid_grant")}, nil, "invalid_grant", "may have been lost"},
	} {
		var pauses []time.Duration
		s := serveDevice(t, fmt.Sprintf(deviceAnswer, "5"), c.answers...)
		l := s.login(&pauses)
		l.Keep = func(context.Context, oauthflow.Result) error { t.Error(name + ": something was kept"); return nil }
		_, err := l.Run(deadline(t))
		e := asError(t, err)
		if e.Code != c.code || c.is != nil && (!errors.Is(err, c.is) || e.Class != oauthflow.ClassRefused) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v", name, *e)
		}
		var all time.Duration
		for _, p := range pauses {
			all += p
		}
		if all > 600*time.Second || strings.HasPrefix(name, "never") != (all == 600*time.Second) {
			t.Errorf("%s: %v passed", name, all)
		}
		if n := int(s.polls.Load()); strings.HasPrefix(name, "never") && n != len(pauses)-1 {
			t.Errorf("%s: %d questions in %d pauses", name, n, len(pauses))
		}
	}
}

func TestADeviceLoginEndsWithItsContext(t *testing.T) {
	var pauses []time.Duration
	ctx, cancel := context.WithCancelCause(deadline(t))
	s := serveDevice(t, fmt.Sprintf(deviceAnswer, "5"), func(w http.ResponseWriter, r *http.Request) {
		cancel(nil)
		<-r.Context().Done()
	})
	if _, err := s.login(&pauses).Run(ctx); !errors.Is(err, context.Canceled) || len(pauses) != 1 {
		t.Errorf("in a question: %v", err)
	}
	ctx, cancel = context.WithCancelCause(deadline(t))
	l := s.login(&pauses)
	l.Drive(nil, 0) // a real timer of 5 s, which the end cuts short
	l.Prompt = func(oauthflow.DevicePrompt) { cancel(nil) }
	if _, err := l.Run(ctx); !errors.Is(err, context.Canceled) || s.polls.Load() != 1 {
		t.Errorf("in a pause: %v", err)
	}
}

func TestWhatADeviceLoginGaveIsKept(t *testing.T) {
	var pauses []time.Duration
	full := errors.New("the disk is full")
	s := serveDevice(t, fmt.Sprintf(deviceAnswer, "5"), reply(200, "", good))
	l := s.login(&pauses)
	var shown []oauthflow.DevicePrompt
	l.Prompt = func(p oauthflow.DevicePrompt) { shown = append(shown, p) }
	l.Keep = func(_ context.Context, res oauthflow.Result) error {
		if res.Tokens.RefreshToken.Reveal() != "RT2" || res.Client.ID != "cid" {
			t.Errorf("%+v", res)
		}
		return full
	}
	if res, err := l.Run(deadline(t)); !errors.Is(err, full) || !res.Tokens.AccessToken.Empty() {
		t.Errorf("%+v, %v", res, err)
	}
	want := oauthflow.DevicePrompt{VerificationURI: "https://as.example/device", UserCode: "ABCD-EFGH", ExpiresAt: now.Add(600 * time.Second)}
	if len(shown) != 1 || shown[0].VerificationURI != want.VerificationURI || shown[0].UserCode != want.UserCode || !shown[0].ExpiresAt.Equal(want.ExpiresAt) {
		t.Errorf("%+v", shown)
	}
}

func TestBothLegsOfADeviceLoginSayWhatTheyWant(t *testing.T) {
	for _, c := range []struct {
		resource      string
		client        oauthflow.Client
		device, token url.Values
	}{
		{"https://rs.example/mcp", oauthflow.Client{ID: "cid"},
			url.Values{"client_id": {"cid"}, "scope": {"a b"}, "resource": {"https://rs.example/mcp"}},
			url.Values{"client_id": {"cid"}, "resource": {"https://rs.example/mcp"}}},
		{"", oauthflow.Client{ID: "cid", Secret: secret.New("s")},
			url.Values{"client_id": {"cid"}, "client_secret": {"s"}, "scope": {"a b"}}, url.Values{"client_id": {"cid"}, "client_secret": {"s"}}},
	} {
		var pauses []time.Duration
		s := serveDevice(t, fmt.Sprintf(deviceAnswer, "5"), reply(200, "", good))
		l := s.login(&pauses)
		l.Scopes, l.Resource, l.Client = []string{"a", "b"}, c.resource, c.client
		if _, err := l.Run(deadline(t)); err != nil {
			t.Fatal(err)
		}
		c.token.Set("grant_type", "urn:ietf:params:oauth:grant-type:device_code")
		c.token.Set("device_code", "canary-code-3")
		if seen := s.seen(); seen[0].body != c.device.Encode() || seen[1].body != c.token.Encode() || seen[0].header.Get("Content-Type") != "application/x-www-form-urlencoded" {
			t.Errorf("%s\n%s", seen[0].body, seen[1].body)
		}
	}
}

func TestWhatCannotBeShownToAPersonIsRefused(t *testing.T) {
	grant := func(replace ...string) string {
		doc := strings.NewReplacer(replace...).Replace(`{"device_code":"dc","user_code":"ABCD","verification_uri":"https://as.example/d","verification_uri_complete":"https://as.example/d?c=ABCD","expires_in":60}`)
		return doc
	}
	for name, c := range map[string]struct {
		body         string
		ok, complete bool
	}{
		"all well":                {grant(), true, true},
		"Google's name":           {grant("verification_uri", "verification_url"), true, true},
		"http":                    {grant("https://", "http://"), true, true},
		"no device code":          {grant(`"dc"`, `""`), false, false},
		"no user code":            {grant(`"ABCD"`, `""`), false, false},
		"a blank user code":       {grant(`"ABCD"`, `"  "`), false, false},
		"an escape sequence":      {grant(`"ABCD"`, `"\u001b]0;x\u0007"`), false, false},
		"a line feed":             {grant(`"ABCD"`, `"AB\nCD"`), false, false},
		"a right-to-left mark":    {grant(`"ABCD"`, `"AB\u202eCD"`), false, false},
		"an endless user code":    {grant(`"ABCD"`, `"`+strings.Repeat("A", 65)+`"`), false, false},
		"a relative address":      {grant(`"https://as.example/d"`, `"/d"`), false, false},
		"a script":                {grant(`"https://as.example/d"`, `"javascript:alert(1)"`), false, false},
		"a file":                  {grant(`"https://as.example/d"`, `"file:///etc/passwd"`), false, false},
		"a user in the address":   {grant(`"https://as.example/d"`, `"https://bank.example@evil.example/"`), false, false},
		"a space in the address":  {grant(`"https://as.example/d"`, `"https://as.example/ d"`), false, false},
		"a letter from elsewhere": {grant(`"https://as.example/d"`, `"https://\u0430s.example/d"`), false, false},
		"an endless address":      {grant(`"https://as.example/d"`, `"https://as.example/`+strings.Repeat("d", 2048)+`"`), false, false},
		"an unfit complete one":   {grant(`d?c=ABCD`, `d?c=\u001b[31m`), true, false},
		"our secret in the code":  {grant(`"ABCD"`, `"canary~verifier_4"`), false, false},
		"the device code in it":   {grant(`"dc"`, `"long-device-code"`, `d?c=ABCD`, `d?c=long-device-code`), false, false},
		"no object":               {`[]`, false, false},
		"HTML":                    {`<html>`, false, false},
	} {
		p, _, ok := oauthflow.ReadDevicePrompt(answer(200, "", c.body), now, secret.New("canary~verifier_4"))
		if ok != c.ok || (p.VerificationURIComplete != "") != c.complete {
			t.Errorf("%s: %v, %+v", name, ok, p)
		}
	}
	for body, want := range map[string]time.Duration{`60`: time.Minute, `"60"`: time.Minute, `null`: 10 * time.Minute, `-1`: 10 * time.Minute, `1e300`: 24 * time.Hour} {
		p, _, ok := oauthflow.ReadDevicePrompt(answer(200, "", grant(`:60`, `:`+body)), now)
		if !ok || p.ExpiresAt.Sub(now) != want {
			t.Errorf("expires_in %s: %v", body, p.ExpiresAt.Sub(now))
		}
	}
}

func TestADeviceLoginThatCannotBeginSaysSo(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	run := func(server oauthflow.Server, id string) error {
		l := oauthflow.DeviceLogin{Server: server, Client: oauthflow.Client{ID: id}, Prompt: func(oauthflow.DevicePrompt) { t.Error("prompted") }}
		_, err := l.Run(deadline(t))
		return err
	}
	full := oauthflow.Server{DeviceAuthorizationEndpoint: s.URL, TokenEndpoint: s.URL}
	if err := run(oauthflow.Server{TokenEndpoint: s.URL}, "cid"); !errors.Is(err, oauthflow.ErrNoDevice) || !strings.Contains(err.Error(), "--paste") || !asError(t, err).NotSent {
		t.Error(err)
	}
	for _, err := range []error{run(full, ""), run(oauthflow.Server{DeviceAuthorizationEndpoint: "http://as.example", TokenEndpoint: s.URL}, "cid"),
		run(oauthflow.Server{DeviceAuthorizationEndpoint: s.URL}, "cid")} {
		if e := asError(t, err); !e.NotSent || e.Class != oauthflow.ClassWrongRequest {
			t.Errorf("%+v", *e)
		}
	}
	if e := asError(t, run(full, "cid")); e.Status != 404 {
		t.Errorf("%+v", *e)
	}
	for body, class := range map[string]oauthflow.Class{`{"error":"unauthorized_client"}`: oauthflow.ClassClientDead, `{"error":"invalid_scope"}`: oauthflow.ClassWrongRequest} {
		refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400); _, _ = io.WriteString(w, body) })
		if e := asError(t, run(oauthflow.Server{DeviceAuthorizationEndpoint: refusing.URL, TokenEndpoint: refusing.URL}, "cid")); e.Class != class {
			t.Errorf("%s: %+v", body, *e)
		}
	}
}

func TestAServerCannotHaveOurSecretShown(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		doc := map[string]any{"device_code": "dc", "user_code": r.PostFormValue("client_secret"), "verification_uri": "https://as.example/d", "expires_in": 60}
		_ = json.NewEncoder(w).Encode(doc)
	})
	l := oauthflow.DeviceLogin{Client: oauthflow.Client{ID: "cid", Secret: secret.New("canary-code-3")},
		Server: oauthflow.Server{DeviceAuthorizationEndpoint: s.URL, TokenEndpoint: s.URL},
		Prompt: func(p oauthflow.DevicePrompt) { t.Errorf("shown: %+v", p) }}
	if _, err := l.Run(deadline(t)); err == nil || leaks(printings(err)) != "" {
		t.Errorf("%s", printings(err))
	}
}
