package spendoncetest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest"
)

// control sends one request to the control API; edit may spoil it first.
func control(t *testing.T, s *spendoncetest.TokenServer, method, verb, body string, edit func(*http.Request)) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(withDeadline(t), method, s.ControlURL()+verb, strings.NewReader(body))
	must(t, err)
	req.Header.Set(spendoncetest.ControlHeader, s.ControlSecret().Reveal())
	if edit != nil {
		edit(req)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	return read(t, resp)
}

func TestTheControlAPIIsGuarded(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL(), "http://"), ":")
	for name, tt := range map[string]struct {
		edit func(*http.Request)
		want int
	}{
		"as it should be":      {nil, 200},
		"another loopback":     {func(r *http.Request) { r.Host = "[::1]:" + port }, 200},
		"no secret":            {func(r *http.Request) { r.Header.Del(spendoncetest.ControlHeader) }, 403},
		"a wrong secret":       {func(r *http.Request) { r.Header.Set(spendoncetest.ControlHeader, "x") }, 403},
		"a rebound name":       {func(r *http.Request) { r.Host = "rebound.example:" + port }, 403},
		"localhost":            {func(r *http.Request) { r.Host = "localhost:" + port }, 403},
		"a loopback-like name": {func(r *http.Request) { r.Host = "127.0.0.1.rebound.example" }, 403},
		"another machine":      {func(r *http.Request) { r.Host = "192.0.2.1" }, 403},
		"a web page":           {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1") }, 403},
		"no such verb":         {func(r *http.Request) { r.URL.Path = "/control/nothing" }, 404},
		"another method":       {func(r *http.Request) { r.Method = "PUT" }, 404},
	} {
		a := control(t, s, "POST", "expire", "", tt.edit)
		if a.status != tt.want {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: pages are let in", name)
		}
	}
	if c := s.Counters(); c.Requests != 0 {
		t.Error("the control API counts itself")
	}
}

func TestAToolDrivesTheServerByTheControlAPI(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	do := func(method, verb, body string) answer {
		t.Helper()
		a := control(t, s, method, verb, body, nil)
		if a.status != 200 {
			t.Fatalf("%s %s: %d %s", method, verb, a.status, a.body)
		}
		return a
	}
	session := do("POST", "sessions", `{"account":"alice"}`)
	at, rt := session.text("access_token"), session.text("refresh_token")
	if !s.Live(at) || !s.Spendable(rt) || session.text("client_id") != s.ClientID() || session.text("expires_at") == "" {
		t.Fatal("the session is not one")
	}

	do("POST", "script", `[{"status":503,"header":{"Retry-After":"7"}},{"set":{"expires_in":"x"},"omit":["scope"],"delay_ms":1}]`)
	if a := refresh(t, s, rt); a.status != 503 || a.header.Get("Retry-After") != "7" {
		t.Fatalf("scripted: %d", a.status)
	}
	if a := refresh(t, s, rt); a.status != 200 || a.text("expires_in") != "x" || a.m["scope"] != nil {
		t.Fatalf("patched: %d %v", a.status, a.m["expires_in"])
	}
	do("POST", "script", `{"hang":true,"times":-1}`)
	do("DELETE", "script", "")

	do("POST", "hold", `{"point":"before"}`)
	next := do("POST", "sessions", `{"account":"bob"}`)
	ended, _ := send(t, s, next.text("refresh_token"))
	if a := do("GET", "wait?posts=3&held_before=1", ""); a.m["held_before"] != 1.0 {
		t.Fatal("the wait ended without the held request")
	}
	do("POST", "release", `{"point":"before"}`)
	if status := <-ended; status != 200 {
		t.Fatal(status)
	}
	if a := control(t, s, "GET", "wait?posts=99&timeout_ms=1", "", nil); a.status != 504 {
		t.Fatalf("a wait that cannot end: %d", a.status)
	}

	if a := do("POST", "config", `{"required_scope":"w","challenge_scope":"r","require_resource":"/resource","client_id_metadata":true,"no_registration":true}`); a.text("required_scope") != "w" ||
		a.text("challenge_scope") != "r" || a.text("require_resource") != "/resource" || a.m["client_id_metadata"] != true || a.m["no_registration"] != true {
		t.Fatal(a.body)
	}
	if a := get(t, s.ResourceURL(), at); a.status != 403 {
		t.Fatalf("the required scope: %d", a.status)
	}
	do("POST", "config", `{"required_scope":"","require_resource":""}`)
	if a := do("POST", "config", `{"reuse_grace_ms":60000,"lifetime_ms":5000,"no_rotation":true}`); a.m["reuse_grace_ms"] != 60000.0 || a.m["no_rotation"] != true || a.m["latency_ms"] != 0.0 {
		t.Fatalf("config: %s", a.body)
	}
	if a := do("POST", "sessions", `{"account":"carol"}`); refresh(t, s, a.text("refresh_token")).m["expires_in"] != 5.0 {
		t.Fatal("the lifetime was not changed")
	}

	if do("POST", "live", `{"access_token":"`+at+`"}`).m["live"] != true || do("POST", "live", `{"refresh_token":"`+rt+`"}`).m["live"] != false {
		t.Fatal("live")
	}
	do("POST", "revoke", `{"access_token":"`+at+`"}`)
	if s.Live(at) || s.Counters().FamiliesRevoked != 0 {
		t.Fatal("revoking an access token")
	}
	do("POST", "revoke", `{"refresh_token":"`+rt+`"}`)
	if s.Counters().FamiliesRevoked != 1 {
		t.Fatal("revoking a family")
	}
	do("POST", "expire", "")
	if s.Live(next.text("access_token")) {
		t.Fatal("expiring")
	}
	do("DELETE", "clients", `{"client_id":"`+s.ClientID()+`"}`)
	if a := refresh(t, s, rt); a.text("error") != "invalid_client" {
		t.Fatal("forgetting a client")
	}
	if a := do("GET", "counters", ""); a.m["exchanges"] != 3.0 || a.m["token_posts"] != 5.0 || a.m["sessions"] != 3.0 {
		t.Fatalf("counters: %s", a.body)
	}
	if a := do("GET", "log", ""); strings.Contains(a.body, rt) || strings.Contains(a.body, at) || !strings.Contains(a.body, `"/token"`) {
		t.Fatal("the log shows a token, or nothing")
	}
}

