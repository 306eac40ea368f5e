package credstore

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/spendonce/spendonce/internal/secret"
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
	// StaleAfter replaces [Config.StaleAfter] for this target if positive. It
	// is for tests: with ScopeStore less than a minute is refused, because
	// other programs hold the lock by that constant.
	StaleAfter time.Duration
}

// SourceConfig describes one target to [Store.Source].
type SourceConfig struct {
	Target string
	// Settings is asked only when a refresh is to be decided; its error is
	// reported as [ErrConfig]. Nil means that nothing is configured.
	Settings func() (Settings, error)
	// Exchange is called at most twice in one hold of the lock.
	Exchange Exchange
	// Revoke, when set, ends a session whose new tokens nobody will use
	// because of a logout or login during the exchange.
	Revoke Revoke
}

// Token is a valid access token, to be used for its target only.
type Token struct {
	AccessToken secret.Secret
	ExpiresAt   time.Time // zero: unknown
	Kind        Kind
	Override    bool // it came from the environment
}

// Source hands out tokens of one target. It is safe for concurrent use and
// is an [oauth2.TokenSource].
type Source struct {
	store    *Store
	cfg      SourceConfig
	variable string // that overrides the token
}

// Source returns the target's source. Nothing is read before the first call.
func (s *Store) Source(cfg SourceConfig) (*Source, error) {
	if !ValidName(cfg.Target) {
		return nil, failing(ErrName, nil, "%.80q is no target name: use letters, digits, '.', '_' and '-', up to 64, starting with a letter or digit", cfg.Target)
	}
	if cfg.Exchange == nil {
		return nil, failing(ErrConfig, nil, "no way to refresh %s was given", cfg.Target)
	}
	return &Source{s, cfg, OverrideVariable(cfg.Target)}, nil
}

// Token implements [oauth2.TokenSource].
func (src *Source) Token() (*oauth2.Token, error) {
	t, err := src.Get(context.Background(), Request{})
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: t.AccessToken.Reveal(), TokenType: "Bearer", Expiry: t.ExpiresAt}, nil
}

// Get returns a token that meets the request. With [ErrNotSaved] the token
// that is returned beside the error is valid. When ctx ends, a wait ends; an
// exchange that has begun is finished in the background, see [Store.Close].
func (src *Source) Get(ctx context.Context, req Request) (Token, error) {
	if t, ok, err := src.override(req); ok || err != nil {
		return t, err
	}
	if req.Refresh {
		v, err := src.store.readNow()
		if err != nil {
			return Token{}, err
		}
		if r, ok := v.record(src.cfg.Target); ok {
			req.Rejected = r.AccessToken
			if r.Kind == KindStatic {
				req.Rejected = r.Token
			}
		}
	}
	var first view // what this call saw first: later outcomes are measured against it
	rejected := !req.Rejected.Empty()
	look := lookAt{bytes: rejected, session: rejected || req.MinValid > skew}
	for round := range 100 {
		v, err := src.view(look)
		if err != nil {
			return Token{}, err
		}
		d := src.store.decide(v, req)
		if d.action == serve {
			return v.token(), nil
		}
		if round == 0 {
			first = v
		} else if t, ok, err := src.taken(first, v, req); ok {
			return t, err
		}
		if d.action == refuse {
			return src.standIn(v, d, src.store.warn)
		}
		t, again, err := src.refresh(ctx, first, v, d, req)
		switch {
		case !again:
			return t, err
		case d.fallback:
			// Somebody else is at it. Take the result if it is there, else
			// what is still valid, silently.
			if now, err := src.view(look); err == nil && src.store.decide(now, req).action == serve {
				return now.token(), nil
			}
			return v.token(), nil
		}
		look.session = true
	}
	return Token{}, failing(ErrTemporary, nil, "the record of %s changes faster than it can be used: try again", src.cfg.Target)
}

// standIn hands out a token that is still valid where a refresh is not to be
// had, and the error where there is none.
func (src *Source) standIn(v view, d decision, warn func(format string, args ...any)) (Token, error) {
	switch {
	case !v.stored:
		return Token{}, src.store.noCredential(v.target)
	case !d.fallback || errors.Is(d.err, ErrNoCredential):
		return Token{}, d.err
	}
	until := "the server refuses it"
	if !v.record.ExpiresAt.IsZero() {
		until = v.record.ExpiresAt.UTC().Format(time.RFC3339)
	}
	warn("%v; the stored token is still valid until %s", d.err, until)
	return v.token(), nil
}

// taken returns the result of an exchange that ended while this call waited:
// whatever it was, it is this call's result too, but for a token that the
// caller has seen rejected.
func (src *Source) taken(first, v view, req Request) (t Token, ok bool, err error) {
	if v.session == nil || v.session.LastOutcome == nil || v.session.outcomeID() == first.session.outcomeID() {
		return Token{}, false, nil
	}
	o, r := v.session.LastOutcome, v.record
	if o.RefreshToken != first.record.RefreshToken.Fingerprint() {
		return Token{}, false, nil
	}
	if o.Class != ClassSuccess {
		if !r.RefreshToken.Equal(first.record.RefreshToken) {
			return Token{}, false, nil // it speaks of a token that is no longer stored
		}
		// Its back-off may be over before a waiter gets to run again.
		_, notBefore, _ := v.session.about(r.RefreshToken)
		t, err = src.standIn(v, decision{fallback: src.store.decide(v, req).fallback, err: outcomeError(v.target, o, notBefore)}, func(string, ...any) {})
		return t, true, err
	}
	if r.Kind != KindOIDC || r.AccessToken.Empty() || r.AccessToken.Equal(req.Rejected) {
		return Token{}, false, nil
	}
	t, err = src.meets(v.token(), v.now, req)
	return t, true, err
}

