package oauthflow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// codeBound is the default of BrowserLogin.ExchangeTimeout.
const codeBound = 30 * time.Second

// BrowserLogin signs a person in with a browser on this machine: authorization
// code with PKCE (S256) and a redirect to a loopback address (RFC 8252).
//
// No lock should be held while it runs: it waits for a person.
type BrowserLogin struct {
	Requester Requester
	Server    Server
	Client    Client
	Scopes    []string
	Resource  string // RFC 8707, sent on both legs

	// RedirectPort is the port to listen on; 0: any free one.
	RedirectPort int
	// RedirectPath is the path of the redirect URI; "": /callback.
	RedirectPath string
	// Register, if set, gives the client once the redirect URI is known, in
	// place of Client.
	Register func(ctx context.Context, redirectURI string) (Registered, error)

	// Name is what the person signs in to, for the page at the end.
	Name string
	// Pasted, if set, is read for the answer beside the listener, line by
	// line: the address at which a browser on another machine ended, or its
	// query. Other lines, and those with a wrong state, are refused and asked
	// for again; its end without an answer ends the login with [ErrNoAnswer].
	Pasted io.Reader
	// Keep, if set, is given the result before the person is told that it
	// worked. Its error is that of the login.
	Keep func(ctx context.Context, res Result) error

	// URLOut gets the address to open, before any browser is tried; nil: it
	// is not printed.
	URLOut io.Writer
	// Open shows the address to the person; nil: [OpenBrowser]. It runs beside
	// the login, and its failure is printed and otherwise ignored.
	Open func(ctx context.Context, url string) error
	// ExchangeTimeout bounds the exchange of the code; 0: 30 s. The wait for
	// the person is bounded by the context alone.
	ExchangeTimeout time.Duration
}

// Result is a completed login.
type Result struct {
	Tokens      Tokens
	Client      Client // as used: what Register gave, or BrowserLogin.Client
	AuthMethod  string // of a Client that was registered, see [Registered]; else ""
	RedirectURI string
	Account     Account
}

