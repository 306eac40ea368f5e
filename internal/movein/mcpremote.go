package movein

import (
	"crypto/md5" //nolint:gosec // the names of that program's files, no protection
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MCPRemoteHash is what the files for a server begin with: the digest of its
// URL, byte by byte as it was given to mcp-remote, and where one was given of
// the resource behind it.
func MCPRemoteHash(url, resource string) string {
	if resource != "" {
		url += "|" + resource
	}
	sum := md5.Sum([]byte(url)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// The ends of the names of mcp-remote's files.
const (
	MCPRemoteTokens = "_tokens.json"
	MCPRemoteClient = "_client_info.json"
	// MCPRemoteLock was kept while a sign-in ran, up to version 0.1.
	MCPRemoteLock = "_lock.json"
	// MCPRemoteLease is held, by exclusive creation, while a refresh runs, in
	// the newer versions.
	MCPRemoteLease = "_refresh_in_progress.json"
)

// MCPRemoteHolder reads who holds a lock or lease.
func MCPRemoteHolder(b []byte) (pid int, at time.Time, ok bool) {
	members, err := object(b)
	if err != nil {
		return 0, time.Time{}, false
	}
	r := reader{members: members}
	n, okPid := r.number("pid")
	ms, okAt := r.number("at")
	if !okAt {
		ms, okAt = r.number("timestamp")
	}
	if !okPid || !okAt || n < 1 || n > math.MaxInt32 || n != math.Trunc(n) || math.Abs(ms) > 1<<52 {
		return 0, time.Time{}, false
	}
	return int(n), time.UnixMilli(int64(ms)), true
}

// MCPRemoteLeaseOf is a lease as that program writes it.
func MCPRemoteLeaseOf(pid int, nonce string, at time.Time) []byte {
	b, _ := json.Marshal(struct { // strings and numbers: cannot fail
		PID   int    `json:"pid"`
		Nonce string `json:"nonce"`
		At    int64  `json:"at"`
	}{pid, nonce, at.UnixMilli()}, jsontext.WithIndent("  "))
	return b
}

// readMCPRemote reads <hash>_tokens.json: an OAuth token response and, from
// newer versions, expires_at in epoch milliseconds. Without it, the lifetime
// counts from when the file was written.
func readMCPRemote(members map[string]jsontext.Value, f Files) (Session, error) {
	r := reader{members: members}
	var s Session
	s.readIDToken(r.token("id_token"))
	s.IDToken = r.token("id_token")
	s.AccessToken, s.RefreshToken = r.token("access_token"), r.token("refresh_token")
	s.Issuer = r.text("issuer")
	s.Scope = strings.Fields(r.text("scope"))
	s.Lifetime = r.lifetime()
	if ms, ok := r.number("expires_at"); ok && math.Abs(ms) < 1<<52 {
		if at := time.UnixMilli(int64(ms)).UTC(); plausible(at) {
			s.ExpiresAt = at
		}
	} else if s.Lifetime > 0 && !f.Mtime.IsZero() {
		s.ExpiresAt = f.Mtime.UTC().Add(s.Lifetime)
	}
	s.Rest = r.rest("token_type", "requested_scope", "issuer")
	if s.AccessToken.Empty() {
		r.complain("it holds no access_token: is it a file of mcp-remote?")
	}
	if r.err != nil {
		return Session{}, r.err
	}
	if f.Client == nil {
		return s, nil
	}
	client, err := object(f.Client)
	if err != nil {
		return Session{}, errors.New("its registration (client_info.json): " + err.Error())
	}
	c := reader{members: client}
	s.ClientID, s.ClientSecret, s.ClientAuth = c.text("client_id"), c.token("client_secret"), c.text("token_endpoint_auth_method")
	s.Registered = s.ClientID != ""
	if uris := c.texts("redirect_uris"); len(uris) > 0 {
		s.RedirectURI = uris[0]
	}
	if issuer := c.text("issuer"); s.Issuer == "" {
		s.Issuer = issuer
	}
	if s.ClientID == "" {
		c.complain("it names no client_id")
	}
	if c.err != nil {
		return Session{}, errors.New("its registration (client_info.json): " + c.err.Error())
	}
	return s, nil
}

func writeMCPRemote(g Given, now time.Time) ([]byte, error) {
	out := builder{rest: g.Rest}
	out.set("access_token", g.AccessToken.Reveal())
	if g.AccessIsIDToken { // for one that runs with --use-id-token
		out.set("id_token", g.AccessToken.Reveal())
	}
	out.kept("token_type", "Bearer")
	if !g.ExpiresAt.IsZero() {
		out.set("expires_in", int64(max(g.ExpiresAt.Sub(now), 0).Seconds()))
	}
	if len(g.Scope) > 0 {
		out.set("scope", strings.Join(g.Scope, " "))
	}
	out.set("refresh_token", g.RefreshToken.Reveal())
	if !g.ExpiresAt.IsZero() {
		out.set("expires_at", g.ExpiresAt.UnixMilli())
	}
	out.others()
	return out.encode()
}

// ClientID is whose a registration is, "" if it cannot be read.
func ClientID(registration []byte) string {
	members, err := object(registration)
	if err != nil {
		return ""
	}
	r := reader{members: members}
	return r.text("client_id")
}
