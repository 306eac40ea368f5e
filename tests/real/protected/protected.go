// Package protected is a service that wants tokens of an authorization server
// elsewhere, and says so as RFC 9728 has it: a challenge that names its
// metadata, and metadata that name the server. Whether a token is good is for
// that server to say.
package protected

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

const (
	path         = "/mcp"
	metadataPath = "/.well-known/oauth-protected-resource" + path
)

// Config says whose tokens are wanted.
type Config struct {
	Issuer string
	Scopes []string
	Live   func(ctx context.Context, accessToken string) bool
}

// Resource is a running service. Close it.
type Resource struct {
	http     *httptest.Server
	cfg      Config
	named    atomic.Int64
	metadata atomic.Int64
}

// Start serves on a free port of 127.0.0.1.
func Start(cfg Config) *Resource {
	r := &Resource{cfg: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc(path, r.serve)
	mux.HandleFunc("GET "+metadataPath, r.describe)
	r.http = httptest.NewServer(mux)
	return r
}

// Close ends the service and waits for its open requests.
func (r *Resource) Close() { r.http.Close() }

// URL is what a person knows of the service.
func (r *Resource) URL() string { return r.http.URL + path }

// Asked counts the challenges given and the times that the metadata were read.
func (r *Resource) Asked() (challenges, metadata int64) { return r.named.Load(), r.metadata.Load() }

func (r *Resource) serve(w http.ResponseWriter, q *http.Request) {
	token, bearer := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	if !bearer || !r.cfg.Live(q.Context(), token) {
		r.named.Add(1)
		challenge := `Bearer resource_metadata="` + r.http.URL + metadataPath + `", scope="` + strings.Join(r.cfg.Scopes, " ") + `"`
		if bearer {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, "not signed in", http.StatusUnauthorized)
		return
	}
	answer(w, map[string]any{"hello": "world"})
}

func (r *Resource) describe(w http.ResponseWriter, _ *http.Request) {
	r.metadata.Add(1)
	answer(w, map[string]any{
		"resource":                 r.URL(),
		"authorization_servers":    []string{r.cfg.Issuer},
		"scopes_supported":         r.cfg.Scopes,
		"bearer_methods_supported": []string{"header"},
	})
}

func answer(w http.ResponseWriter, members map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(members)
}
