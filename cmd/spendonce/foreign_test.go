package main_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spendonce/spendonce/spendoncetest"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

// foreignCommand plays the programs whose sessions are imported: it signs one
// in, or refreshes with what stands in its file. $AT is the token then.
func foreignCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: foreign mcp-remote|kubelogin|file|refresh PATH")
	}
	w, path := worldOf(ts), ts.MkAbs(args[1])
	if args[0] == "refresh" {
		ts.Setenv("AT", foreignRefresh(ts, w, readMembers(ts, path)["refresh_token"].(string))["access_token"].(string))
		return
	}
	s := w.server.NewSession("alice")
	w.see("access token", s.AccessToken.Reveal())
	w.see("refresh token", s.RefreshToken.Reveal())
	var files map[string]any
	switch args[0] {
	case "mcp-remote": // PATH is its directory; the server is $RESOURCE
		hash := md5Hex(ts.Getenv("RESOURCE"))
		files = map[string]any{
			filepath.Join(path, "mcp-remote-v1", hash+"_tokens.json"): map[string]any{
				"access_token": s.AccessToken.Reveal(), "token_type": "Bearer", "expires_in": 3600, "scope": "openid offline_access",
				"refresh_token": s.RefreshToken.Reveal(), "expires_at": time.Now().Add(-time.Minute).UnixMilli(), "requested_scope": "openid offline_access",
			},
			filepath.Join(path, "mcp-remote-v1", hash+"_client_info.json"): map[string]any{
				"redirect_uris": []string{"http://localhost:4711/oauth/callback"}, "token_endpoint_auth_method": "none", "client_id": s.ClientID,
			},
		}
		ts.Setenv("HASH", hash)
	case "kubelogin": // PATH is its cache
		ts.Check(w.server.Configure(func(c *spendoncetest.TokenServerConfig) { c.IDTokenOnRefresh = true }))
		got := foreignRefresh(ts, w, s.RefreshToken.Reveal())
		sum := sha256.Sum256([]byte("the key of that session"))
		files = map[string]any{filepath.Join(path, hex.EncodeToString(sum[:])): map[string]any{
			"id_token": got["id_token"], "refresh_token": got["refresh_token"],
		}}
		ts.Setenv("HASH", hex.EncodeToString(sum[:]))
		ts.Setenv("AT", got["id_token"].(string))
	case "file":
		files = map[string]any{path: map[string]any{
			"access_token": s.AccessToken.Reveal(), "refresh_token": s.RefreshToken.Reveal(), "expires_in": 3600,
			"issuer": ts.Getenv("ISSUER"), "client_id": s.ClientID, "url": ts.Getenv("RESOURCE"),
		}}
	default:
		ts.Fatalf("foreign: nobody knows %q", args[0])
	}
	for name, v := range files {
		b, err := json.Marshal(v)
		ts.Check(err)
		ts.Check(os.MkdirAll(filepath.Dir(name), 0o755))
		ts.Check(os.WriteFile(name, b, 0o644))
	}
}

// see takes in a secret that must not be printed.
func (w *world) see(name, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens = append(w.tokens, canary.Of(name, value))
}

// foreignRefresh sends what a client of its own would.
func foreignRefresh(ts *testscript.TestScript, w *world, refreshToken string) map[string]any {
	r, err := http.PostForm(w.server.TokenEndpoint(), url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {refreshToken}, "client_id": {w.server.ClientID()},
	})
	ts.Check(err)
	defer func() { _ = r.Body.Close() }()
	var got map[string]any
	ts.Check(json.NewDecoder(r.Body).Decode(&got))
	if r.StatusCode != http.StatusOK {
		ts.Fatalf("the foreign refresh was refused: %v", got["error"])
	}
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		if v, ok := got[name].(string); ok {
			w.see(name, v)
		}
	}
	return got
}

func readMembers(ts *testscript.TestScript, path string) map[string]any {
	b, err := os.ReadFile(path)
	ts.Check(err)
	var members map[string]any
	ts.Check(json.Unmarshal(b, &members))
	return members
}

func md5Hex(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}
