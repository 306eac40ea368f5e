// Package challenge reads the WWW-Authenticate header (RFC 9110 section
// 11.6.1): what a resource says that it wants.
package challenge

import "strings"

// maxHeader bounds what is read of one header line, in bytes.
const maxHeader = 16 << 10

// Challenge is one of the ways in which a server would be satisfied. Scheme
// and the names of Params are in lower case; a parameter that stands twice
// keeps its first value.
type Challenge struct {
	Scheme string
	Params map[string]string
}

// Parse reads the values of all WWW-Authenticate headers of an answer. It
// never fails: what cannot be read ends the header line that it stands in,
// and what was read before it counts. What it returns comes from the server
// as it is, and is not fit for a terminal.
func Parse(lines []string) []Challenge {
	var all []Challenge
	for _, line := range lines {
		all = append(all, parseLine(line[:min(len(line), maxHeader)])...)
	}
	return all
}

// Bearer returns the parameters of the first Bearer challenge (RFC 6750
// section 3), nil if there is none.
func Bearer(lines []string) map[string]string {
	for _, c := range Parse(lines) {
		if c.Scheme == "bearer" {
			return c.Params
		}
	}
	return nil
}

// parseLine reads challenges with commas between them. A comma also stands
// between two parameters of one challenge: what follows it is a parameter if
// its name has an equals sign behind it.
func parseLine(s string) []Challenge {
	var all []Challenge
	for {
		s = strings.TrimLeft(s, " \t,")
		name, rest := token(s)
		if name == "" {
			return all
		}
		value, after, ok := parameter(rest)
		switch {
		case ok && len(all) > 0:
			params := all[len(all)-1].Params
			if name = strings.ToLower(name); params[name] == "" {
				params[name] = value
			}
			s = after
		case ok, strings.HasPrefix(strings.TrimLeft(rest, " \t"), "="):
			return all // a parameter before any scheme, or one without an end
		default:
			all = append(all, Challenge{Scheme: strings.ToLower(name), Params: map[string]string{}})
			s = skipToken68(rest)
		}
		if s != "" && s[0] != ' ' && s[0] != '\t' && s[0] != ',' {
			return all
		}
	}
}

// parameter reads "= value", the value a token or quoted.
func parameter(s string) (value, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	if !strings.HasPrefix(s, "=") {
		return "", s, false
	}
	s = strings.TrimLeft(s[1:], " \t")
	if !strings.HasPrefix(s, `"`) {
		value, rest = token(s)
		return value, rest, value != ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// skipToken68 drops the single word that some schemes have in place of
// parameters.
func skipToken68(s string) string {
	word := strings.TrimLeft(s, " \t")
	if word == s {
		return s // no space: not this scheme's
	}
	end := strings.IndexAny(word, " \t,")
	if end < 0 {
		end = len(word)
	}
	// "name=value" is a parameter; padding stands only at the end.
	if name := strings.TrimRight(word[:end], "="); strings.ContainsAny(name, `="`) || name == "" {
		return s
	}
	if next := strings.TrimLeft(word[end:], " \t"); next != "" && next[0] != ',' {
		return s // "name = value"
	}
	return word[end:]
}

// token cuts a token (RFC 9110 section 5.6.2) off the front.
func token(s string) (tok, rest string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) >= 0) {
		i++
	}
	return s[:i], s[i:]
}
