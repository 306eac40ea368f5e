package oauthflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/oauthflow"
)

// asked is what a registration said.
type asked struct {
	ClientName      string    `json:"client_name"`
	ApplicationType string    `json:"application_type"`
	RedirectURIs    []string  `json:"redirect_uris"`
	GrantTypes      []string  `json:"grant_types"`
	ResponseTypes   *[]string `json:"response_types"`
	AuthMethod      string    `json:"token_endpoint_auth_method"`
	Scope           *string   `json:"scope"`
}

func askedOf(t *testing.T, q recorded) (a asked) {
	t.Helper()
	must(t, json.Unmarshal([]byte(q.body), &a))
	if q.method != "POST" || q.header.Get("Content-Type") != "application/json" || q.header.Get("Authorization") != "" {
		t.Errorf("asked with %+v", q)
	}
	return a
}

func TestARegistrationSaysWhatWeAre(t *testing.T) {
	const device = "urn:ietf:params:oauth:grant-type:device_code"
	for name, c := range map[string]struct {
		reg       oauthflow.Registration
		grants    []string
		responses []string
		scope     *string
	}{
		"for a browser": {oauthflow.Registration{RedirectURIs: []string{"http://127.0.0.1/callback"}, Scopes: []string{"a", "b"}},
			[]string{"authorization_code", "refresh_token"}, []string{"code"}, new("a b")},
		"for a device": {oauthflow.Registration{GrantTypes: []string{device, "refresh_token"}}, []string{device, "refresh_token"}, []string{}, nil},
	} {
		s := serve(t, reply(201, "application/json", `{"client_id":"new"}`))
		got, err := requester(s).Register(deadline(t), oauthflow.Server{RegistrationEndpoint: s.URL}, c.reg)
		if err != nil || got.Client.ID != "new" || !got.Client.Secret.Empty() || got.AuthMethod != "none" || len(s.seen()) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		a := askedOf(t, s.seen()[0])
		if a.ClientName != "spendonce" || a.ApplicationType != "native" || a.AuthMethod != "none" || !slices.Equal(a.RedirectURIs, c.reg.RedirectURIs) ||
			!slices.Equal(a.GrantTypes, c.grants) || a.ResponseTypes == nil || !slices.Equal(*a.ResponseTypes, c.responses) ||
			(a.Scope == nil) != (c.scope == nil) || a.Scope != nil && *a.Scope != *c.scope {
			t.Errorf("%s: %s", name, s.seen()[0].body)
		}
	}
}

func TestAClientAuthenticatesAsTheServerDemands(t *testing.T) {
	for _, c := range []struct {
		supported, offered []string
	}{
		{nil, []string{"none", "client_secret_basic"}},
		{[]string{"client_secret_post", "client_secret_basic", "none"}, []string{"none"}},
		{[]string{"client_secret_post", "client_secret_basic"}, []string{"client_secret_basic"}},
		{[]string{"private_key_jwt", "client_secret_post"}, []string{"client_secret_post"}},
		{[]string{"private_key_jwt"}, nil},
	} {
		s := serve(t, reply(400, "", `{"error":"invalid_client_metadata"}`))
		_, err := requester(s).Register(deadline(t), oauthflow.Server{RegistrationEndpoint: s.URL, TokenAuthMethods: c.supported}, oauthflow.Registration{})
		var offered []string
		for _, q := range s.seen() {
			offered = append(offered, askedOf(t, q).AuthMethod)
		}
		want := oauthflow.ErrRegistration
		if c.offered == nil {
			want = oauthflow.ErrNoRegistration
		}
		if !slices.Equal(offered, c.offered) || !errors.Is(err, want) || !strings.Contains(err.Error(), "--client-id") {
			t.Errorf("%q: offered %q, %v", c.supported, offered, err)
		}
	}
}

