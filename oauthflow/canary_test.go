package oauthflow_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

// Secrets with everything that encodings change.
var canaries = map[string]string{
	"refresh token": "canary/RT+1=&x",
	"client secret": `canary"CS\2%41 <z>`,
	"code":          "canary-code-3",
	"verifier":      "canary~verifier_4",
	"access token":  "canary.AT/5+",
	"new token":     "canary.NEW/6+",
}

// needles are the canaries as they are and in encodings of one or two steps.
var needles = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for name, c := range canaries {
		for i, f := range []func(string) string{
			func(s string) string { return s }, url.QueryEscape, url.PathEscape, html.EscapeString, quoted, slashed,
			strings.ToUpper, strings.ToLower,
			func(s string) string { return strings.ToLower(url.QueryEscape(s)) },
			func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
			func(s string) string { return base64.StdEncoding.EncodeToString([]byte("cid:" + url.QueryEscape(s))) },
		} {
			m[f(c)] = fmt.Sprintf("%s, form %d", name, i)
		}
	}
	return m
})

// leaks finds a canary in text.
func leaks(text string) string {
	for needle, name := range needles() {
		if strings.Contains(text, needle) {
			return name
		}
	}
	return ""
}

// quoted is the inside of a JSON string, with every < > & escaped.
func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b[1 : len(b)-1])
}

