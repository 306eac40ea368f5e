package bearer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
)

// Source gives tokens; a [*credstore.Source] is one.
type Source interface {
	Get(ctx context.Context, req credstore.Request) (credstore.Token, error)
}

// Elsewhere says what becomes of a request to an origin that is none of the
// target's.
type Elsewhere int

const (
	// Refuse ends it with [ErrElsewhere].
	Refuse Elsewhere = iota
	// Bare sends it as the caller made it, without the token.
	Bare
)

// Config describes a [Transport]. Only Source must be set; without Origins
// no request gets a token.
type Config struct {
	Target    string // names the target in errors
	Source    Source
	Origins   []Origin // where the token may go
	Elsewhere Elsewhere

	// MinValid: see [credstore.Request].
	MinValid time.Duration
	// Replay is how much is kept of a body without GetBody, in bytes, so that
	// it can be sent a second time; 0: [1 MiB], negative: nothing.
	Replay int

	// Base sends the requests. Nil: a transport of this one's own, with the
	// system's roots and bounds for dialling [30 s] and the TLS handshake
	// [15 s], by the proxy of the environment, but never by a proxy or a
	// resolver to a loopback address. It leaves bodies as they are.
	Base http.RoundTripper
	// HeaderTimeout is how long the transport of a nil Base waits for the
	// header of an answer, 0: [5 min], negative: without end.
	HeaderTimeout time.Duration

	// Warn is told of [credstore.ErrNotSaved]: the token was had, so the
	// request goes on, but the session may be lost.
	Warn func(error)
}

const defaultReplay = 1 << 20

// Transport adds the token of one target to requests to its origins. It is
// for an [http.Client] and safe for concurrent use.
//
// A request gets the token if its own URL, and its Host where that is set, is
// one of the target's origins. So where a client follows redirects each hop
// is judged by itself, and the token is never in a header that the client
// copies. The request is not changed, and neither it nor the answer's Request
// holds the token.
//
// A 401, with or without a challenge, means that the token is refused: it is
// exchanged by [credstore.Request].Rejected, one time for everybody who holds
// it, and the request is sent once more. A second 401 is a [*RejectedError],
// and so is a first one if there is no other token. A body is sent again by
// GetBody, or from what was kept of it (see [Config].Replay). If that cannot
// be, the token is exchanged all the same, for the next request, and the 401 is
// returned as it came. A 403 that says insufficient_scope is a [*ScopeError].
// All other answers, event streams and upgrades among them, are returned
// untouched and unread.
type Transport struct {
	cfg  Config
	base http.RoundTripper
}

// New returns a Transport.
func New(cfg Config) (*Transport, error) {
	if cfg.Source == nil {
		return nil, errors.New("a transport needs a source of tokens")
	}
	cfg.Origins = slices.DeleteFunc(slices.Clone(cfg.Origins), func(o Origin) bool { return o == (Origin{}) })
	cfg.Replay = cmp.Or(cfg.Replay, defaultReplay)
	t := &Transport{cfg: cfg, base: cfg.Base}
	if t.base == nil {
		t.base = newBase(cfg.HeaderTimeout)
	}
	return t, nil
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] calls.
func (t *Transport) CloseIdleConnections() {
	if b, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	origin, err := t.destination(req)
	switch {
	case err != nil && t.cfg.Elsewhere == Bare:
		return t.base.RoundTrip(req)
	case err != nil:
		return nil, refuse(req, err)
	case hasAuthorization(req.Header):
		return nil, refuse(req, fmt.Errorf("a request to %s was not sent: %w, and that of %s would replace it", origin, ErrAuthorization, t.cfg.Target))
	}
	token, err := t.token(req.Context(), secret.Secret{})
	if err != nil {
		return nil, refuse(req, err)
	}
	body := t.bodyOf(req)
	resp, err := t.send(req, origin, body.first, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		body.finish()
		return t.judged(resp, err, token)
	}

	next, err := t.token(req.Context(), token)
	if err != nil || next.Equal(token) {
		body.finish()
		return nil, &RejectedError{Target: t.cfg.Target, Origin: origin, Err: err, Answer: kept(resp)}
	}
	second, ok, err := body.again()
	if !ok {
		body.finish()
		return resp, nil
	}
	drain(resp)
	if err != nil {
		return nil, fmt.Errorf("the token of %s was renewed, but the request's body cannot be read a second time: %w", t.cfg.Target, err)
	}
	resp, err = t.send(req, origin, second, next)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		return nil, &RejectedError{Target: t.cfg.Target, Origin: origin, Answer: kept(resp)}
	}
	return t.judged(resp, err, next)
}