func TestTheAnswerToARegistrationIsHeldToItsWords(t *testing.T) {
	for name, c := range map[string]struct {
		body, asked string
		ok          bool
		id, secret  string
		method      string
		expires     int64
	}{
		"public":                     {`{"client_id":"c1"}`, "none", true, "c1", "", "none", 0},
		"said to be public":          {`{"client_id":"c1","token_endpoint_auth_method":"none","client_secret":"s"}`, "none", true, "c1", "", "none", 0},
		"made confidential":          {`{"client_id":"c1","token_endpoint_auth_method":"client_secret_post","client_secret":"s"}`, "none", true, "c1", "s", "client_secret_post", 0},
		"given a secret":             {`{"client_id":"c1","client_secret":"s"}`, "none", true, "c1", "s", "client_secret_basic", 0},
		"confidential, as asked":     {`{"client_id":"c1","client_secret":"s","client_secret_expires_at":4102444800}`, "client_secret_post", true, "c1", "s", "client_secret_post", 4102444800},
		"a secret that never ends":   {`{"client_id":"c1","client_secret":"s","client_secret_expires_at":0}`, "client_secret_post", true, "c1", "s", "client_secret_post", 0},
		"an absurd end":              {`{"client_id":"c1","client_secret":"s","client_secret_expires_at":1e300}`, "client_secret_post", true, "c1", "s", "client_secret_post", 0},
		"without the secret":         {`{"client_id":"c1"}`, "client_secret_basic", false, "", "", "", 0},
		"without an id":              {`{"client_secret":"s"}`, "none", false, "", "", "", 0},
		"an id in other letters":     {`{"Client_Id":"c1"}`, "none", false, "", "", "", 0},
		"an id that is a number":     {`{"client_id":7}`, "none", false, "", "", "", 0},
		"an id with a line feed":     {`{"client_id":"c\n1"}`, "none", false, "", "", "", 0},
		"an id with a space":         {`{"client_id":"c 1"}`, "none", false, "", "", "", 0},
		"an id of another alphabet":  {`{"client_id":"\u0441"}`, "none", false, "", "", "", 0},
		"an endless id":              {`{"client_id":"` + strings.Repeat("c", 1025) + `"}`, "none", false, "", "", "", 0},
		"a secret with a line feed":  {`{"client_id":"c1","client_secret":"s\r\n"}`, "client_secret_post", false, "", "", "", 0},
		"a method that is not known": {`{"client_id":"c1","token_endpoint_auth_method":"private_key_jwt"}`, "none", false, "", "", "", 0},
		"HTML":                       {`<html>`, "none", false, "", "", "", 0},
	} {
		got, ok := oauthflow.ReadRegistered(answer(201, "", c.body), c.asked)
		var expires int64
		if !got.SecretExpiresAt.IsZero() {
			expires = got.SecretExpiresAt.Unix()
		}
		if ok != c.ok || got.Client.ID != c.id || got.Client.Secret.Reveal() != c.secret || got.AuthMethod != c.method || expires != c.expires {
			t.Errorf("%s: %v, %+v", name, ok, got)
		}
	}
}

func TestARefusedRegistrationSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		body    string
		code    string
		class   oauthflow.Class
		refused bool
	}{
		"by a reason":         {400, `{"error":"invalid_redirect_uri","error_description":"no \u001bloopback"}`, "invalid_redirect_uri", oauthflow.ClassWrongRequest, true},
		"for want of a token": {401, `{"error":"invalid_token"}`, "invalid_token", oauthflow.ClassWrongRequest, true},
		"by a bare 401":       {401, ``, "", oauthflow.ClassWrongRequest, true},
		"by a page":           {403, `<html>`, "", oauthflow.ClassWrongRequest, true},
		"by nothing there":    {404, `no`, "", oauthflow.ClassWrongRequest, true},
		"with status 200":     {200, `{"error":"access_denied"}`, "access_denied", oauthflow.ClassWrongRequest, true},
		"for now":             {503, ``, "", oauthflow.ClassTemporary, false},
		"for its number":      {429, `{"error":"too_many"}`, "too_many", oauthflow.ClassTemporary, false},
		"by a redirect":       {307, ``, "", oauthflow.ClassTemporary, false},
		"by half an answer":   {201, `{"client_id":`, "", oauthflow.ClassTemporary, false},
	} {
		s := serve(t, reply(c.status, "", c.body))
		_, err := requester(s).Register(deadline(t), oauthflow.Server{RegistrationEndpoint: s.URL}, oauthflow.Registration{})
		e := asError(t, err)
		if e.Code != c.code || e.Class != c.class || errors.Is(err, oauthflow.ErrRegistration) != c.refused || strings.Contains(e.Text, "--client-id") != c.refused || len(s.seen()) != 1 {
			t.Errorf("%s: %+v", name, *e)
		}
		checkText(t, e.Text)
	}
	for _, server := range []oauthflow.Server{{}, {RegistrationEndpoint: "http://as.example"}} {
		_, err := (&oauthflow.Requester{}).Register(deadline(t), server, oauthflow.Registration{})
		if e := asError(t, err); !e.NotSent || errors.Is(err, oauthflow.ErrNoRegistration) != (server.RegistrationEndpoint == "") {
			t.Errorf("%+v", *e)
		}
	}
}

