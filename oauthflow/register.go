package oauthflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/secret"
)

// ownClient is what a person can do where programs cannot register.
const ownClient = "get a client id from whoever runs the server, and give it with --client-id"

// ErrNoRegistration: the server has no registration endpoint, or takes no
// client that this package could be.
var ErrNoRegistration = errors.New("the server does not register programs like this one: " + ownClient)

// ErrRegistration: the server was asked, and refused.
var ErrRegistration = errors.New("the server refused to register this program")

// Registration is a client that is to be made (RFC 7591).
type Registration struct {
	RedirectURIs []string // none for flows without redirect
	GrantTypes   []string // none: authorization_code and refresh_token
	Scopes       []string
}

// Registered is a client as the server made it.
type Registered struct {
	Client Client
	// AuthMethod is the way in which the client must authenticate: none,
	// client_secret_basic or client_secret_post. A Server whose
	// TokenAuthMethods holds nothing else makes requests do so.
	AuthMethod string
	// SecretExpiresAt is when the Secret ends; zero: never, or not said.
	SecretExpiresAt time.Time
}

// registration is the request (RFC 7591 section 2).
type registration struct {
	ClientName      string   `json:"client_name"`
	ApplicationType string   `json:"application_type"`
	RedirectURIs    []string `json:"redirect_uris,omitempty"`
	GrantTypes      []string `json:"grant_types"`
	ResponseTypes   []string `json:"response_types"`
	AuthMethod      string   `json:"token_endpoint_auth_method"`
	Scope           string   `json:"scope,omitempty"`
}

// Register makes a client (RFC 7591): a public one if the server takes such,
// else one with a secret. A server that does not say what it takes is offered
// a public one first. What the answer holds for managing the registration is
// neither kept nor shown.
//
// Every error is an [*Error]. [ErrNoRegistration]: nothing was asked.
// [ErrRegistration]: it was refused, with a Code if the server gave one, and
// will be again.
func (r *Requester) Register(ctx context.Context, server Server, reg Registration) (Registered, error) {
	const op = "registration"
	notSent := func(err error) (Registered, error) {
		return Registered{}, &Error{op: op, Class: ClassWrongRequest, NotSent: true, Text: "not sent: " + err.Error(), cause: err}
	}
	methods := registrationMethods(server.TokenAuthMethods)
	if server.RegistrationEndpoint == "" || len(methods) == 0 {
		return notSent(ErrNoRegistration)
	}
	endpoint, err := parseEndpoint("registration endpoint", server.RegistrationEndpoint)
	if err != nil {
		return notSent(err)
	}
	var e *Error
	for _, method := range methods {
		var made Registered
		if made, e = r.register(ctx, op, endpoint, reg.as(method)); e == nil {
			return made, nil
		}
		if e.Code != "invalid_client_metadata" {
			break
		}
	}
	return Registered{}, e
}

// registrationMethods lists the ways to authenticate that are worth asking
// for, best first.
func registrationMethods(supported []string) []string {
	if len(supported) == 0 {
		// RFC 8414 has client_secret_basic as the default, and many servers
		// that take public clients leave the list out.
		return []string{"none", "client_secret_basic"}
	}
	for _, method := range []string{"none", "client_secret_basic", "client_secret_post"} {
		if slices.Contains(supported, method) {
			return []string{method}
		}
	}
	return nil
}

func (reg Registration) as(method string) registration {
	grants := reg.GrantTypes
	if len(grants) == 0 {
		grants = []string{"authorization_code", "refresh_token"}
	}
	out := registration{ClientName: "spendonce", ApplicationType: "native", RedirectURIs: reg.RedirectURIs,
		GrantTypes: grants, ResponseTypes: []string{}, AuthMethod: method, Scope: strings.Join(reg.Scopes, " ")}
	if slices.Contains(grants, "authorization_code") {
		out.ResponseTypes = []string{"code"} // left out it would mean just this
	}
	return out
}

func (r *Requester) register(ctx context.Context, op string, endpoint *url.URL, reg registration) (Registered, *Error) {
	request, err := json.Marshal(reg)
	if err != nil { // strings only
		return Registered{}, &Error{op: op, Class: ClassWrongRequest, NotSent: true, Text: "not sent: the request cannot be written"}
	}
	out := outgoing{op: op, method: http.MethodPost, url: endpoint, body: bytes.NewReader(request),
		header: http.Header{"Content-Type": {"application/json"}}}
	now := r.now()
	a, e := r.exchange(ctx, out)
	if e != nil {
		return Registered{}, e
	}
	b := readBody(a)
	made, flaw := b.registered(reg.AuthMethod)
	if (a.Status == http.StatusOK || a.Status == http.StatusCreated) && b.code == "" && flaw == "" {
		return made, nil
	}
	row := judgeRow(a.Status, b, flaw)
	if row != rowTemporary && row != rowRedirect && a.Status >= 400 || b.code != "" && row != rowTemporary {
		row = rowWrongRequest // whatever it refuses, it will refuse again
	}
	e = failure(op, a, b, row, flaw, now, nil)
	if row == rowWrongRequest {
		e.cause = ErrRegistration
		e.Text += "; " + ownClient
	}
	return Registered{}, e
}

// registered reads the answer (RFC 7591 section 3.2.1). flaw says why it is
// none.
func (b body) registered(asked string) (made Registered, flaw string) {
	id, value, method := b.text("client_id"), b.text("client_secret"), b.text("token_endpoint_auth_method")
	if method == "" {
		if method = asked; method == "none" && value != "" {
			method = "client_secret_basic" // what RFC 7591 has as the default
		}
	}
	switch {
	case !validToken(id) || len(id) > 1024:
		return Registered{}, "no client id, or one that is not plain"
	case method == "none":
		return Registered{Client: Client{ID: id}, AuthMethod: method}, ""
	case method != "client_secret_basic" && method != "client_secret_post":
		return Registered{}, "a client that must authenticate in an unknown way"
	case !validToken(value) || len(value) > 8192:
		return Registered{}, "no client secret, or one that is not plain"
	}
	made = Registered{Client: Client{ID: id, Secret: secret.New(value)}, AuthMethod: method}
	text, _ := numberText(b.members["client_secret_expires_at"])
	if seconds, ok := number(text); ok && seconds > 0 && seconds < math.MaxInt32*64 {
		made.SecretExpiresAt = time.Unix(int64(seconds), 0).UTC()
	}
	return made, ""
}
