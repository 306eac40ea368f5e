// Package registration is dynamic client registration (RFC 7591) for
// authorization servers whose library has a store for clients but no endpoint
// that adds to it. Public clients only.
package registration

import (
	"crypto/rand"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Path is where the endpoint stands.
const Path = "/register"

const maxBody = 64 << 10

// Client is one that was accepted and is to be stored.
type Client struct {
	ID           string
	RedirectURIs []string
	GrantTypes   []string
	Scopes       []string
}

// Endpoint registers clients. The server in whose name it does must not serve
// another request meanwhile: Store changes the library's own map.
type Endpoint struct {
	GrantTypes []string // what a client may ask for
	Store      func(Client)
}

func (e Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "register by POST", http.StatusMethodNotAllowed)
		return
	}
	var asked struct {
		RedirectURIs []string `json:"redirect_uris"`
		GrantTypes   []string `json:"grant_types"`
		Method       string   `json:"token_endpoint_auth_method"`
		Scope        string   `json:"scope"`
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		refuse(w, "invalid_client_metadata", "the body must be JSON")
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked); err != nil {
		refuse(w, "invalid_client_metadata", "the body cannot be read")
		return
	}
	client := Client{
		ID: "registered-" + rand.Text(), RedirectURIs: asked.RedirectURIs,
		GrantTypes: asked.GrantTypes, Scopes: strings.Fields(asked.Scope),
	}
	if asked.Method != "none" {
		refuse(w, "invalid_client_metadata", "only public clients are taken")
		return
	}
	for _, grant := range client.GrantTypes {
		if !slices.Contains(e.GrantTypes, grant) {
			refuse(w, "invalid_client_metadata", "that grant type is not known here")
			return
		}
	}
	if slices.Contains(client.GrantTypes, "authorization_code") != (len(client.RedirectURIs) > 0) {
		refuse(w, "invalid_redirect_uri", "redirect URIs go with the authorization code, and it with them")
		return
	}
	for _, uri := range client.RedirectURIs {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "http" || u.Hostname() != "127.0.0.1" || u.Fragment != "" {
			refuse(w, "invalid_redirect_uri", "only a loopback address is taken")
			return
		}
	}
	e.Store(client)
	answer(w, http.StatusCreated, map[string]any{
		"client_id": client.ID, "redirect_uris": client.RedirectURIs, "grant_types": client.GrantTypes,
		"token_endpoint_auth_method": "none", "scope": asked.Scope,
	})
}

func refuse(w http.ResponseWriter, code, description string) {
	answer(w, http.StatusBadRequest, map[string]any{"error": code, "error_description": description})
}

func answer(w http.ResponseWriter, status int, members map[string]any) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(members)
}
