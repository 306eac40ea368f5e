package credstore

import (
	"context"
	"errors"
	"time"

	"golang.org/x/oauth2"

	"github.com/spendonce/spendonce/internal/secret"
)

// SourceConfig describes one target to [Store.Source].
type SourceConfig struct {
	Target string
	// Settings is asked only when a refresh is to be decided; its error is
	// reported as [ErrConfig]. Nil means that nothing is configured.
	Settings func() (Settings, error)
	// Exchange is called at most twice in one hold of the lock.
	Exchange Exchange
	// Register, when set, is called at most once in one hold of the lock, and
	// only for a client that came by dynamic registration.
	Register Register
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
	medium   medium
	cfg      SourceConfig
	variable string // that overrides the token
}

// Source returns the target's source. Nothing is read before the first call.
func (s *Store) Source(cfg SourceConfig) (*Source, error) {
	if err := CheckName(cfg.Target); err != nil {
		return nil, err
	}
	if cfg.Exchange == nil {
		return nil, failing(ErrConfig, nil, "no way to refresh %s was given", cfg.Target)
	}
	return &Source{s, s.medium(cfg.Target), cfg, OverrideVariable(cfg.Target)}, nil
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
		var v *snapshot
		err := src.store.reading(ctx, func() (err error) {
			v, err = src.medium.read(src.cfg.Target, true)
			return err
		})
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
		v, err := src.look(ctx, look)
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

// look is view, for who holds no lock: it gets the keys that this takes.
func (src *Source) look(ctx context.Context, look lookAt) (v view, err error) {
	beside := false // the store is read, and it is the session file that needs a key
	err = src.store.reading(ctx, func() error {
		var err error
		v, err = src.view(look)
		if beside = err == nil && needed(v.sessionError) != nil; beside {
			return v.sessionError
		}
		return err
	})
	if beside && err != nil && ctx.Err() == nil {
		v.sessionError, err = err, nil // a token that is valid without it is still served
	}
	return v, err
}

// view reads what a decision needs. A token that is fresh whatever the
// session file says is found without reading that file.
func (src *Source) view(look lookAt) (view, error) {
	snap, err := src.medium.read(src.cfg.Target, look.bytes)
	if err != nil {
		return view{}, err
	}
	v := view{target: src.cfg.Target, now: time.Now(), form: snap.form}
	v.record, v.stored = snap.record(src.cfg.Target)
	if !v.stored || v.record.Kind != KindOIDC {
		return v, nil
	}
	left, known := v.record.ExpiresAt.Sub(v.now), !v.record.ExpiresAt.IsZero()
	if !look.session && !v.record.AccessToken.Empty() && (!known || left > skew) {
		return v, nil
	}
	session, err := src.medium.session(src.cfg.Target, snap, look.bytes)
	if err != nil {
		v.sessionError = err // a token that is valid without it is still served
		return v, nil        //nolint:nilerr // kept in the view: it is an error only if more is needed
	}
	v.session = session.settled(v.record)
	v.pending = session != nil && session.Pending != nil
	return v, nil
}
