package oauthflow

import (
	"net/http"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// ShrinkDrain shortens the time that an answer may take after the bound.
func (r *Requester) ShrinkDrain(d time.Duration) { r.drain = d }

// Openers is the list of commands that OpenBrowser tries.
var Openers = openers

// SameIssuer is the comparison of issuers.
var SameIssuer = sameIssuer

// ReadAccount is the reader of ID tokens.
var ReadAccount = readAccount

// CallbackHandler returns the handler for a host, a state and an issuer, and
// a function that returns what settled it: nil if nothing did. The page of a
// login that worked is shown at once.
func CallbackHandler(host, state, issuer string, issRequired bool) (http.Handler, func() (bool, secret.Secret, error)) {
	c := &callback{host: host, path: "/callback", result: make(chan callbackResult, 1), outcome: make(chan page, 1), shown: make(chan struct{})}
	c.outcome <- endPage("", Account{}, nil)
	h := c.handler(expected{state: secret.New(state), issuer: issuer, issRequired: issRequired})
	return h, func() (bool, secret.Secret, error) {
		select {
		case got := <-c.result:
			return true, got.code, got.err
		default:
			return false, secret.Secret{}, nil
		}
	}
}
