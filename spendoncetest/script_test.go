package spendoncetest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spendonce/spendonce/spendoncetest"
)

func script(t *testing.T, s *spendoncetest.TokenServer, answers ...spendoncetest.Answer) {
	t.Helper()
	if err := s.Script(answers...); err != nil {
		t.Fatal(err)
	}
}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

func TestAReplacingAnswerSpendsNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		a    spendoncetest.Answer
		want func(answer) bool
	}{
		"status":         {spendoncetest.Answer{Status: 503}, func(a answer) bool { return a.status == 503 && a.body == "" }},
		"oauth error":    {spendoncetest.Answer{Error: "invalid_client"}, func(a answer) bool { return a.status == 400 && a.text("error") == "invalid_client" }},
		"error in 200":   {spendoncetest.Answer{Status: 200, Error: "bad_refresh_token"}, func(a answer) bool { return a.status == 200 && a.text("error") == "bad_refresh_token" }},
		"retry after":    {spendoncetest.Answer{Status: 429, Header: map[string]string{"Retry-After": "7"}}, func(a answer) bool { return a.status == 429 && a.header.Get("Retry-After") == "7" }},
		"html":           {spendoncetest.Answer{Status: 200, ContentType: "text/html", Body: "<html>"}, func(a answer) bool { return a.header.Get("Content-Type") == "text/html" && a.body == "<html>" }},
		"html as json":   {spendoncetest.Answer{Body: "<html>"}, func(a answer) bool { return a.status == 200 && a.header.Get("Content-Type") == "application/json" }},
		"empty object":   {spendoncetest.Answer{Body: "{}"}, func(a answer) bool { return a.status == 200 && a.body == "{}" }},
		"echo":           {spendoncetest.Answer{Error: "invalid_grant", Description: "bad {refresh_token} of {client_id}"}, nil},
		"echo in body":   {spendoncetest.Answer{Status: 400, ContentType: "text/plain", Body: "bad {refresh_token} of {client_id}"}, nil},
		"echo in header": {spendoncetest.Answer{Status: 400, Header: map[string]string{"X-Debug": "bad {refresh_token} of {client_id}"}}, nil},
	} {
		s := start(t, spendoncetest.TokenServerConfig{})
		rt := s.NewSession("alice").RefreshToken.Reveal()
		script(t, s, tt.a)
		got := refresh(t, s, rt)
		if tt.want == nil {
			whole := got.text("error_description") + got.body + got.header.Get("X-Debug")
			if !strings.Contains(whole, "bad "+rt+" of "+s.ClientID()) {
				t.Errorf("%s: the answer does not echo", name)
			}
		} else if !tt.want(got) {
			t.Errorf("%s: %d %s %v", name, got.status, got.body, got.header)
		}
		if c := s.Counters(); c.ScriptedAnswers != 1 || c.Exchanges != 0 || c.TokenPosts != 1 || !s.Spendable(rt) {
			t.Errorf("%s: counters %+v", name, c)
		}
		if next := refresh(t, s, rt); next.status != 200 {
			t.Errorf("%s: the next one is not normal: %d", name, next.status)
		}
	}
}

func TestAnAnswerIsPatchedAfterTheRotation(t *testing.T) {
	for name, tt := range map[string]struct {
		a    spendoncetest.Answer
		want func(answer) bool
	}{
		"omitted": {spendoncetest.Answer{Omit: []string{"refresh_token", "scope"}}, func(a answer) bool { return a.m["refresh_token"] == nil && !strings.Contains(a.body, "refresh_token") }},
		"null":    {spendoncetest.Answer{Set: map[string]json.RawMessage{"refresh_token": raw("null")}}, func(a answer) bool { return strings.Contains(a.body, `"refresh_token":null`) }},
		"empty":   {spendoncetest.Answer{Set: map[string]json.RawMessage{"refresh_token": raw(`""`)}}, func(a answer) bool { return strings.Contains(a.body, `"refresh_token":""`) }},
		"absurd":  {spendoncetest.Answer{Set: map[string]json.RawMessage{"expires_in": raw("1e18")}}, func(a answer) bool { return strings.Contains(a.body, `"expires_in":1e18`) }},
		"string":  {spendoncetest.Answer{Set: map[string]json.RawMessage{"expires_in": raw(`"3600abc"`)}}, func(a answer) bool { return a.text("expires_in") == "3600abc" }},
		"form": {spendoncetest.Answer{Form: true}, func(a answer) bool {
			return strings.Contains(a.body, "access_token=at_") && strings.Contains(a.body, "expires_in=3600")
		}},
		"error too": {spendoncetest.Answer{Process: true, Status: 500}, func(a answer) bool { return a.status == 500 }},
	} {
		s := start(t, spendoncetest.TokenServerConfig{})
		rt := s.NewSession("alice").RefreshToken.Reveal()
		script(t, s, tt.a)
		if got := refresh(t, s, rt); !tt.want(got) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if s.Counters().Exchanges != 1 || s.Spendable(rt) {
			t.Errorf("%s: the token was not spent", name)
		}
	}
}

