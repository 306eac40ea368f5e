//go:build linux

package ledger

import (
	"bytes"
	"errors"
	"slices"
)

// This file decides. It knows no clock, no disk and no process: what it has to
// know of them comes in with the request.

var (
	// ErrSessionUnknown says that no session has this id.
	ErrSessionUnknown = errors.New("no such session")
	// ErrGenerationStale says that the session has reached a higher
	// generation.
	ErrGenerationStale = errors.New("generation is over")
	// ErrGenerationUnknown says that the session has not yet reached the
	// generation.
	ErrGenerationUnknown = errors.New("generation not registered")
	// ErrTokenMalformed says that this is not how a token is spelled.
	ErrTokenMalformed = errors.New("no token's spelling")
	// ErrTokenReplay says that the token does not wait to be spent by this
	// session in this generation: it was spent, revoked, is another's or was
	// never minted. Nothing tells these apart.
	ErrTokenReplay = errors.New("token not pending")
	// ErrTokenCapacity says that as many tokens wait as may.
	ErrTokenCapacity = errors.New("too many tokens pending")
	// ErrSessionCapacity says that there are as many sessions as may be.
	ErrSessionCapacity = errors.New("too many sessions")
	// ErrTooLarge says that the state would not fit into its file.
	ErrTooLarge = errors.New("state too large")
)

// errTaken says that an id or a token came up that is in use: the source of
// random numbers is broken.
var errTaken = errors.New("a random value came up twice")

// state is everything the broker knows. It is never changed once made; a new
// one shares what stayed the same. Sessions and tokens are sorted by key, so
// that equal states are the same bytes:
//
//	{"version":1,"boot_id":"01234567-89ab-cdef-0123-456789abcdef","sessions":[
//	{"session_id":"...","anchor_pid":4711,"anchor_starttime":123456,"uid":1000,"gid":1000,"runtime_generation":0}],"tokens":[
//	{"token_sha256":"...","session_id":"...","runtime_generation":0,"binding":{"compaction_epoch":0,"request_epoch":0,
//	"h_source":"...","h_payload":"...","schema_version":1},"consumed":false}]}
//
// in one line.
type state struct {
	bootID   string
	sessions []*session
	tokens   []*pending
}

type session struct {
	Session
	key    digest
	record []byte // as it stands in the file
}

type pending struct {
	key     digest
	owner   *session // as it was when the token was minted
	binding Binding
	record  []byte
}

// limits bound a state.
type limits struct{ sessions, tokens, bytes int }

type action int

const (
	register action = iota
	mint
	consume
	prune
)

// op is one request, with all that was random or observed about it.
type op struct {
	action     action
	generation uint64

	anchor   Anchor   // register
	uid, gid uint32   // register
	fresh    *session // register: the session to be made if none stands; generation, anchor and ids are those above

	session digest // mint, consume
	token   digest // mint, consume
	binding Binding

	// gone are sessions whose anchors are known to have exited. They are
	// dropped where they stand in the way, and by prune in any case.
	gone []digest
}

// result is what becomes of a request.
type result struct {
	err     error
	session Session
	binding Binding
	revoked int // tokens that ended unspent
}

// apply returns the state after one request: s itself if the request changes
// nothing, as every refusal does.
func apply(s *state, o op, lim limits) (*state, result) {
	switch o.action {
	case register:
		return s.register(o, lim)
	case mint:
		return s.mint(o, lim)
	case consume:
		return s.consume(o)
	default:
		next, revoked := s.without(o.gone)
		return next, result{revoked: revoked}
	}
}

func (s *state) register(o op, lim limits) (*state, result) {
	revoked := 0
	if i := s.anchored(o.anchor); i >= 0 {
		old := s.sessions[i]
		switch {
		case slices.Contains(o.gone, old.key):
			// Another process got the same number within one tick.
			s, revoked = s.without([]digest{old.key})
		case o.generation < old.Generation:
			return s, result{err: ErrGenerationStale}
		case o.generation == old.Generation:
			return s, result{session: old.Session}
		default:
			next, revoked := s.promote(i, o.generation)
			return next, result{session: next.sessions[i].Session, revoked: revoked}
		}
	}
	if len(s.sessions) >= lim.sessions {
		next, n := s.without(o.gone)
		if len(next.sessions) >= lim.sessions {
			return s, result{err: ErrSessionCapacity}
		}
		s, revoked = next, revoked+n
	}
	i, taken := s.find(o.fresh.key)
	if taken {
		return s, result{err: errTaken}
	}
	next := *s
	next.sessions = inserted(s.sessions, i, o.fresh)
	return &next, result{session: o.fresh.Session, revoked: revoked}
}

