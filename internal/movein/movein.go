// Package movein reads and writes the files in which other programs keep
// their signed-in sessions. It is pure: bytes and values in, values and bytes
// out. Moving a session without ever having two holders of it is the work of
// internal/takeover.
//
// No error holds a byte of what was read: it may be a token.
package movein

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
)

// Program is whose file it is.
type Program string

// The programs whose sessions can be moved.
const (
	MCPRemote Program = "mcp-remote"
	Kubelogin Program = "kubelogin"
	File      Program = "file" // a token response with what belongs to it: see docs/moving-in.md
)

// Words names it in a sentence.
func (p Program) Words() string {
	if p == File {
		return "the file"
	}
	return string(p)
}

// Limit bounds every file that is read: the largest that was ever seen is a
// hundredth of it.
const Limit = 1 << 20

// Session is what a file says of a session. Nothing in it is verified: it is
// what another program of this user wrote. What the file leaves out is empty.
type Session struct {
	Issuer, TokenEndpoint, URL, Resource string

	ClientID     string
	ClientSecret secret.Secret
	ClientAuth   string // token_endpoint_auth_method of the registration
	Registered   bool   // by dynamic registration
	RedirectURI  string
	Scope        []string

	AccessToken, RefreshToken, IDToken secret.Secret
	// ExpiresAt is that of the access token; zero: unknown.
	ExpiresAt time.Time
	Lifetime  time.Duration // 0: unknown

	Subject, Email string // of the ID token, for display
	IDTokenExpires time.Time
	Audience       []string // of the ID token

	// Rest is what the file holds beside its tokens and must hold again when
	// it is given back. No secret is in it: the journal keeps it.
	Rest map[string]jsontext.Value
}

// Files is what a session is read from.
type Files struct {
	Tokens []byte
	Mtime  time.Time // of Tokens
	Client []byte    // mcp-remote's registration; nil: there is none
}

// Read understands the files of p, or says what is wrong with them.
func Read(p Program, f Files) (Session, error) {
	members, err := object(f.Tokens)
	if err != nil {
		return Session{}, err
	}
	var s Session
	switch p {
	case MCPRemote:
		s, err = readMCPRemote(members, f)
	case Kubelogin:
		s, err = readKubelogin(members)
	case File:
		s, err = readFile(members, f.Mtime)
	default:
		return Session{}, fmt.Errorf("nothing is known of the files of %q", string(p))
	}
	if err != nil {
		return Session{}, err
	}
	if s.RefreshToken.Empty() {
		return Session{}, errors.New("it holds no refresh token, so the session could not be continued")
	}
	return s, nil
}

// Given is a session on its way back.
type Given struct {
	AccessToken, RefreshToken secret.Secret
	AccessIsIDToken           bool // AccessToken is an ID token
	ExpiresAt                 time.Time
	Scope                     []string
	ClientSecret              secret.Secret
	Rest                      map[string]jsontext.Value // of the session as it came
}

// Write is the file of p that lets the program go on with the session.
func Write(p Program, g Given, now time.Time) ([]byte, error) {
	switch p {
	case MCPRemote:
		return writeMCPRemote(g, now)
	case Kubelogin:
		return writeKubelogin(g)
	case File:
		return writeFile(g, now)
	}
	return nil, fmt.Errorf("nothing is known of the files of %q", string(p))
}

// object reads one JSON object, strictly: duplicate names, bad UTF-8 and bytes
// after it are errors.
func object(b []byte) (map[string]jsontext.Value, error) {
	var members map[string]jsontext.Value
	err := json.Unmarshal(b, &members)
	var syntax *jsontext.SyntacticError
	switch {
	case len(strings.TrimSpace(string(b))) == 0:
		return nil, errors.New("it is empty")
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("it is not valid JSON (at byte %d)", syntax.ByteOffset)
	case err != nil || members == nil:
		return nil, errors.New("it is not a JSON object")
	}
	return members, nil
}

// reader takes members out of an object and keeps the first complaint.
type reader struct {
	members map[string]jsontext.Value
	err     error
}

func (r *reader) complain(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// value is nil for a member that is missing or null.
func (r *reader) value(name string) jsontext.Value {
	v := r.members[name]
	if v.Kind() == 'n' {
		return nil
	}
	return v
}

func (r *reader) text(name string) string {
	v := r.value(name)
	if v == nil {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, v)
	if err != nil || v.Kind() != '"' {
		r.complain("its member %s is not a string", name)
		return ""
	}
	if len(s) > 1<<16 || strings.ContainsFunc(string(s), func(c rune) bool { return c < 0x20 || c == 0x7f }) {
		r.complain("its member %s holds control characters or is too long", name)
		return ""
	}
	return string(s)
}

// token admits what can travel in a header and in a form.
func (r *reader) token(name string) secret.Secret {
	s := r.text(name)
	if strings.ContainsFunc(s, func(c rune) bool { return c < 0x21 || c > 0x7e }) {
		r.complain("its member %s holds characters that no token has", name)
		return secret.Secret{}
	}
	return secret.New(s)
}

func (r *reader) texts(name string) []string {
	v := r.value(name)
	if v == nil {
		return nil
	}
	var list []string
	if json.Unmarshal(v, &list) != nil {
		r.complain("its member %s is not a list of strings", name)
	}
	return list
}

// longest is the longest lifetime that is believed, as for answers of servers.
const longest = 10 * 366 * 24 * time.Hour

// number reads a number or a numeric string; ok is false for neither and for
// what is missing.
func (r *reader) number(name string) (n float64, ok bool) {
	v := r.value(name)
	if v == nil {
		return 0, false
	}
	if v.Kind() == '"' {
		v = jsontext.Value(r.text(name))
	}
	if json.Unmarshal(v, &n) != nil {
		r.complain("its member %s is not a number", name)
		return 0, false
	}
	return n, true
}

// lifetime is expires_in, 0 if it is unknown or makes no sense.
func (r *reader) lifetime() time.Duration {
	n, ok := r.number("expires_in")
	if !ok || n <= 0 || n > longest.Seconds() {
		return 0
	}
	return time.Duration(n) * time.Second
}

// rest keeps those of the named members that are there.
func (r *reader) rest(names ...string) map[string]jsontext.Value {
	kept := map[string]jsontext.Value{}
	for _, name := range names {
		if v := r.members[name]; v != nil {
			kept[name] = v
		}
	}
	return kept
}

// plausible refuses times before 2000 and too far ahead.
func plausible(at time.Time) bool {
	return at.Unix() > 946684800 && time.Until(at) <= longest
}