func TestADroppedConnectionSpendsOrSpendsNot(t *testing.T) {
	for _, tt := range []struct {
		a     spendoncetest.Answer
		spent bool
		err   error
	}{
		{spendoncetest.Answer{Drop: spendoncetest.Before}, false, io.EOF},
		{spendoncetest.Answer{Drop: spendoncetest.After}, true, io.EOF},
		{spendoncetest.Answer{Drop: spendoncetest.Before, Reset: true}, false, syscall.ECONNRESET},
		{spendoncetest.Answer{Drop: spendoncetest.After, Reset: true, Delay: time.Millisecond}, true, syscall.ECONNRESET},
		{spendoncetest.Answer{Truncate: true}, true, io.ErrUnexpectedEOF},
	} {
		s := start(t, spendoncetest.TokenServerConfig{})
		rt := s.NewSession("alice").RefreshToken.Reveal()
		script(t, s, tt.a)
		resp, err := http.PostForm(s.TokenEndpoint(), form("grant_type", "refresh_token", "refresh_token", rt))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, tt.err) {
			t.Errorf("%+v: %v", tt.a, err)
		}
		if s.Spendable(rt) == tt.spent {
			t.Errorf("%+v: spent is not %v", tt.a, tt.spent)
		}
	}
}

func TestARequestThatHangsEndsWithItsClientOrTheServer(t *testing.T) {
	for _, a := range []spendoncetest.Answer{{Hang: true}, {Hang: true, Process: true}, {Hang: true, Truncate: true}} {
		s := start(t, spendoncetest.TokenServerConfig{})
		rt := s.NewSession("alice").RefreshToken.Reveal()
		a.Times = 2
		script(t, s, a)
		ended := make(chan error, 2)
		post := func(req *http.Request) {
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			ended <- err
		}
		one, cancel := formRequest(t, s.TokenEndpoint(), "grant_type", "refresh_token", "refresh_token", rt)
		go post(one)
		if err := s.WaitForPosts(withDeadline(t), 1); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("the first got an answer")
		}
		if err := s.WaitFor(withDeadline(t), func(c spendoncetest.Counters) bool { return c.InFlight == 0 }); err != nil {
			t.Fatal(err)
		}
		two, _ := formRequest(t, s.TokenEndpoint(), "grant_type", "refresh_token", "refresh_token", rt)
		go post(two)
		if err := s.WaitForPosts(withDeadline(t), 2); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if err := <-ended; err == nil {
			t.Error("the second got an answer")
		}
	}
}

func TestTheQueueServesWhomItFits(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	at := s.NewSession("alice").AccessToken.Reveal()
	get := func(path string) int {
		req, err := http.NewRequestWithContext(withDeadline(t), http.MethodGet, s.ResourceURL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+at)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return read(t, resp).status
	}
	script(t, s,
		spendoncetest.Answer{Endpoint: spendoncetest.OAuth2Endpoint, IfParam: "resource", Error: "invalid_target", Times: -1},
		spendoncetest.Answer{Endpoint: spendoncetest.OAuth2Endpoint, UnlessParam: "scope", Error: "invalid_scope"},
		spendoncetest.Answer{Endpoint: spendoncetest.HypawareEndpoint, Status: 502},
		spendoncetest.Answer{Endpoint: spendoncetest.ResourceEndpoint, Path: "/resource/b", Status: 403},
		spendoncetest.Answer{Endpoint: spendoncetest.ResourceEndpoint, Times: 2},
		spendoncetest.Answer{Endpoint: spendoncetest.ResourceEndpoint, Status: 404},
	)
	for i, want := range []int{200, 200, 404, 200} {
		if got := get("/a"); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	if got := get("/b"); got != 403 {
		t.Errorf("/b: %d", got)
	}
	rt := s.NewSession("bob").RefreshToken.Reveal()
	for _, tt := range []struct {
		kv   []string
		want string
	}{
		{[]string{"resource", "https://r.example"}, "invalid_target"},
		{[]string{"scope", "openid", "resource", "https://r.example"}, "invalid_target"},
		{nil, "invalid_scope"},
		{nil, ""},
	} {
		a := postForm(t, s.TokenEndpoint(), append([]string{"grant_type", "refresh_token", "refresh_token", rt}, tt.kv...)...)
		if a.text("error") != tt.want {
			t.Errorf("%v: %q, want %q", tt.kv, a.text("error"), tt.want)
		}
	}
	if a := refreshHypaware(t, s, s.NewSession("eve").RefreshToken.Reveal()); a.status != 502 {
		t.Errorf("hypaware: %d", a.status)
	}
	s.ClearScript()
}

func TestARedirectGoesWhereItIsTold(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	const elsewhere = "http://127.0.0.1:9/elsewhere"
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for scripted, want := range map[int]int{0: 307, 301: 301, 302: 302, 303: 303, 307: 307, 308: 308} {
		script(t, s, spendoncetest.Answer{Status: scripted, Location: elsewhere})
		resp, err := c.PostForm(s.TokenEndpoint(), form("grant_type", "refresh_token"))
		must(t, err)
		if a := read(t, resp); a.status != want || a.header.Get("Location") != elsewhere {
			t.Errorf("%d: %d %v", scripted, a.status, a.header)
		}
	}
}

func TestAScriptThatMeansNothingIsRefused(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	for _, a := range []spendoncetest.Answer{
		{Endpoint: "tokn"}, {Hold: "middle"}, {Drop: "never"}, {Status: 99}, {Delay: -1},
		{Set: map[string]json.RawMessage{"expires_in": raw("3600abc")}},
	} {
		if s.Script(a) == nil {
			t.Errorf("%+v was accepted", a)
		}
	}
}
