package oauthflow

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/spendonce/spendonce/internal/secret"
)

// ErrNoRevocation: the server has no revocation endpoint.
var ErrNoRevocation = errors.New("the server has no revocation endpoint")

// Revoke asks the server to forget a token (RFC 7009). hint is
// "refresh_token", "access_token" or "". A server that no longer knows the
// token has done what was asked.
func (r *Requester) Revoke(ctx context.Context, server Server, client Client, token secret.Secret, hint string) error {
	const op = "revocation"
	refuse := func(err error) error {
		return &Error{op: op, Class: ClassWrongRequest, NotSent: true, Text: "not sent: " + err.Error(), cause: err}
	}
	if server.RevocationEndpoint == "" {
		return refuse(ErrNoRevocation)
	}
	endpoint, err := parseEndpoint("revocation endpoint", server.RevocationEndpoint)
	if err != nil {
		return refuse(err)
	}
	if token.Empty() {
		return refuse(errors.New("there is no token"))
	}
	out := outgoing{op: op, method: http.MethodPost, url: endpoint, header: http.Header{}, sent: []secret.Secret{token}}
	form := out.authenticate(server, client, []field{{"token", token.Reveal()}, {"token_type_hint", hint}})
	out.header.Set("Content-Type", "application/x-www-form-urlencoded")
	out.body = strings.NewReader(encodeForm(form))
	now := r.now()
	a, e := r.exchange(ctx, out)
	if e != nil {
		return e
	}
	b := readBody(a)
	switch {
	case a.Status < 300 && b.code == "", b.code == "invalid_token", b.code == "invalid_grant":
		return nil
	}
	row := judgeRow(a.Status, b, "no success")
	if row == rowRefused {
		row = rowElse // a bare 401 speaks of the client here, not of a grant
	}
	return failure(op, a, b, row, "", now, out.sent)
}