func (s *state) mint(o op, lim limits) (*state, result) {
	owner, err := s.admit(o.session, o.generation)
	if err != nil {
		return s, result{err: err}
	}
	revoked := 0
	if len(s.tokens) >= lim.tokens {
		next, n := s.without(o.gone)
		if len(next.tokens) >= lim.tokens {
			return s, result{err: ErrTokenCapacity}
		}
		if _, ok := next.find(o.session); !ok {
			return s, result{err: ErrSessionUnknown}
		}
		s, revoked = next, n
	}
	i, taken := s.findToken(o.token)
	if taken {
		return s, result{err: errTaken}
	}
	next := *s
	next.tokens = inserted(s.tokens, i, newPending(o.token, owner, o.binding))
	return &next, result{revoked: revoked}
}

func (s *state) consume(o op) (*state, result) {
	owner, err := s.admit(o.session, o.generation)
	if err != nil {
		return s, result{err: err}
	}
	i, ok := s.findToken(o.token)
	if !ok || s.tokens[i].owner != owner {
		return s, result{err: ErrTokenReplay}
	}
	next := *s
	next.tokens = slices.Concat(s.tokens[:i], s.tokens[i+1:])
	return &next, result{binding: s.tokens[i].binding}
}

// admit finds a session and holds a generation against its own.
func (s *state) admit(id digest, generation uint64) (*session, error) {
	i, ok := s.find(id)
	switch {
	case !ok:
		return nil, ErrSessionUnknown
	case generation < s.sessions[i].Generation:
		return nil, ErrGenerationStale
	case generation > s.sessions[i].Generation:
		return nil, ErrGenerationUnknown
	}
	return s.sessions[i], nil
}

// promote gives session i a higher generation, which ends its tokens.
func (s *state) promote(i int, generation uint64) (next *state, revoked int) {
	old := s.sessions[i]
	n := *s
	n.sessions = slices.Clone(s.sessions)
	as := old.Session
	as.Generation = generation
	n.sessions[i] = newSession(as)
	n.tokens = s.tokensBut(func(owner *session) bool { return owner == old })
	return &n, len(s.tokens) - len(n.tokens)
}

// without drops sessions and their tokens.
func (s *state) without(gone []digest) (next *state, revoked int) {
	isGone := func(x *session) bool { return slices.Contains(gone, x.key) }
	if !slices.ContainsFunc(s.sessions, isGone) {
		return s, 0
	}
	n := *s
	n.sessions = slices.DeleteFunc(slices.Clone(s.sessions), isGone)
	n.tokens = s.tokensBut(isGone)
	return &n, len(s.tokens) - len(n.tokens)
}

func (s *state) tokensBut(of func(owner *session) bool) []*pending {
	return slices.DeleteFunc(slices.Clone(s.tokens), func(p *pending) bool { return of(p.owner) })
}

func (s *state) find(id digest) (int, bool) {
	return slices.BinarySearchFunc(s.sessions, id, func(x *session, id digest) int { return bytes.Compare(x.key[:], id[:]) })
}

func (s *state) findToken(token digest) (int, bool) {
	return slices.BinarySearchFunc(s.tokens, token, func(p *pending, token digest) int { return bytes.Compare(p.key[:], token[:]) })
}

// anchored returns where the session of an anchor stands, or -1.
func (s *state) anchored(a Anchor) int {
	return slices.IndexFunc(s.sessions, func(x *session) bool { return x.Anchor == a })
}

// inserted is slices.Insert into a copy.
func inserted[T any](list []T, i int, v T) []T {
	out := make([]T, 0, len(list)+1)
	out = append(out, list[:i]...)
	out = append(out, v)
	return append(out, list[i:]...)
}