// Run signs in, and returns when the tokens are there and kept, the person or
// the server refused, or ctx ended. The listener is closed then, and the
// browser shows how it ended.
//
// Errors of the server are [*Error]; a refusal by the person has the Code
// access_denied. A fixed port that is taken gives [ErrPortInUse].
func (l *BrowserLogin) Run(ctx context.Context) (Result, error) {
	if err := l.check(); err != nil {
		return Result{}, err
	}
	cb, err := listenCallback(l.RedirectPort, l.RedirectPath)
	if err != nil {
		return Result{}, err
	}
	defer cb.close()

	res := Result{Client: l.Client, RedirectURI: cb.redirectURI}
	if l.Register != nil {
		made, err := l.Register(ctx, cb.redirectURI)
		if err != nil {
			return Result{}, err
		}
		res.Client, res.AuthMethod = made.Client, made.AuthMethod
	}
	state, verifier := random(), random()
	var nonce secret.Secret
	if slices.Contains(l.Scopes, "openid") {
		nonce = random()
	}
	address, err := l.authorizationURL(res.Client.ID, cb.redirectURI, state, verifier, nonce)
	if err != nil {
		return Result{}, err
	}
	want := expected{state: state, issuer: l.Server.Issuer, issRequired: l.Server.IssParameterSupported}
	cb.serve(want)

	answer, err := l.awaitAnswer(ctx, cb, want, address)
	if err != nil {
		return Result{}, err
	}
	if err = answer.err; err == nil {
		err = l.redeem(ctx, &res, answer.code, verifier, nonce)
	}
	if answer.browser {
		cb.finish(endPage(l.Name, res.Account, err))
	}
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// redeem exchanges the code and has the result kept.
func (l *BrowserLogin) redeem(ctx context.Context, res *Result, code, verifier, nonce secret.Secret) (err error) {
	bound := l.ExchangeTimeout
	if bound == 0 {
		bound = codeBound
	}
	exchange, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	server := l.Server
	if res.AuthMethod != "" {
		server.TokenAuthMethods = []string{res.AuthMethod}
	}
	res.Tokens, err = l.Requester.ExchangeCode(exchange, CodeRequest{
		Server: server, Client: res.Client, Code: code, Verifier: verifier,
		RedirectURI: res.RedirectURI, Resource: l.Resource,
	})
	if err != nil {
		return err
	}
	if !res.Tokens.IDToken.Empty() {
		res.Account, err = readAccount(res.Tokens.IDToken, l.Server.Issuer, res.Client.ID, nonce, l.Requester.now())
		if err != nil {
			// The account is only shown, so the tokens are good without it.
			res.Tokens.Warnings = append(res.Tokens.Warnings, "the account is unknown: "+err.Error())
		}
	}
	if l.Keep != nil {
		return l.Keep(ctx, *res)
	}
	return nil
}

// check refuses before a port is opened what could not end well.
func (l *BrowserLogin) check() error {
	if _, err := parseEndpoint("authorization endpoint", l.Server.AuthorizationEndpoint); err != nil {
		return err
	}
	if _, err := tokenEndpoint(l.Server); err != nil {
		return err
	}
	if l.Client.ID == "" && l.Register == nil {
		return errors.New("there is no client id")
	}
	if l.RedirectPort < 0 || l.RedirectPort > 65535 {
		return fmt.Errorf("%d is not a port", l.RedirectPort)
	}
	return nil
}

// awaitAnswer shows the address and waits for the browser to come back, or
// for what is pasted.
func (l *BrowserLogin) awaitAnswer(ctx context.Context, cb *callback, want expected, address string) (callbackResult, error) {
	out := l.URLOut
	if out == nil {
		out = io.Discard
	}
	// A stream that is gone is no reason to end: a browser may still open.
	_, _ = fmt.Fprintf(out, "Open this address in a browser to sign in:\n\n  %s\n\n", address)
	open := l.Open
	if open == nil {
		open = OpenBrowser
	}
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- open(opening, address) }()
	var noAnswer chan error
	if l.Pasted != nil {
		noAnswer = make(chan error, 1)
		_, _ = fmt.Fprintln(out, "When the browser ends at an address that it cannot load, paste that address here:")
		go func() { noAnswer <- cb.readPasted(l.Pasted, out, want) }()
	}
	for {
		select {
		case err := <-opened:
			if err != nil {
				// Only this function writes to out, and only while it runs.
				_, _ = fmt.Fprintln(out, "No browser could be started here; the address works in any browser on this machine.")
			}
			opened = nil
		case got := <-cb.result:
			return got, nil
		case err := <-noAnswer:
			if err != nil {
				return callbackResult{}, err
			}
			noAnswer = nil // the result is there
		case <-ctx.Done():
			return callbackResult{}, fmt.Errorf("waiting for the browser: %w", ctx.Err())
		}
	}
}

// authorizationURL is parsed and rebuilt, so that what reaches the opener is
// one absolute http(s) URL of plain ASCII, whatever the server advertised.
func (l *BrowserLogin) authorizationURL(clientID, redirectURI string, state, verifier, nonce secret.Secret) (string, error) {
	endpoint, err := parseEndpoint("authorization endpoint", l.Server.AuthorizationEndpoint)
	if err != nil {
		return "", err
	}
	q, err := url.ParseQuery(endpoint.RawQuery)
	if err != nil {
		return "", errors.New("the authorization endpoint has an unreadable query")
	}
	challenge := sha256.Sum256([]byte(verifier.Reveal()))
	for _, f := range []field{
		{"response_type", "code"},
		{"client_id", clientID},
		{"redirect_uri", redirectURI},
		{"scope", strings.Join(l.Scopes, " ")},
		{"state", state.Reveal()},
		{"code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:])},
		{"code_challenge_method", "S256"},
		{"resource", l.Resource},
		{"nonce", nonce.Reveal()},
	} {
		if f.value != "" {
			q.Set(f.name, f.value)
		}
	}
	u := url.URL{Scheme: endpoint.Scheme, Host: endpoint.Host, Path: endpoint.Path, RawPath: endpoint.RawPath, RawQuery: q.Encode()}
	if s := u.String(); validToken(s) {
		return s, nil
	}
	return "", errors.New("the authorization endpoint is not plain ASCII")
}

// random returns 256 bits in base64url, as RFC 7636 recommends for verifiers.
func random() secret.Secret {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return secret.New(base64.RawURLEncoding.EncodeToString(b))
}
