package oauthflow

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spendonce/spendonce/internal/secret"
)

type kind int

const (
	kindEmpty  kind = iota
	kindJSON        // any valid JSON
	kindForm        // key=value&..., with an access token or an error in it
	kindText        // readable plain text
	kindMarkup      // HTML or XML
	kindOther       // binary, or cut off
)

// body is an answer's body, read by its content.
type body struct {
	kind              kind
	members           map[string]json.RawMessage // of a JSON object or a form
	code, description string                     // the OAuth error
	received          []secret.Secret            // whatever looks like a token in the members
}

// readBody never fails: what it cannot read has no members.
func readBody(a Answer) body {
	var b body
	raw := bytes.TrimSpace(bytes.TrimPrefix(a.Body, []byte("\xef\xbb\xbf")))
	switch {
	case a.Truncated:
		b.kind = kindOther
	case len(raw) == 0:
		b.kind = kindEmpty
	case json.Valid(raw):
		b.kind = kindJSON
		// A map, because decoding into a struct would fold the case of names.
		_ = json.Unmarshal(raw, &b.members)
	default:
		b.kind, b.members = readOther(a.Header.Get("Content-Type"), raw)
	}
	b.code = b.text("error")
	b.description = b.text("error_description")
	for _, name := range []string{"access_token", "refresh_token", "id_token", "access_jwt",
		"device_code", "client_secret", "registration_access_token"} {
		if s := b.text(name); s != "" {
			b.received = append(b.received, secret.New(s))
		}
	}
	return b
}

func readOther(contentType string, raw []byte) (kind, map[string]json.RawMessage) {
	if members := readForm(raw); members != nil {
		return kindForm, members
	}
	lower := bytes.ToLower(raw[:min(len(raw), 1024)])
	declared, _, _ := mime.ParseMediaType(contentType)
	switch {
	case lower[0] == '<', bytes.Contains(lower, []byte("<html")), bytes.Contains(lower, []byte("<!doctype")),
		strings.Contains(declared, "html"):
		return kindMarkup, nil
	case !utf8.Valid(raw):
		return kindOther, nil
	}
	for _, r := range string(raw) {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return kindOther, nil
		}
	}
	return kindText, nil
}

// readForm reads a form-encoded answer, which some servers send whatever they
// were asked for. Text that merely contains "=" is none.
func readForm(raw []byte) map[string]json.RawMessage {
	if bytes.ContainsAny(raw, " \t\r\n<>{}\"") {
		return nil
	}
	values, err := url.ParseQuery(string(raw))
	if err != nil || (values.Get("access_token") == "" && values.Get("error") == "") {
		return nil
	}
	members := make(map[string]json.RawMessage, len(values))
	for name := range values {
		members[name], _ = json.Marshal(values.Get(name)) // a string: cannot fail
	}
	return members
}

// text returns a member that is a string, else "".
func (b body) text(name string) string {
	var s string
	if json.Unmarshal(b.members[name], &s) != nil {
		return ""
	}
	return s
}

// absent reports whether a member is left out, null or the empty string.
func (b body) absent(name string) bool {
	raw := string(b.members[name])
	return raw == "" || raw == "null" || raw == `""`
}

// tokens reads a success. flaw says why there is none.
func (b body) tokens(now time.Time, d Dialect) (t Tokens, flaw string) {
	name := "access_token"
	if d == Hypaware {
		name = "access_jwt"
	}
	access, refresh := b.text(name), b.text("refresh_token")
	switch {
	case access == "":
		return Tokens{}, "no access token"
	case !validToken(access):
		return Tokens{}, "an access token with bytes that no token has"
	case refresh != "" && !validToken(refresh):
		return Tokens{}, "a refresh token with bytes that no token has"
	}
	t.AccessToken, t.RefreshToken = secret.New(access), secret.New(refresh)
	warn := func(w string) { t.Warnings = append(t.Warnings, w) }
	if refresh == "" && !b.absent("refresh_token") {
		warn("the answer's refresh_token is not a string and was ignored")
	}
	if d == Hypaware {
		t.ExpiresAt = expiresAt(b.members["expires_at"], now, warn)
		if t.Org = b.text("org"); !plainText(t.Org, 256) {
			t.Org = ""
			warn("the answer's org is unreadable and was ignored")
		}
	} else {
		t.ExpiresAt = expiresIn(b.members["expires_in"], now, warn)
		if id := b.text("id_token"); validToken(id) {
			t.IDToken = secret.New(id)
		} else if id != "" {
			warn("the answer's id_token has bytes that no token has and was ignored")
		}
	}
	var ok bool
	if t.Scope, ok = b.scope(); !ok {
		warn("the answer's scope is unreadable and was ignored")
	}
	if t.ExpiresAt.IsZero() {
		t.ExpiresAt = jwtExpiry(access, now)
	}
	if !t.ExpiresAt.IsZero() {
		t.Lifetime = max(0, t.ExpiresAt.Sub(now))
	}
	return t, ""
}

// scope reads the granted scope; a list of strings is taken too.
func (b body) scope() (string, bool) {
	if b.absent("scope") {
		return "", true
	}
	s := b.text("scope")
	if s == "" {
		var list []string
		if json.Unmarshal(b.members["scope"], &list) != nil {
			return "", false
		}
		s = strings.Join(list, " ")
	}
	s = strings.Join(strings.Fields(s), " ")
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return "", false
		}
	}
	if len(s) > 8192 {
		return "", false
	}
	return s, true
}

// validToken reports whether s can stand in an Authorization header as it is.
func validToken(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return s != ""
}

// plainText reports whether s is one short printable line; "" is.
func plainText(s string, limit int) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return len(s) <= limit
}
