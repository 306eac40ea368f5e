package helper

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Format is a language in which variables are set.
type Format string

// The formats.
const (
	FormatShell  Format = "sh" // POSIX, so bash and zsh too
	FormatFish   Format = "fish"
	FormatJSON   Format = "json"
	FormatDotenv Format = "dotenv"
)

// Formats lists all of them, the default first.
func Formats() []string {
	return []string{string(FormatShell), string(FormatFish), string(FormatJSON), string(FormatDotenv)}
}

// VariableName reports whether name is one that every shell takes.
func VariableName(name string) bool {
	if name == "" || len(name) > 256 || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// Variables returns "NAME=value" lines for an environment: the token and,
// where it is known, the expiry as RFC 3339. ExpiryName is the second one's
// name, whether or not it is set.
func Variables(name string, c Credential) ([]string, error) {
	token, err := c.text()
	if err != nil {
		return nil, err
	}
	set := []string{name + "=" + token}
	if !c.ExpiresAt.IsZero() {
		set = append(set, ExpiryName(name)+"="+c.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return set, nil
}

// ExpiryName is the variable beside name that holds the token's expiry.
func ExpiryName(name string) string { return name + "_EXPIRES_AT" }

// WriteEnvironment writes what sets the two variables. Where the expiry is
// not known, shells are told to forget the one of an older token.
func WriteEnvironment(out io.Writer, format Format, name string, c Credential) error {
	if !VariableName(name) {
		return fmt.Errorf("%w: %.80q is no name of a variable", ErrInput, name)
	}
	set, err := Variables(name, c)
	if err != nil {
		return err
	}
	if format == FormatJSON {
		object := map[string]string{}
		for _, s := range set {
			key, value, _ := strings.Cut(s, "=")
			object[key] = value
		}
		return writeJSON(out, object)
	}
	var b strings.Builder
	for _, s := range set {
		key, value, _ := strings.Cut(s, "=")
		switch format {
		case FormatShell:
			b.WriteString("export " + key + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'\n")
		case FormatFish:
			b.WriteString("set -gx " + key + " '" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'\n")
		case FormatDotenv:
			if strings.Contains(value, "'") {
				return errors.New("the token holds a quote, which readers of dotenv files do not agree about: take another format")
			}
			b.WriteString(key + "='" + value + "'\n")
		default:
			return fmt.Errorf("%w: there is no format %.40q: take one of %s", ErrInput, format, strings.Join(Formats(), ", "))
		}
	}
	if c.ExpiresAt.IsZero() {
		switch format {
		case FormatShell:
			b.WriteString("unset " + ExpiryName(name) + "\n")
		case FormatFish:
			b.WriteString("set -e " + ExpiryName(name) + "; or true\n")
		}
	}
	return write(out, b.String())
}
