package credstore

import (
	"os"
	"strings"

	"github.com/spendonce/spendonce/internal/secret"
)

// override returns the token that the environment sets for the target. It
// works even beside a damaged store.
func (src *Source) override(req Request) (Token, bool, error) {
	variable := src.variable
	value, set := os.LookupEnv(variable)
	if !set {
		return Token{}, false, nil
	}
	value = strings.TrimSpace(value)
	switch {
	case value == "":
		return Token{}, false, failing(ErrOverride, nil, "%s is set and empty: give it a token or unset it", variable)
	case strings.ContainsFunc(value, func(r rune) bool { return r < 0x21 || r > 0x7e }):
		return Token{}, false, failing(ErrOverride, nil, "%s holds white space, control or non-ASCII characters inside: give it a bare token or unset it", variable)
	}
	for _, other := range src.store.names() {
		if other != src.cfg.Target && OverrideVariable(other) == variable {
			return Token{}, false, failing(ErrOverride, nil, "%s is set and stands for both %s and %s: unset it, or rename one of them", variable, src.cfg.Target, other)
		}
	}
	token := secret.New(value)
	if req.Rejected.Equal(token) || req.Refresh {
		return Token{}, false, failing(ErrLoginRequired, nil, "the token in %s cannot be refreshed: set another one or unset it", variable)
	}
	return Token{AccessToken: token, Kind: KindStatic, Override: true}, true, nil
}

func lookupOverride(target string) (string, bool) { return os.LookupEnv(OverrideVariable(target)) }

// OverrideVariable names the environment variable that overrides a target's
// token.
func OverrideVariable(target string) string {
	return "SPENDONCE_TOKEN_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, target)
}

// names returns every target name that is known without asking anybody, for a
// key of the store either.
func (s *Store) names() []string {
	var names []string
	var v *snapshot
	_, err := s.peek().seal(func() (f *form, err error) {
		if v, err = s.read(); err == nil {
			f = v.form
		}
		return f, err
	})
	if err == nil {
		for _, m := range v.doc.members {
			if ValidName(m.name) {
				names = append(names, m.name)
			}
		}
	}
	if s.cfg.OtherNames != nil {
		names = append(names, s.cfg.OtherNames()...)
	}
	return names
}
