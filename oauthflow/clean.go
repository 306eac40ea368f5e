package oauthflow

import (
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spendonce/spendonce/internal/secret"
)

const redacted = "[redacted]"

// redactor makes texts of a server fit for a message: short, printable ASCII
// on one line, and without the secrets it knows.
//
// A server may echo a secret percent-encoded, JSON-escaped, as HTML entities,
// or in a mixture. So text and secrets are brought into one plain form before
// they are compared, and the plain form is what is shown.
type redactor struct {
	needles []string // plain, lower case, longest first
}

func newRedactor(secrets []secret.Secret) redactor {
	var r redactor
	for _, s := range secrets {
		value := s.Reveal()
		for _, v := range []string{value, url.QueryEscape(value)} {
			if n := lower(printable(v)); n != "" {
				r.needles = append(r.needles, n)
			}
			if p, ok := plain(v); ok {
				if n := lower(printable(p)); n != "" {
					r.needles = append(r.needles, n)
				}
			}
		}
	}
	slices.SortFunc(r.needles, func(a, b string) int { return len(b) - len(a) })
	r.needles = slices.Compact(r.needles)
	return r
}

// clean returns s in plain form, redacted, and then cut to limit bytes: a
// secret is never cut into a piece that is not recognised.
func (r redactor) clean(s string, limit int) string {
	p, ok := plain(s)
	if !ok {
		return redacted
	}
	return cut(r.final(printable(p)), limit)
}

// excerpt is clean for a body that was not understood. It may hold tokens
// that we have never seen: what follows a name like access_token, and every
// long run of token characters, is left out.
func (r redactor) excerpt(s string, limit int) string {
	p, ok := plain(s)
	if !ok {
		return redacted
	}
	t := r.final(printable(p))
	if i := firstSecretMember(t); i >= 0 {
		t = t[:i] + " " + redacted
	}
	return cut(redactRuns(t), limit)
}

// final replaces every known secret in a text that is already printable.
func (r redactor) final(t string) string {
	for _, n := range r.needles {
		t = replaceFold(t, n)
	}
	if r.finds(t) {
		return redacted // a secret that the replacements themselves spell
	}
	return t
}

// finds reports whether a secret stands in t. Secrets shorter than four bytes
// stand everywhere and are not looked for.
func (r redactor) finds(t string) bool {
	l := lower(t)
	return slices.ContainsFunc(r.needles, func(n string) bool { return len(n) >= 4 && strings.Contains(l, n) })
}

func replaceFold(t, needle string) string {
	l := lower(t)
	var out strings.Builder
	for {
		i := strings.Index(l, needle)
		if i < 0 {
			break
		}
		out.WriteString(t[:i] + redacted)
		t, l = t[i+len(needle):], l[i+len(needle):]
	}
	if out.Len() == 0 {
		return t
	}
	return out.String() + t
}

// plain undoes percent, JSON and HTML escapes until none is left. ok is false
// for text that is wrapped deeper than any honest one.
func plain(s string) (_ string, ok bool) {
	for range 8 {
		t := html.UnescapeString(unescape(s))
		if t == s {
			return s, true
		}
		s = t
	}
	return "", false
}

// unescape undoes %XX, \uXXXX and the one-character JSON escapes once.
func unescape(s string) string {
	if !strings.ContainsAny(s, `%\`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '%' && i+2 < len(s):
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(v))
				i += 2
				continue
			}
		case s[i] == '\\' && i+5 < len(s) && s[i+1] == 'u':
			if v, err := strconv.ParseUint(s[i+2:i+6], 16, 16); err == nil {
				out = utf8.AppendRune(out, rune(v))
				i += 5
				continue
			}
		case s[i] == '\\' && i+1 < len(s) && strings.IndexByte(`"\/`, s[i+1]) >= 0:
			out = append(out, s[i+1])
			i++
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

// printable turns every run of other bytes than 0x21 to 0x7e into one space.
func printable(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] > 0x20 && s[i] < 0x7f {
			out = append(out, s[i])
		} else if n := len(out); n > 0 && out[n-1] != ' ' {
			out = append(out, ' ')
		}
	}
	return strings.TrimRight(string(out), " ")
}

// lower is ASCII only, so that positions stay the same.
func lower(s string) string {
	out := []byte(s)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return string(out)
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.TrimRight(s[:limit], " ") + "..."
}

// firstSecretMember finds where the value of a member begins whose name says
// that it is secret: a name directly followed by a quote, colon or equals
// sign. -1 if there is none.
func firstSecretMember(t string) int {
	l := lower(t)
	first := -1
	for _, name := range []string{"token", "jwt", "secret", "code", "verifier", "assertion", "password", "authorization"} {
		for from := 0; ; {
			i := strings.Index(l[from:], name)
			if i < 0 {
				break
			}
			end := from + i + len(name)
			for end < len(l) && (l[end] == '_' || l[end] >= 'a' && l[end] <= 'z') {
				end++
			}
			if end < len(l) && strings.IndexByte(`"':=`, l[end]) >= 0 && (first < 0 || end < first) {
				first = end
			}
			from = end
		}
	}
	return first
}

// redactRuns replaces runs of 20 or more token characters.
func redactRuns(t string) string {
	const long = 20
	var out strings.Builder
	start := 0
	flush := func(end int) {
		if end-start >= long {
			out.WriteString(redacted)
		} else {
			out.WriteString(t[start:end])
		}
	}
	for i := range len(t) {
		c := t[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~+/=", c) >= 0 {
			continue
		}
		flush(i)
		out.WriteByte(c)
		start = i + 1
	}
	flush(len(t))
	return out.String()
}
