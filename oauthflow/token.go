package oauthflow

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spendonce/spendonce/internal/secret"
)

// RefreshRequest asks for new tokens with a refresh token, which is spent by
// it (RFC 6749 section 6).
type RefreshRequest struct {
	Server       Server
	Client       Client
	RefreshToken secret.Secret
	Scope        []string // empty: not sent, what was granted stays
	Resource     string   // RFC 8707; empty: not sent
}

// CodeRequest exchanges an authorization code (RFC 6749 section 4.1.3).
type CodeRequest struct {
	Server      Server
	Client      Client
	Code        secret.Secret
	Verifier    secret.Secret // PKCE code_verifier (RFC 7636)
	RedirectURI string        // as in the authorization request
	Resource    string
}

// Refresh sends req once and judges the answer. Every error is an [*Error].
//
// The end of ctx is soft: once a byte of the answer has arrived, up to 5 s
// more are spent on reading the rest of it.
func (r *Requester) Refresh(ctx context.Context, req RefreshRequest) (Tokens, error) {
	form := []field{{"grant_type", "refresh_token"}, {"refresh_token", req.RefreshToken.Reveal()}}
	if req.Server.Dialect != Hypaware {
		form = append(form, wanted(req.Scope, req.Resource)...)
	}
	if req.RefreshToken.Empty() {
		return Tokens{}, &Error{op: "token request", Class: ClassWrongRequest, NotSent: true, Text: "not sent: there is no refresh token"}
	}
	return r.token(ctx, req.Server, req.Client, form, req.RefreshToken)
}

// ExchangeCode sends req once and judges the answer, as [Requester.Refresh]
// does.
func (r *Requester) ExchangeCode(ctx context.Context, req CodeRequest) (Tokens, error) {
	form := []field{
		{"grant_type", "authorization_code"},
		{"code", req.Code.Reveal()},
		{"code_verifier", req.Verifier.Reveal()},
		{"redirect_uri", req.RedirectURI},
		{"resource", req.Resource},
	}
	return r.token(ctx, req.Server, req.Client, form, req.Code, req.Verifier)
}

type field struct{ name, value string }

// wanted is how every request says what its tokens are to be for. What is
// empty is not sent.
func wanted(scopes []string, resource string) []field {
	return []field{{"scope", strings.Join(scopes, " ")}, {"resource", resource}}
}

func (r *Requester) token(ctx context.Context, server Server, client Client, form []field, sent ...secret.Secret) (Tokens, error) {
	const op = "token request"
	endpoint, err := tokenEndpoint(server)
	if err != nil {
		return Tokens{}, &Error{op: op, Class: ClassWrongRequest, NotSent: true, Text: "not sent: " + err.Error(), cause: err}
	}
	out := outgoing{op: op, method: http.MethodPost, url: endpoint, header: http.Header{}, sent: sent}
	if server.Dialect == Hypaware {
		out.header.Set("Content-Type", "application/json")
		out.body = strings.NewReader(jsonObject(form))
	} else {
		form = out.authenticate(server, client, form)
		out.header.Set("Content-Type", "application/x-www-form-urlencoded")
		out.body = strings.NewReader(encodeForm(form))
	}
	now := r.now()
	a, e := r.exchange(ctx, out)
	if e != nil {
		return Tokens{}, e
	}
	return Judge(a, now, server.Dialect, out.sent...)
}

func tokenEndpoint(s Server) (*url.URL, error) {
	if s.Dialect != Hypaware || s.TokenEndpoint != "" {
		return parseEndpoint("token endpoint", s.TokenEndpoint)
	}
	u, err := parseEndpoint("issuer", s.Issuer)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/v1/identity/token"}, nil
}

// authenticate adds the client's name and secret, to the form or the header.
func (out *outgoing) authenticate(server Server, client Client, form []field) []field {
	if client.Secret.Empty() {
		return append(form, field{"client_id", client.ID})
	}
	out.sent = append(out.sent, client.Secret)
	methods := server.TokenAuthMethods
	if slices.Contains(methods, "client_secret_basic") && !slices.Contains(methods, "client_secret_post") {
		// RFC 6749 section 2.3.1: both halves are form-encoded first.
		pair := url.QueryEscape(client.ID) + ":" + url.QueryEscape(client.Secret.Reveal())
		credential := base64.StdEncoding.EncodeToString([]byte(pair))
		out.sent = append(out.sent, secret.New(credential))
		out.header.Set("Authorization", "Basic "+credential)
		return form
	}
	return append(form, field{"client_id", client.ID}, field{"client_secret", client.Secret.Reveal()})
}

// encodeForm leaves out what is empty.
func encodeForm(form []field) string {
	v := url.Values{}
	for _, f := range form {
		if f.value != "" {
			v.Set(f.name, f.value)
		}
	}
	return v.Encode()
}

func jsonObject(form []field) string {
	m := map[string]string{}
	for _, f := range form {
		if f.value != "" {
			m[f.name] = f.value
		}
	}
	b, _ := json.Marshal(m) // strings only: cannot fail
	return string(b)
}