// meets hands out a token that was just issued, even if it is expired at
// receipt: nobody has a better one.
func (src *Source) meets(t Token, now time.Time, req Request) (Token, error) {
	if t.AccessToken.Equal(req.Rejected) {
		return Token{}, failing(ErrRejected, nil, "the authorization server of %s has issued the very token again that was rejected: check that the target's URL and resource are right", src.cfg.Target)
	}
	if req.MinValid > 0 && !t.ExpiresAt.IsZero() && t.ExpiresAt.Sub(now) < req.MinValid {
		return Token{}, failing(ErrMinValid, nil, "the server has just issued a token of %s that is valid for %s, less than the %s asked for",
			src.cfg.Target, max(t.ExpiresAt.Sub(now), 0).Round(time.Second), req.MinValid)
	}
	return t, nil
}

func (v view) token() Token {
	if v.record.Kind == KindStatic {
		return Token{AccessToken: v.record.Token, Kind: KindStatic}
	}
	return Token{AccessToken: v.record.AccessToken, ExpiresAt: v.record.ExpiresAt, Kind: KindOIDC}
}

// lookAt says how closely a view looks.
type lookAt struct {
	bytes   bool // read the files' bytes even if nothing seems to have changed
	session bool // read the session file even beside a fresh token
}

// view reads what a decision needs. A token that is fresh whatever the
// session file says is found without reading that file.
func (src *Source) view(look lookAt) (view, error) {
	read := src.store.read
	if look.bytes {
		read = src.store.readNow
	}
	snap, err := read()
	if err != nil {
		return view{}, err
	}
	v := view{target: src.cfg.Target, now: time.Now()}
	v.record, v.stored = snap.record(src.cfg.Target)
	if !v.stored || v.record.Kind != KindOIDC {
		return v, nil
	}
	left, known := v.record.ExpiresAt.Sub(v.now), !v.record.ExpiresAt.IsZero()
	if !look.session && !v.record.AccessToken.Empty() && (!known || left > skew) {
		return v, nil
	}
	session, err := src.store.readSession(src.cfg.Target, !look.bytes)
	if err != nil {
		v.sessionError = err // a token that is valid without it is still served
		return v, nil        //nolint:nilerr // kept in the view: it is an error only if more is needed
	}
	v.session = session.settled(v.record)
	return v, nil
}

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

// names returns every target name that is known without asking anybody.
func (s *Store) names() []string {
	var names []string
	if v, err := s.read(); err == nil {
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
	if set.Scope == "" {
		set.Scope = ScopeTarget
		if set.Pin.Dialect == "hypaware" {
			set.Scope = ScopeStore
		}
	}
	if src.store.linked() {
		set.Scope = ScopeStore // whoever else links to that file does not share our target locks
	}
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

// refresh makes or joins this process's one exchange of the target. again
// asks the caller to look at the store anew.
func (src *Source) refresh(ctx context.Context, first, v view, d decision, req Request) (t Token, again bool, err error) {
	f, mine := src.store.fly(src.cfg.Target)
	switch {
	case f == nil:
		return Token{}, false, failing(ErrTemporary, nil, "the store is closed")
	case mine:
		src.lead(ctx, f, first, v, d, req)
	case d.fallback:
		return Token{}, true, nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		select {
		case <-f.done: // both at once: the result counts
		default:
			return Token{}, false, context.Cause(ctx)
		}
	}
	if mine {
		if f.err != nil && d.fallback && f.token.AccessToken.Empty() {
			t, err := src.standIn(v, decision{fallback: true, err: f.err}, src.store.warn)
			return t, false, err
		}
		return f.token, f.again, f.err
	}
	// Another caller's flight: its error speaks of the target, unless it was
	// that caller's own context or wish.
	if f.err == nil || errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded) ||
		errors.Is(f.err, ErrMinValid) || errors.Is(f.err, ErrRejected) {
		return Token{}, true, nil
	}
	if f.token.AccessToken.Equal(req.Rejected) {
		return Token{}, false, f.err
	}
	return f.token, false, f.err
}

// lead makes the attempt that f stands for. What follows the lock outlives
// the caller's wait.
func (src *Source) lead(ctx context.Context, f *flight, first, v view, d decision, req Request) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(src.store.closing, cancel)
	land := func() {
		unhook()
		cancel()
		src.store.land(src.cfg.Target, f)
	}
	h := &hold{src: src, store: src.store, flight: f, ctx: ctx, first: first, seen: v, req: req, fallback: d.fallback}
	if err := h.start(); err != nil {
		h.end(Token{}, false, err)
		land()
		src.store.forget()
		return
	}
	go func() {
		defer src.store.forget()
		h.finish()
		land()
		src.revoke(f.orphan)
	}()
}

// flight is one attempt of this process; callers in the same process share
// it instead of queueing for the lock.
type flight struct {
	done     chan struct{}
	token    Token
	err      error
	again    bool
	spending bool  // an exchange was begun
	orphan   Ended // what nobody will use
}

// fly returns the target's flight, a new one if there is none, or nil if the
// store is closed.
func (s *Store) fly(target string) (f *flight, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[target]; f != nil {
		return f, false
	}
	if s.closed {
		return nil, false
	}
	f = &flight{done: make(chan struct{})}
	s.flights[target] = f
	s.flying++
	s.running.Add(1)
	return f, true
}

// land gives the flight's result out.
func (s *Store) land(target string, f *flight) {
	s.mu.Lock()
	delete(s.flights, target)
	s.mu.Unlock()
	close(f.done)
	if f.spending {
		s.endSpending()
	}
}

// forget ends what [Store.Close] waits for.
func (s *Store) forget() {
	s.mu.Lock()
	s.flying--
	s.mu.Unlock()
	s.running.Done()
}