func TestAMisspeltControlRequestIsRefused(t *testing.T) {
	s := start(t, spendoncetest.TokenServerConfig{})
	for _, tt := range [][2]string{
		{"POST script", `{"statsu":500}`}, {"POST script", `[{"hold":"now"}]`}, {"POST script", `{} {}`}, {"POST script", ``},
		{"POST sessions", `{}`}, {"POST config", `{"latency":"5ms"}`}, {"POST config", `{"latency_ms":-1}`},
		{"POST hold", `{"point":"between"}`}, {"POST release", `{}`}, {"GET wait?pots=1", ``}, {"GET wait?posts=x", ``},
		{"POST revoke", `{}`}, {"POST revoke", `{"family":"x"}`}, {"POST live", `{}`}, {"POST device", `{"user_code":"x"}`},
	} {
		method, verb, _ := strings.Cut(tt[0], " ")
		if a := control(t, s, method, verb, tt[1], nil); a.status != 400 || a.text("error") == "" {
			t.Errorf("%v: %d %s", tt, a.status, a.body)
		}
	}
}

func TestServePrintsWhereItIsAndWhatItCounted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- spendoncetest.Serve(ctx, spendoncetest.TokenServerConfig{}, w)
		w.Close()
	}()
	lines := bufio.NewReader(r)
	line, err := lines.ReadBytes('\n')
	must(t, err)
	var ready spendoncetest.Ready
	must(t, json.Unmarshal(line, &ready))
	if ready.Event != "ready" || ready.Version != 1 || ready.Password == "" || ready.ClientID == "" {
		t.Fatalf("%+v", ready)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ready.ControlURL+"sessions", strings.NewReader(`{"account":"alice"}`))
	must(t, err)
	req.Header.Set(ready.ControlHeader, ready.ControlSecret)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	rt := read(t, resp).text("refresh_token")
	if a := postForm(t, ready.TokenEndpoint, "grant_type", "refresh_token", "refresh_token", rt, "client_id", ready.ClientID); a.status != 200 {
		t.Fatal(a.status)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	line, err = lines.ReadBytes('\n')
	must(t, err)
	var final spendoncetest.Final
	must(t, json.Unmarshal(line, &final))
	if final.Event != "done" || final.Counters.Exchanges != 1 || final.Counters.InFlight != 0 {
		t.Fatalf("%+v", final)
	}
	must(t, <-ended)
	if rest, _ := io.ReadAll(lines); len(bytes.TrimSpace(rest)) > 0 {
		t.Fatalf("more than two lines: %s", rest)
	}
}
