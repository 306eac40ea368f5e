package oauthflow

import (
	"context"
	"errors"

	"github.com/spendonce/spendonce/internal/secret"
)

// ErrNoClientSecret: a client without a secret cannot act in its own name.
var ErrNoClientSecret = errors.New("there is no client secret, and without one a program cannot sign in in its own name")

// ClientCredentialsRequest asks for a token in the client's own name (RFC 6749
// section 4.4).
type ClientCredentialsRequest struct {
	Server   Server
	Client   Client // with a Secret
	Scopes   []string
	Resource string // RFC 8707; empty: not sent
}

// ClientCredentials sends req once and judges the answer. A refresh token in
// it is ignored: the client can always ask again. Every error is an [*Error].
func (r *Requester) ClientCredentials(ctx context.Context, req ClientCredentialsRequest) (Tokens, error) {
	refuse := func(err error) (Tokens, error) {
		return Tokens{}, &Error{op: "token request", Class: ClassWrongRequest, NotSent: true, Text: "not sent: " + err.Error(), cause: err}
	}
	switch {
	case req.Client.Secret.Empty():
		return refuse(ErrNoClientSecret)
	case req.Server.Dialect == Hypaware:
		return refuse(errors.New("this dialect has no sign-in for programs"))
	}
	form := append([]field{{"grant_type", "client_credentials"}}, wanted(req.Scopes, req.Resource)...)
	t, err := r.token(ctx, req.Server, req.Client, form)
	t.RefreshToken = secret.Secret{}
	return t, err
}
