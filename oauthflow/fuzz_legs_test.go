package oauthflow_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/oauthflow"
)

// plainASCII is what a terminal shows as it is.
func plainASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

func FuzzDevicePrompt(f *testing.F) {
	for _, body := range []string{
		`{"device_code":"dc","user_code":"AB CD","verification_uri":"https://as.example/d","expires_in":60,"interval":0}`,
		`{"device_code":"dc","user_code":"$","verification_url":"http://x/","verification_uri_complete":"https://x/$","interval":"1e99"}`,
		`{"device_code":"dc","user_code":"\u001b","verification_uri":"https://a@b/"}`, `error=x`, `[]`, `{"expires_in":-1e308}`,
	} {
		f.Add(body)
	}
	const canary = "canary/RT+1=&x"
	f.Fuzz(func(t *testing.T, body string) {
		body = strings.ReplaceAll(body, "$", canary)
		p, interval, ok := oauthflow.ReadDevicePrompt(answer(200, "", body), now, secret.New(canary))
		if !ok {
			return
		}
		if life := p.ExpiresAt.Sub(now); life < 0 || life > 24*time.Hour || interval < 50*time.Millisecond || interval > time.Hour {
			t.Fatalf("%v, %v", life, interval)
		}
		if p.UserCode == "" || len(p.UserCode) > 64 || !plainASCII(p.UserCode) {
			t.Fatalf("%q", p.UserCode)
		}
		for i, address := range []string{p.VerificationURI, p.VerificationURIComplete} {
			if i == 1 && address == "" {
				continue
			}
			u, err := url.Parse(address)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || !plainASCII(address) || strings.Contains(address, " ") {
				t.Fatalf("%q", address)
			}
		}
		if strings.Contains(p.UserCode+p.VerificationURI+p.VerificationURIComplete, canary) {
			t.Fatalf("the secret is shown: %+v", p)
		}
	})
}

func FuzzRegistered(f *testing.F) {
	for _, body := range []string{
		`{"client_id":"c1"}`, `{"client_id":"c1","client_secret":"s","client_secret_expires_at":4102444800}`, `{"client_id":"c 1"}`,
		`{"client_id":"c1","token_endpoint_auth_method":"none","client_secret":"s"}`, `{"client_id":"c1","token_endpoint_auth_method":"private_key_jwt"}`,
	} {
		f.Add(body, "none")
		f.Add(body, "client_secret_basic")
	}
	f.Fuzz(func(t *testing.T, body, asked string) {
		got, ok := oauthflow.ReadRegistered(answer(201, "", body), asked)
		if !ok {
			if got.Client.ID != "" || !got.Client.Secret.Empty() {
				t.Fatalf("%+v", got)
			}
			return
		}
		if !plainASCII(got.Client.ID) || strings.Contains(got.Client.ID, " ") || got.Client.ID == "" || !plainASCII(got.Client.Secret.Reveal()) {
			t.Fatalf("%+v", got)
		}
		if public := got.AuthMethod == "none"; public != got.Client.Secret.Empty() || !public && got.AuthMethod != "client_secret_basic" && got.AuthMethod != "client_secret_post" {
			t.Fatalf("%+v", got)
		}
	})
}

// What is read of a resource's metadata is a part of what encoding/json reads
// there, and is the resource's own.
func FuzzResourceMetadata(f *testing.F) {
	const asked = "https://rs.example/mcp"
	for _, body := range []string{
		`{"resource":"https://rs.example/mcp","authorization_servers":["https://as.example"],"scopes_supported":["a"]}`,
		`{"resource":"https://rs.example","authorization_servers":["http://127.0.0.1"]}`, `{"Resource":"https://rs.example/mcp"}`,
		`{"resource":"https://rs.example/mcp","resource":"https://evil.example","authorization_servers":["https://as.example"]}`, `[]`, `{`,
	} {
		f.Add(body, `Bearer scope="a b", resource_metadata="https://rs.example/m"`, false)
		f.Add(body, `Basic x, bearer scope=a`, true)
	}
	f.Fuzz(func(t *testing.T, body, challenge string, ofHost bool) {
		_, scope := oauthflow.BearerChallenge(oauthflow.Answer{Status: 401, Header: http.Header{"Www-Authenticate": {challenge}}})
		got, err := oauthflow.ReadResource(answer(200, "", body), asked, ofHost)
		for _, s := range append(scope, got.ScopesSupported...) {
			if s == "" || !plainASCII(s) || strings.ContainsAny(s, ` "\`) {
				t.Fatalf("the scope %q", s)
			}
		}
		if err != nil {
			if !plainASCII(err.Error()) || len(err.Error()) > 500 {
				t.Fatalf("%q", err)
			}
			return
		}
		var members map[string]json.RawMessage
		if ofHost || json.Unmarshal([]byte(body), &members) != nil || members["resource"] == nil || members["authorization_servers"] == nil ||
			got.Resource != asked || len(got.AuthorizationServers) == 0 {
			t.Fatalf("%+v", got)
		}
		for _, as := range got.AuthorizationServers {
			if u, err := url.Parse(as); err != nil || u.Scheme != "https" || u.User != nil || u.Host == "" || u.Hostname() == "localhost" {
				t.Fatalf("the issuer %q", as)
			}
		}
	})
}
