package clientconf

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// shellWord is s as one word of a POSIX shell. It is quoted with backslashes,
// so that an absolute path still begins with a slash: by that git tells a
// command with arguments from the name of one of its own helpers.
func shellWord(s string) string {
	if s == "" {
		return "''"
	}
	var b strings.Builder
	for _, r := range s {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./@%+:,-=", r) && r < 0x80 {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// ShellLine is a command for a POSIX shell.
func ShellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellWord(w)
	}
	return strings.Join(quoted, " ")
}

// csvField is s for an option that pflag splits at commas.
func csvField(s string) string {
	if !strings.ContainsAny(s, "\",\n") && s != "" {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}

// checkProgram refuses what some client could not be told to start.
func checkProgram(words []string) error {
	if len(words) == 0 || !filepath.IsAbs(words[0]) {
		return errors.New("the path of this program is not known")
	}
	for _, w := range words {
		if strings.ContainsFunc(w, func(r rune) bool { return r < 0x20 || r == 0x7f }) || strings.ToValidUTF8(w, "") != w {
			return fmt.Errorf("%q has control characters or is not UTF-8, and no settings file should hold that: move it", w)
		}
	}
	return nil
}
