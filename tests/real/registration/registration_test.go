package registration_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/tests/real/registration"
)

// register posts a body and returns the status and the error or client id.
func register(t *testing.T, kind, body string) (status int, said string, stored []registration.Client) {
	t.Helper()
	endpoint := registration.Endpoint{
		GrantTypes: []string{"authorization_code", "refresh_token"},
		Store:      func(c registration.Client) { stored = append(stored, c) },
	}
	request := httptest.NewRequest(http.MethodPost, registration.Path, strings.NewReader(body))
	request.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	endpoint.ServeHTTP(answer, request)
	var members struct {
		Error string `json:"error"`
		ID    string `json:"client_id"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &members); err != nil {
		t.Fatal(err)
	}
	return answer.Code, members.Error + members.ID, stored
}

func TestOnlyAPublicClientOfThisMachineIsRegistered(t *testing.T) {
	const metadata, redirect = "invalid_client_metadata", "invalid_redirect_uri"
	for name, c := range map[string]struct{ kind, body, refusal string }{
		"a form":              {"application/x-www-form-urlencoded", "a=b", metadata},
		"no JSON":             {"application/json", "{", metadata},
		"a secret":            {"application/json", `{"redirect_uris":["http://127.0.0.1/c"],"grant_types":["authorization_code"]}`, metadata},
		"an unknown grant":    {"application/json", `{"grant_types":["password"],"token_endpoint_auth_method":"none"}`, metadata},
		"no redirect":         {"application/json", `{"grant_types":["authorization_code"],"token_endpoint_auth_method":"none"}`, redirect},
		"a redirect too many": {"application/json", `{"redirect_uris":["http://127.0.0.1/c"],"grant_types":["refresh_token"],"token_endpoint_auth_method":"none"}`, redirect},
		"another machine":     {"application/json", `{"redirect_uris":["http://192.0.2.1/c"],"grant_types":["authorization_code"],"token_endpoint_auth_method":"none"}`, redirect},
	} {
		t.Run(name, func(t *testing.T) {
			status, said, stored := register(t, c.kind, c.body)
			if status != http.StatusBadRequest || said != c.refusal || len(stored) != 0 {
				t.Errorf("status %d, %q, %d stored; want %q", status, said, len(stored), c.refusal)
			}
		})
	}
}

func TestARegisteredClientIsStoredAsItAsked(t *testing.T) {
	status, id, stored := register(t, "application/json",
		`{"redirect_uris":["http://127.0.0.1:1/c"],"grant_types":["authorization_code","refresh_token"],"token_endpoint_auth_method":"none","scope":"a b"}`)
	if status != http.StatusCreated || len(stored) != 1 {
		t.Fatalf("status %d, %d stored", status, len(stored))
	}
	c := stored[0]
	if c.ID != id || !slices.Equal(c.RedirectURIs, []string{"http://127.0.0.1:1/c"}) ||
		!slices.Equal(c.GrantTypes, []string{"authorization_code", "refresh_token"}) || !slices.Equal(c.Scopes, []string{"a", "b"}) {
		t.Errorf("%+v under the id %q", c, id)
	}
}