// destination is the origin that a request goes to, an error if that is none
// of the target's.
func (t *Transport) destination(req *http.Request) (Origin, error) {
	origin, err := OriginOf(req.URL)
	if err == nil && req.Host != "" && req.Host != req.URL.Host {
		// A front of many hosts goes by this name, not by the URL's.
		named := *req.URL
		named.Host = req.Host
		if o, e := OriginOf(&named); e != nil || o != origin {
			err = fmt.Errorf("%w: its Host is not that of its URL", ErrNotAnOrigin)
		}
	}
	switch {
	case err != nil:
		return Origin{}, fmt.Errorf("a request was not sent with the token of %s: %w: %w", t.cfg.Target, ErrElsewhere, err)
	case !slices.Contains(t.cfg.Origins, origin):
		return Origin{}, fmt.Errorf("a request to %s was not sent with the token of %s: %w", origin, t.cfg.Target, ErrElsewhere)
	}
	return origin, nil
}

// hasAuthorization finds the header in any spelling: net/http sends it as it
// stands.
func hasAuthorization(h http.Header) bool {
	for name := range h {
		if strings.EqualFold(name, "Authorization") {
			return true
		}
	}
	return false
}

// refuse ends a request that is not sent.
func refuse(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}

// token asks the source.
func (t *Transport) token(ctx context.Context, rejected secret.Secret) (secret.Secret, error) {
	got, err := t.cfg.Source.Get(ctx, credstore.Request{MinValid: t.cfg.MinValid, Rejected: rejected})
	if errors.Is(err, credstore.ErrNotSaved) && !got.AccessToken.Empty() {
		if t.cfg.Warn != nil {
			t.cfg.Warn(err)
		}
		err = nil
	}
	if err == nil && got.AccessToken.Empty() {
		err = fmt.Errorf("there is no token for %s, and no error that says why", t.cfg.Target)
	}
	return got.AccessToken, err
}

// send sends a copy of the request with the token.
func (t *Transport) send(req *http.Request, to Origin, body io.ReadCloser, token secret.Secret) (*http.Response, error) {
	out := req.WithContext(req.Context()) // a copy, whose parts are the request's own
	out.Header = make(http.Header, len(req.Header)+1)
	maps.Copy(out.Header, req.Header)
	out.Header["Authorization"] = []string{"Bearer " + token.Reveal()}
	out.Body = body
	resp, err := t.base.RoundTrip(out)
	if err != nil {
		return nil, fmt.Errorf("%w from %s: %w", ErrUnanswered, to, withoutToken(err, token))
	}
	resp.Request = req // that of the base holds the token
	return resp, nil
}

// judged is an answer that is not about the token's being good.
func (t *Transport) judged(resp *http.Response, err error, token secret.Secret) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if scopes, ok := missingScopes(resp, token); ok {
		return nil, &ScopeError{Target: t.cfg.Target, Missing: scopes, Answer: kept(resp)}
	}
	return resp, nil
}

// withoutToken hides an error that quotes what a server sent, as in
// "malformed HTTP response", when that is the token.
func withoutToken(err error, token secret.Secret) error {
	if !strings.Contains(err.Error(), token.Reveal()) {
		return err
	}
	return errors.New("what came cannot be read, and has the token in it")
}
