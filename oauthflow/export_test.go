package oauthflow

import (
	"context"
	"net/http"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// ShrinkDrain shortens the time that an answer may take after the bound.
func (r *Requester) ShrinkDrain(d time.Duration) { r.drain = d }

// ShrinkProbe shortens the time that a resource may take to answer.
func (r *Requester) ShrinkProbe(d time.Duration) { r.probeBound = d }

// Drive replaces the pauses between two questions, and the time that an
// answer may take.
func (l *DeviceLogin) Drive(wait func(context.Context, time.Duration) error, bound time.Duration) {
	l.wait, l.bound = wait, bound
}

// ReadDevicePrompt reads the answer to a device authorization request. ok is
// false if it is none.
func ReadDevicePrompt(a Answer, now time.Time, sent ...secret.Secret) (p DevicePrompt, interval time.Duration, ok bool) {
	g, flaw := readBody(a).deviceGrant(now, sent)
	return g.prompt, g.interval, flaw == ""
}

// ReadRegistered reads the answer to a registration that asked for a method.
func ReadRegistered(a Answer, asked string) (Registered, bool) {
	made, flaw := readBody(a).registered(asked)
	return made, flaw == ""
}

// ReadResource reads the metadata that stands at the well-known place of a
// URL, or with ofHost at that of its host.
func ReadResource(a Answer, asked string, ofHost bool) (Resource, error) {
	u, err := parseEndpoint("resource", asked)
	if err != nil {
		return Resource{}, err
	}
	var m resourceMetadata
	if object, err := decodeDocument(a, &m); !object || err != nil {
		return Resource{}, ErrNoResourceMetadata
	}
	if e := (resourcePlace{ofHost: ofHost}).judge(a, u, asked, m); e != nil {
		return Resource{}, e
	}
	return Resource{Resource: m.Resource, AuthorizationServers: m.AuthorizationServers, ScopesSupported: scopesOf(m.ScopesSupported)}, nil
}

// BearerChallenge reads the challenge of an answer.
var BearerChallenge = bearerChallenge

// Openers is the list of commands that OpenBrowser tries.
var Openers = openers

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