// slashed escapes every character of a JSON string.
func slashed(s string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// echoes are the ways in which a server may repeat what it got.
func echoes(s string) []string {
	return []string{
		s, url.QueryEscape(s), strings.ToLower(url.QueryEscape(s)), url.PathEscape(s), html.EscapeString(s), quoted(s), slashed(s),
		url.QueryEscape(url.QueryEscape(s)), strings.ToUpper(s), "Zm9v" + s + "Zm9v", strings.Repeat(" ", 4000) + s,
		strings.Repeat("x ", 55) + s, strings.Repeat("y ", 79) + s,
		base64.StdEncoding.EncodeToString([]byte("cid:" + url.QueryEscape(s))),
	}
}

// bodies puts an echo where servers put such things.
func bodies(echo string) []string {
	return []string{
		echo,
		`{"error":"invalid_grant","error_description":"` + echo + `"}`,
		`{"error":"` + echo + `"}`,
		`{"error":"invalid_client","error_description":"token: ` + echo + ` is unknown"}`,
		`{"error":` + fmt.Sprintf("%q", echo) + `,"error_description":` + string(mustJSON(echo)) + `}`,
		`error=x&error_description=` + echo,
		`{"message":"` + echo + `"}`, `{"access_token":"a b","refresh_token":"` + echo + `"`, `["` + echo + `"]`,
		`<html><title>` + echo + `</title>`, `<input value="` + echo + `">`,
		`access_token=` + echo + `&refresh_token=` + echo + ` x`,
	}
}

func mustJSON(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

func sentSecrets() (all []secret.Secret) {
	for name, c := range canaries {
		if name != "new token" {
			all = append(all, secret.New(c))
		}
	}
	return all
}

func printings(err error) string {
	s := fmt.Sprintf("%v %+v %q %s", err, err, err, err)
	var e *oauthflow.Error
	if errors.As(err, &e) {
		s += fmt.Sprintf("%+v %#v", *e, *e)
	}
	for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
		s += fmt.Sprintf("%v %+v", u, u)
	}
	return s
}

func TestNoEchoOfASecretReachesAnError(t *testing.T) {
	for name, c := range canaries {
		if name == "new token" {
			continue
		}
		for _, echo := range echoes(c) {
			for _, body := range bodies(echo) {
				for _, status := range []int{200, 401, 503} {
					a := answer(status, echo, body)
					tokens, err := oauthflow.Judge(a, now, "", append(sentSecrets(), secret.New(
						base64.StdEncoding.EncodeToString([]byte("cid:"+url.QueryEscape(c)))))...)
					text := fmt.Sprintf("%+v", tokens)
					if err != nil {
						text = printings(err)
						checkText(t, asError(t, err).Text)
					}
					if l := leaks(text); l != "" {
						t.Fatalf("status %d, body %q: %s in %q", status, body, l, text)
					}
				}
			}
		}
	}
}

func checkText(t testing.TB, text string) {
	t.Helper()
	if len(text) > 400 || text == "" {
		t.Errorf("a text of %d bytes: %q", len(text), text)
	}
	for i := range len(text) {
		if text[i] < 0x20 || text[i] > 0x7e {
			t.Errorf("byte %#x in %q", text[i], text)
		}
	}
}

func TestNoReceivedTokenReachesAnError(t *testing.T) {
	fresh := canaries["new token"]
	for _, body := range []string{
		`{"access_token":"` + fresh + `","refresh_token":"with space"}`,
		`{"access_token":"a` + "\x01" + `","refresh_token":"` + fresh + `"}`,
		`{"access_token":"\u0001","refresh_token":"` + fresh + `"}`,
		`{"access_token":"` + fresh + `","refresh_token":"` + fresh + `"`, // cut off
		`{"error":"x","error_description":"` + fresh + ` was issued","access_token":"` + fresh + `"}`,
		`{"data":{"access_token":"` + fresh + `"}}`, `{"accessToken":"` + fresh + `"}`, `{"id_token":"` + fresh + `"}`,
		`{'access_token': '` + fresh + `'}`, `access_token=` + fresh + ` and more`, `<a href="?code=` + fresh + `">`,
		`<input name="access_token" value="` + fresh + `">`, `token: ` + fresh,
	} {
		for _, status := range []int{200, 400, 401, 500} {
			tokens, err := oauthflow.Judge(answer(status, "", body), now, "")
			text := fmt.Sprintf("%+v", tokens)
			if err != nil {
				text = printings(err)
			}
			if l := leaks(text); l != "" {
				t.Errorf("status %d, body %s: %s in %s", status, body, l, text)
			}
		}
	}
}

func TestNoSecretIsKeptInAScopeOrOrg(t *testing.T) {
	rt := canaries["refresh token"]
	for _, d := range []oauthflow.Dialect{"", oauthflow.Hypaware} {
		body := fmt.Sprintf(`{"access_token":"AT","access_jwt":"AT","scope":%q,"org":%q}`, "read "+rt, rt)
		got, err := oauthflow.Judge(answer(200, "", body), now, d, sentSecrets()...)
		if err != nil || got.Scope != "" || got.Org != "" || len(got.Warnings) == 0 || leaks(fmt.Sprintf("%+v", got)) != "" {
			t.Errorf("%q: %+v, %v", d, got, err)
		}
	}
}

func TestAMessageStillSaysWhatTheServerSaid(t *testing.T) {
	for _, c := range []struct{ status, typ, body, want string }{
		{"400", "application/json", `{"error":"invalid_grant","error_description":"The token canary-code-3 has been revoked"}`,
			"status 400 invalid_grant: The token [redacted] has been revoked"},
		{"400", "", `{"error":"invalid_scope","error_description":"Gr\u00fc\u00dfe\n\u001b[31m  &amp; more"}`,
			"status 400 invalid_scope: Gr e [31m & more"},
		{"200", "text/html; charset=utf-8", "<!DOCTYPE html>\n<title>Hotel Wifi</title>",
			"status 200, type text/html; charset=utf-8, no access token: <!DOCTYPE html> <title>Hotel Wifi</title>"},
		{"503", "text/plain", "upstream down", "status 503, type text/plain: upstream down"},
		{"200", "", "", "status 200, no access token, empty"},
	} {
		var status int
		_, _ = fmt.Sscan(c.status, &status)
		_, err := oauthflow.Judge(answer(status, c.typ, c.body), now, "", sentSecrets()...)
		if got := asError(t, err).Text; got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Every kind of request, against a server that echoes all it gets.
func TestNoRequestsErrorHoldsASecret(t *testing.T) {
	client := oauthflow.Client{ID: "cid", Secret: secret.New(canaries["client secret"])}
	all := func(r *oauthflow.Requester, server oauthflow.Server) {
		t.Helper()
		_, refresh := r.Refresh(deadline(t), oauthflow.RefreshRequest{Server: server, Client: client, RefreshToken: secret.New(canaries["refresh token"])})
		_, code := r.ExchangeCode(deadline(t), oauthflow.CodeRequest{Server: server, Client: client,
			Code: secret.New(canaries["code"]), Verifier: secret.New(canaries["verifier"])})
		revoke := r.Revoke(deadline(t), server, client, secret.New(canaries["access token"]), "")
		for name, err := range map[string]error{"refresh": refresh, "code": code, "revoke": revoke} {
			if err == nil {
				t.Errorf("%s did not fail", name)
				continue
			}
			if l := leaks(printings(err)); l != "" {
				t.Errorf("%s: %s in %s", name, l, printings(err))
			}
			checkText(t, asError(t, err).Text)
		}
	}
	for _, methods := range [][]string{nil, {"client_secret_basic"}} {
		for _, status := range []int{302, 400, 401, 403, 429, 502} {
			echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				decoded, _ := url.QueryUnescape(string(body))
				w.Header().Set("Content-Type", decoded)
				w.Header().Set("Retry-After", decoded)
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, "%s %s %s", r.Header.Get("Authorization"), body, decoded)
			})
			all(requester(echo), oauthflow.Server{TokenEndpoint: echo.URL, RevocationEndpoint: echo.URL, TokenAuthMethods: methods})
		}
		var everything bytes.Buffer
		for _, c := range canaries {
			everything.WriteString(c + " " + url.QueryEscape(c) + " ")
		}
		for _, raw := range []string{"", "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", "HTTP/1.1 999"} {
			broken, _ := rawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, raw+everything.String()) })
			all(&oauthflow.Requester{}, oauthflow.Server{TokenEndpoint: broken, RevocationEndpoint: broken, TokenAuthMethods: methods})
		}
	}
	all(&oauthflow.Requester{}, oauthflow.Server{TokenEndpoint: "http://127.0.0.1:1", RevocationEndpoint: "http://127.0.0.1:1"})
	all(&oauthflow.Requester{}, oauthflow.Server{TokenEndpoint: "http://as.example", RevocationEndpoint: "ftp://as.example"})
}