// What comes back is the new client's, whatever the rest of the answer is.
func TestNoSecretOfARegistrationReachesAnError(t *testing.T) {
	fresh := canaries["new token"]
	for _, body := range []string{
		`{"client_secret":"` + fresh + `","registration_access_token":"` + fresh + `"}`,
		`{"client_id":"with space","client_secret":"` + fresh + `"}`,
		`{"error":"x","error_description":"` + fresh + ` was made","registration_access_token":"` + fresh + `"}`,
		`{"client_id":"c","client_secret":"` + fresh + `"`,
		`{"registration":{"registration_access_token":"` + fresh + `"}}`,
	} {
		for _, status := range []int{201, 400, 401, 500} {
			s := serve(t, reply(status, "", body))
			got, err := requester(s).Register(deadline(t), oauthflow.Server{RegistrationEndpoint: s.URL}, oauthflow.Registration{})
			if err == nil {
				t.Errorf("%d %s: no error", status, body)
				continue
			}
			if l := leaks(printings(err) + fmt.Sprintf("%+v", got)); l != "" {
				t.Errorf("%d %s: %s in %s", status, body, l, printings(err))
			}
		}
	}
	s := serve(t, reply(201, "", `{"client_id":"c","client_secret":"`+fresh+`","registration_access_token":"`+fresh+`"}`))
	got, err := requester(s).Register(deadline(t), oauthflow.Server{RegistrationEndpoint: s.URL}, oauthflow.Registration{})
	if err != nil || got.Client.Secret.Reveal() != fresh || leaks(fmt.Sprintf("%v %+v %#v", got, got, got)) != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Every leg that is no token request of a browser, against a server that
// echoes all it gets.
func TestNoLegsErrorHoldsASecret(t *testing.T) {
	client := oauthflow.Client{ID: "cid", Secret: secretOf("client secret")}
	for _, methods := range [][]string{nil, {"client_secret_basic"}} {
		for _, status := range []int{200, 302, 400, 401, 403, 502} {
			echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body := readAll(r)
				if r.URL.Path == "/device" && !strings.Contains(body, "scope=") {
					reply(200, "", `{"device_code":"canary-code-3","user_code":"AB","verification_uri":"https://as.example/d","expires_in":60}`)(w, r)
					return
				}
				w.Header().Set("Content-Type", unescaped(body))
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, "%s %s %s", r.Header.Get("Authorization"), body, unescaped(body))
			})
			server := oauthflow.Server{TokenEndpoint: echo.URL, DeviceAuthorizationEndpoint: echo.URL + "/device", TokenAuthMethods: methods}
			_, machine := requester(echo).ClientCredentials(deadline(t), oauthflow.ClientCredentialsRequest{Server: server, Client: client})
			s := &deviceServer{recorder: echo}
			for name, scopes := range map[string][]string{"device": {"a"}, "poll": nil} {
				var pauses []time.Duration
				l := s.login(&pauses)
				l.Server, l.Client, l.Scopes = server, client, scopes
				if _, err := l.Run(deadline(t)); err == nil || leaks(printings(err)) != "" {
					t.Errorf("%s, %d: %s", name, status, printings(err))
				}
			}
			if machine == nil || leaks(printings(machine)) != "" {
				t.Errorf("client credentials, %d: %v", status, machine)
			}
		}
	}
}
