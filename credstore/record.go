package credstore

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
)

// Kind says what a record is.
type Kind string

// The kinds of records. KindUnknown stands for records of other programs:
// they are listed and kept, never used.
const (
	KindUnknown Kind = "unknown"
	KindStatic  Kind = "static"
	KindOIDC    Kind = "oidc"
)

// Record is what the store holds for a target. The file's shape is shared
// with other programs, which rebuild a record from these members, so nothing
// else of ours may live in it:
//
//	{"kind": "static", "token": "..."}
//	{"kind": "oidc", "refreshToken": "...", "accessJwt": "...", "expiresAt": "2026-01-02T03:04:05.000Z", "org": "..."}
type Record struct {
	Kind         Kind
	Token        secret.Secret // static
	RefreshToken secret.Secret // oidc; empty if the server gave none
	AccessToken  secret.Secret // oidc; may be empty
	ExpiresAt    time.Time     // oidc; zero if unknown
	Org          string        // oidc
}

// fingerprint names the credential: by its refresh token, or by its access
// token if it has no other.
func (r Record) fingerprint() string {
	if r.RefreshToken.Empty() {
		return r.AccessToken.Fingerprint()
	}
	return r.RefreshToken.Fingerprint()
}

// The names of the members we know.
const (
	memberKind    = "kind"
	memberToken   = "token"
	memberRefresh = "refreshToken"
	memberAccess  = "accessJwt"
	memberExpires = "expiresAt"
	memberOrg     = "org"
)

// readRecord never fails: what it does not understand is KindUnknown.
func readRecord(v jsontext.Value) Record {
	doc, err := parseDocument(v)
	if err != nil {
		return Record{Kind: KindUnknown}
	}
	text := func(name string) string {
		raw, ok := doc.get(name)
		if !ok || raw.Kind() != '"' {
			return ""
		}
		s, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return ""
		}
		return string(s)
	}
	_, hasKind := doc.get(memberKind)
	refresh, access, static := text(memberRefresh), text(memberAccess), text(memberToken)
	oidc := !hasKind && refresh != "" && access != "" ||
		text(memberKind) == string(KindOIDC) && (refresh != "" || access != "")
	switch {
	case oidc:
		r := Record{
			Kind: KindOIDC, RefreshToken: secret.New(refresh), AccessToken: secret.New(access), Org: text(memberOrg),
		}
		if at, err := time.Parse(time.RFC3339, text(memberExpires)); err == nil {
			r.ExpiresAt = at
		}
		return r
	case static != "":
		return Record{Kind: KindStatic, Token: secret.New(static)}
	default:
		return Record{Kind: KindUnknown}
	}
}

// write returns old with r in it: members of neither kind survive, those of
// the other kind go, and an empty Org keeps the old one.
func (r Record) write(old jsontext.Value) jsontext.Value {
	doc, err := parseDocument(old)
	if err != nil {
		doc = &document{}
	}
	set := func(name, value string) {
		quoted, _ := jsontext.AppendQuote(nil, value)
		doc.set(name, quoted)
	}
	set(memberKind, string(r.Kind))
	if r.Kind == KindStatic {
		for _, name := range []string{memberRefresh, memberAccess, memberExpires, memberOrg} {
			doc.remove(name)
		}
		set(memberToken, r.Token.Reveal())
		return doc.compact()
	}
	doc.remove(memberToken)
	set(memberRefresh, r.RefreshToken.Reveal())
	set(memberAccess, r.AccessToken.Reveal())
	expires := ""
	if !r.ExpiresAt.IsZero() {
		expires = r.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	set(memberExpires, expires)
	if r.Org != "" {
		set(memberOrg, r.Org)
	}
	return doc.compact()
}

// ValidName reports whether name is a target name of ours:
// [A-Za-z0-9][A-Za-z0-9._-]{0,63}. Other names in a shared file are kept.
func ValidName(name string) bool {
	if len(name) == 0 || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}
