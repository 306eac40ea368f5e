package credstore

import (
	"cmp"
	"strings"
	"time"

	"github.com/spendonce/spendonce/lockfile"
)

// Scope says what a refresh locks besides its target.
type Scope string

// The lock scopes. ScopeStore is required for sharing the file with programs
// that know only the store's own lock.
const (
	ScopeTarget Scope = "target"
	ScopeStore  Scope = "store"
)

// Settings is what the user's configuration says of a target. Members that
// are empty are not configured.
type Settings struct {
	URL   string
	Pin   Pin
	Scope Scope // empty: ScopeTarget, or ScopeStore for the dialect "hypaware"
	// RefreshScope sends the granted scope with each refresh, for servers that
	// demand it.
	RefreshScope bool
	// StaleAfter replaces [Config.StaleAfter] for this target if positive. It
	// is for tests: with ScopeStore less than a minute is refused, because
	// other programs hold the lock by that constant.
	StaleAfter time.Duration
}

// settings asks the configuration and holds it against the pin: an edited
// file must not decide where a refresh token goes.
func (src *Source) settings(v view) (Settings, error) {
	var set Settings
	if src.cfg.Settings != nil {
		var err error
		if set, err = src.cfg.Settings(); err != nil {
			return Settings{}, failing(ErrConfig, []error{err}, "the settings of %s cannot be read, so nothing was sent: %v", src.cfg.Target, err)
		}
	}
	if v.session != nil && v.session.Pin != nil {
		if err := disagreement(src.cfg.Target, v.session, set); err != nil {
			return Settings{}, err
		}
		set.Pin = *v.session.Pin
	}
	scope, err := src.medium.scope(src.cfg.Target, set, v.form != nil)
	if err != nil {
		return Settings{}, err
	}
	set.Scope = scope
	if set.StaleAfter <= 0 {
		set.StaleAfter = src.store.cfg.StaleAfter
	} else if set.Scope == ScopeStore && set.StaleAfter < lockfile.DefaultStaleAfter {
		return Settings{}, failing(ErrConfig, nil, "stale_after is %s and %s locks the whole store, which other programs share by the constant %s: nothing was sent; raise it or use lock_scope \"target\"",
			set.StaleAfter, src.cfg.Target, lockfile.DefaultStaleAfter)
	}
	if set.Pin.TokenEndpoint == "" {
		return Settings{}, failing(ErrConfig, nil, "it is not known which server the session of %s belongs to, so nothing was sent: name it in the configuration or sign in with 'spendonce login %s'", src.cfg.Target, src.cfg.Target)
	}
	return set, nil
}

// scope is what is configured, or follows from the dialect.
func (set Settings) scope() Scope {
	switch {
	case set.Scope != "":
		return set.Scope
	case set.Pin.Dialect == sharingDialect:
		return ScopeStore
	default:
		return ScopeTarget
	}
}

// sharingDialect is spoken by programs that share the file by the store's own
// lock.
const sharingDialect = "hypaware"

// sharing says why the scope is the store.
func (set Settings) sharing() string {
	if set.Scope != "" && set.Pin.Dialect != sharingDialect {
		return "lock_scope \"store\""
	}
	return "dialect " + sharingDialect
}

// disagreement looks for a configured member that names another server or
// client than the session was made with. What the session does not know
// cannot disagree.
func disagreement(target string, s *session, set Settings) error {
	for _, m := range []struct{ what, pinned, configured string }{
		{"url", s.URL, set.URL},
		{"issuer", s.Pin.Issuer, set.Pin.Issuer},
		{"token_endpoint", s.Pin.TokenEndpoint, set.Pin.TokenEndpoint},
		{"authorization_endpoint", s.Pin.AuthorizationEndpoint, set.Pin.AuthorizationEndpoint},
		{"revocation_endpoint", s.Pin.RevocationEndpoint, set.Pin.RevocationEndpoint},
		{"client_id", s.Pin.ClientID, set.Pin.ClientID},
		{"resource", s.Pin.Resource, set.Pin.Resource},
		{"dialect", cmp.Or(s.Pin.Dialect, "oauth2"), set.Pin.Dialect},
	} {
		if m.configured != "" && m.pinned != "" && !sameSetting(m.what, m.configured, m.pinned) {
			return failing(ErrLoginRequired, nil,
				"the session of %s was made with %s %q and the configuration now says %q, so nothing was sent: restore the configuration, or sign in again with 'spendonce login %s'",
				target, m.what, m.pinned, m.configured, target)
		}
	}
	return nil
}

func sameSetting(what, a, b string) bool {
	if what == "issuer" {
		a, b = withoutRootSlash(a), withoutRootSlash(b)
	}
	return a == b
}

// withoutRootSlash makes https://h of https://h/, for they are one issuer;
// behind a path the slash counts.
func withoutRootSlash(issuer string) string {
	if strings.Count(issuer, "/") == 3 {
		return strings.TrimSuffix(issuer, "/")
	}
	return issuer
}
