package credstore

import (
	"time"

	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

const (
	// skew is how long before its expiry a token is refreshed; a token that
	// lives less than twice as long is refreshed at half its life.
	skew = time.Minute
	// What a server can make us wait, and what a clock step can: a not-before
	// further ahead is void.
	maxRetryAfter = 300 * time.Second
	maxNotBefore  = 330 * time.Second
)

// Request says what is wanted of a token.
type Request struct {
	// MinValid: with less than this left the token counts as expired. A
	// token of unknown expiry meets any.
	MinValid time.Duration
	// Rejected is a token that the resource server refused; it is never the
	// answer. If the store holds another valid one, that is the answer.
	Rejected secret.Secret
	// Fresh: a token that is due for its refresh is no answer even where the
	// refresh fails. Whatever is returned was issued just now, or has more
	// than the skew left: a minute, or half of its life if that is shorter.
	Fresh bool
	// Refresh takes the token that is stored at the call as rejected.
	Refresh bool
}

// view is everything a decision looks at.
type view struct {
	target  string
	now     time.Time
	record  Record
	stored  bool
	session *session
	mark    lockfile.Mark // only known under the target lock
	pending bool          // the session is settled in memory only
	form    *form         // of the store
	// sessionError: the session file cannot be read, so nothing may be sent.
	sessionError error
}

// marked reports whether the guard's mark speaks of the stored refresh token,
// of this login, and says state.
func (v view) marked(state lockfile.MarkState) bool {
	if v.renewsByClient() {
		return false
	}
	m := v.markAs(state)
	return v.mark.State == m.State && v.mark.Fingerprint == m.Fingerprint && v.mark.Login == m.Login
}

// renewsByClient reports whether the client's own secret renews the token:
// there is no refresh token then, and nothing that could be spent.
func (v view) renewsByClient() bool {
	return v.record.RefreshToken.Empty() && v.session.renewsByClient()
}

// markAs is the mark that says state of the stored refresh token; none where
// nothing is spent.
func (v view) markAs(state lockfile.MarkState) lockfile.Mark {
	if v.renewsByClient() {
		return lockfile.Mark{}
	}
	m := lockfile.Mark{State: state, Fingerprint: v.record.RefreshToken.Fingerprint(), At: time.Now()}
	if v.session != nil {
		m.Login = secret.New(v.session.LoginID).Fingerprint()
	}
	return m
}

type action int

const (
	serve   action = iota // hand the stored token out
	refresh               // exchange the refresh token
	refuse                // no token, for the reason in err
)

// decision is what is to be done, and what the stored token is still good
// for if it cannot be done.
type decision struct {
	action   action
	err      error
	fallback bool // the stored token is valid and meets the request
	forced   bool // only the rejection makes a refresh necessary
}

// decide is the whole policy of section 3 of docs/locking.md, but for waiting.
func (s *Store) decide(v view, req Request) decision {
	switch {
	case !v.stored:
		return decision{action: refuse, err: ErrNoCredential}
	case v.record.Kind == KindStatic:
		if req.Rejected.Equal(v.record.Token) {
			return decision{action: refuse, err: failing(ErrLoginRequired, nil,
				"the server rejects the static token of %s: store a new one with 'spendonce login %s --token-file FILE'", v.target, v.target)}
		}
		return decision{action: serve}
	case v.record.Kind == KindUnknown:
		return decision{action: refuse, err: failing(ErrNoCredential, nil,
			"what is stored for %s was not written by this program and cannot be used: sign in with 'spendonce login %s'", v.target, v.target)}
	}

	r := v.record
	rejected := !req.Rejected.Empty() && req.Rejected.Equal(r.AccessToken)
	known := !r.ExpiresAt.IsZero()
	left := r.ExpiresAt.Sub(v.now)
	live := !r.AccessToken.Empty() && (!known || left > 0)
	d := decision{fallback: live && !rejected && (!known || left >= req.MinValid), forced: live && rejected}
	if !known || left > early(v.session.lifetime(), left) {
		if d.fallback {
			return d // fresh
		}
	} else if req.Fresh {
		d.fallback = false
	}
	// The rest is about a refresh; a valid token stands in where it fails.
	stop := func(err error) decision {
		d.action, d.err = refuse, err
		return d
	}
	loginRequired, notBefore, _ := v.session.about(r.RefreshToken)
	lifetime := v.session.lifetime()
	switch {
	case v.sessionError != nil:
		return stop(v.sessionError)
	case v.moving():
		return stop(failing(ErrConfig, nil, "the session of %s was on its way to another place, so nothing was sent: 'spendonce store move %s' takes it to where the configuration keeps it", v.target, v.target))
	case r.RefreshToken.Empty() && !v.renewsByClient():
		return stop(failing(ErrLoginRequired, nil,
			"the session of %s has ended and the server gave no refresh token: sign in again with 'spendonce login %s'", v.target, v.target))
	case v.marked(lockfile.MarkSpent):
		return stop(failing(ErrLoginRequired, nil,
			"the refresh token of %s was spent %s and its successor could not be saved: sign in again with 'spendonce login %s'",
			v.target, v.mark.At.UTC().Format(time.RFC3339), v.target))
	case loginRequired != "":
		return stop(refusedError(v.target, loginRequired == unknownOutcome))
	case v.marked(lockfile.MarkRefused), v.marked(lockfile.MarkUnknown):
		return stop(refusedError(v.target, v.mark.State == lockfile.MarkUnknown))
	case v.session != nil && v.session.UnknownServer:
		return stop(failing(ErrLoginRequired, nil,
			"a sign-in to %s was cut short and another program has changed the session since, so it is not known which server it belongs to and nothing was sent: sign in again with 'spendonce login %s'", v.target, v.target))
	case req.MinValid > 0 && lifetime > 0 && req.MinValid >= lifetime:
		return stop(failing(ErrMinValid, nil,
			"tokens of %s live %s, so none is valid for %s: ask for less", v.target, lifetime, req.MinValid))
	case v.now.Before(notBefore) && notBefore.Sub(v.now) <= maxNotBefore && v.session.LastOutcome != nil:
		return stop(outcomeError(v.target, v.session.LastOutcome, notBefore))
	case d.forced && s.forcedTooOften(v):
		return stop(failing(ErrRejected, nil,
			"the server of %s rejects tokens that its authorization server has just issued (%d refreshes in %s): check that the target's URL and resource are right",
			v.target, s.cfg.MaxForced, s.cfg.ForcedWindow))
	}
	d.action = refresh
	return d
}

// early is how long before its end a token counts as near it: the skew, but
// at most half of its life.
func early(lifetime, left time.Duration) time.Duration {
	if left > skew || lifetime <= 0 {
		return skew
	}
	return min(skew, lifetime/2)
}

func (s *Store) forcedTooOften(v view) bool { return s.forcedIn(v) >= s.cfg.MaxForced }

// forcedIn counts the sends within the window that a rejection forced.
func (s *Store) forcedIn(v view) int {
	if v.session == nil {
		return 0
	}
	n := 0
	for _, at := range v.session.Forced {
		if since := v.now.Sub(at); since >= 0 && since < s.cfg.ForcedWindow {
			n++
		}
	}
	return n
}

const (
	refusedOutcome = "refused"
	unknownOutcome = "unknown"
)

func refusedError(target string, unknown bool) error {
	if unknown {
		return failing(ErrLoginRequired, []error{ErrOutcomeUnknown},
			"an earlier refresh of %s ended without an answer and the server now refuses its token, so its outcome is unknown: sign in again with 'spendonce login %s'", target, target)
	}
	return failing(ErrLoginRequired, nil,
		"the server has ended the session of %s: sign in again with 'spendonce login %s'", target, target)
}

// outcomeError words an exchange that ended without a token, for the process
// that made it and for everybody who takes its result.
func outcomeError(target string, o *Outcome, notBefore time.Time) error {
	what := o.Text
	if o.Code != "" && what == "" {
		what = o.Code
	}
	switch o.Class {
	case ClassRefused:
		return refusedError(target, o.Unknown)
	case ClassClientDead:
		return failing(ErrRequest, nil, "the server no longer knows this client (%s): the session of %s is kept; register the client again or sign in with 'spendonce login %s'", what, target, target)
	case ClassRequest:
		return failing(ErrRequest, nil, "the server says that the refresh request of %s is wrong (%s): check the target's settings, the session is kept", target, what)
	default:
		return failing(ErrTemporary, nil, "the token of %s could not be refreshed (%s): the session is kept, try again after %s",
			target, what, notBefore.UTC().Format(time.RFC3339))
	}
}

// backoff returns the moment before which nobody sends again.
func backoff(now time.Time, failures int, retryAfter time.Duration, jitter func(time.Duration) time.Duration) time.Time {
	wait := time.Second << min(max(failures-1, 0), 6)
	wait = min(wait, time.Minute)
	wait = wait*3/4 + jitter(wait/2)
	wait = max(wait, time.Second)
	return now.Add(max(wait, min(retryAfter, maxRetryAfter)))
}
