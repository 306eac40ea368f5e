package oauthflow

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spendonce/spendonce/internal/challenge"
	"github.com/spendonce/spendonce/internal/egress"
)

var (
	// ErrNoResourceMetadata: the resource tells nothing about itself. Its
	// origin may be an issuer all the same.
	ErrNoResourceMetadata = errors.New("no metadata of the resource found")
	// ErrResource: the metadata belongs to another resource, or names none.
	ErrResource = errors.New("the metadata is not that of the URL asked for")
	// ErrResourceMetadata: the metadata, or the way to it, cannot be used.
	ErrResourceMetadata = errors.New("the metadata of the resource cannot be used")
)

// probeBound is how long the resource may take to answer without a token.
// What does not answer in time may still have metadata.
const probeBound = 15 * time.Second

// maxServers is how many authorization servers a resource may name: who is
// named is sent requests to.
const maxServers = 16

// Resource is what a protected resource says about itself (RFC 9728).
type Resource struct {
	// Resource is the name under which tokens for it are asked for (RFC 8707).
	Resource string
	// AuthorizationServers are the issuers of its tokens, at least one. Each
	// is https, or http on a loopback host if the resource is on one itself.
	AuthorizationServers []string
	// ScopesSupported and ChallengeScope are scopes by RFC 6749: those that
	// the metadata lists, and those that the resource asked for just now.
	ScopesSupported []string
	ChallengeScope  []string
}

type resourceMetadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
}

var resourceDocument = document{op: "resource discovery", none: ErrNoResourceMetadata, unusable: ErrResourceMetadata}

// DiscoverResource asks a protected resource who issues its tokens (RFC 9728).
// The URL is requested once, without a token. Where the challenge of a 401 or
// 403 names a place for the metadata, it must be on the same origin, and is the
// only one read; else the well-known place of the URL is, and that of the
// host.
//
// The metadata must name the very URL that was asked for, but for the slash
// after a bare host, and that of the host may speak for the host alone; else
// the error is [ErrResource]. With [ErrNoResourceMetadata] the ChallengeScope
// is returned all the same. Nothing secret is sent and no redirect followed.
// Every error is an [*Error].
func (r *Requester) DiscoverResource(ctx context.Context, rawURL string) (Resource, error) {
	u, err := parseEndpoint("URL of the resource", rawURL)
	if err != nil {
		return Resource{}, &Error{op: resourceDocument.op, Class: ClassWrongRequest, NotSent: true, Text: "not sent: " + err.Error(), cause: err}
	}
	a, e := r.probe(ctx, u)
	if e != nil {
		return Resource{}, e
	}
	pointer, scope := bearerChallenge(a)
	res := Resource{ChallengeScope: scope}
	places := wellKnownResource(u)
	if pointer != "" {
		place, err := pointedPlace(u, pointer)
		if err != nil {
			return Resource{}, resourceDocument.refuse(a, ErrResourceMetadata, ": "+err.Error())
		}
		places = []resourcePlace{{url: place}}
	}
	var last *Error
	for _, place := range places {
		var m resourceMetadata
		a, e := r.readDocument(ctx, resourceDocument, place.url, &m)
		if e == nil {
			e = place.judge(a, u, rawURL, m)
		}
		switch {
		case e == nil:
			res.Resource, res.AuthorizationServers, res.ScopesSupported = m.Resource, m.AuthorizationServers, scopesOf(m.ScopesSupported)
			return res, nil
		case e.Status == 0: // not reached: the other places are on the same host
			return Resource{}, e
		case last == nil || resourceDocument.severity(e) > resourceDocument.severity(last):
			last = e
		}
	}
	if errors.Is(last, ErrNoResourceMetadata) {
		return res, last
	}
	return Resource{}, last
}

// probe asks for the resource as somebody without a token. Its answer may be
// an endless stream of events, so only the head is read.
func (r *Requester) probe(ctx context.Context, u *url.URL) (Answer, *Error) {
	bounded, cancel := context.WithTimeout(ctx, cmp.Or(r.probeBound, probeBound))
	defer cancel()
	a, e := r.exchange(bounded, outgoing{op: resourceDocument.op, method: http.MethodGet, url: u, headOnly: true,
		header: http.Header{"Accept": {"application/json, text/event-stream"}}})
	if e != nil && e.Broken && ctx.Err() == nil {
		return Answer{}, nil // it answers nobody like us; the well-known places may be another program's
	}
	return a, e
}

// bearerChallenge reads where the metadata is and what scope is wanted (RFC
// 9728 section 5.1, RFC 6750 section 3). A challenge that names a place goes
// before others.
func bearerChallenge(a Answer) (pointer string, scope []string) {
	if a.Status != http.StatusUnauthorized && a.Status != http.StatusForbidden {
		return "", nil
	}
	var params map[string]string
	for _, c := range challenge.Parse(a.Header.Values("Www-Authenticate")) {
		if c.Scheme == "bearer" && (params == nil || params["resource_metadata"] == "" && c.Params["resource_metadata"] != "") {
			params = c.Params
		}
	}
	return params["resource_metadata"], scopesOf(strings.Fields(params["scope"]))
}

// pointedPlace refuses a place that the resource's own origin does not answer
// for: who can only add a header may not choose the authorization server.
func pointedPlace(resource *url.URL, pointer string) (*url.URL, error) {
	place, err := parseEndpoint("place that the challenge names", pointer)
	if err != nil {
		return nil, err
	}
	if origin(place) != origin(resource) {
		return nil, errors.New("the challenge names a place on another origin, " + named(origin(place)) + ", which was not read")
	}
	return place, nil
}

// origin is scheme, host and port, in one spelling.
func origin(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// resourcePlace is where metadata may be; that of the host is not that of a
// URL below it.
type resourcePlace struct {
	url    *url.URL
	ofHost bool
}

// wellKnownResource lists the places of RFC 9728 section 3.1: in front of path
// and query, of which a slash behind a bare host is no part; then the host's.
func wellKnownResource(u *url.URL) []resourcePlace {
	const wellKnown = "/.well-known/oauth-protected-resource"
	at := func(path, rawPath, query string) *url.URL {
		return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: wellKnown + path, RawPath: wellKnown + rawPath, RawQuery: query}
	}
	if (u.Path == "" || u.Path == "/") && u.RawQuery == "" {
		return []resourcePlace{{url: at("", "", "")}}
	}
	path, rawPath := u.Path, u.EscapedPath()
	if path == "/" {
		path, rawPath = "", ""
	}
	return []resourcePlace{{url: at(path, rawPath, u.RawQuery)}, {url: at("", "", ""), ofHost: true}}
}

// judge holds the document from a place against the URL that was asked for.
func (p resourcePlace) judge(a Answer, u *url.URL, asked string, m resourceMetadata) *Error {
	same := SameIssuer(m.Resource, asked)
	switch {
	case p.ofHost && same:
		return resourceDocument.refuse(a, ErrResource, ": the host's own metadata names it, and may only name the host; give the authorization server with --issuer")
	case !same && m.Resource == "":
		return resourceDocument.refuse(a, ErrResource, ": it names none; give the authorization server with --issuer")
	case !same:
		return resourceDocument.refuse(a, ErrResource, "; it names "+named(m.Resource)+": give that with --url if you mean it, or the authorization server with --issuer")
	case len(m.AuthorizationServers) == 0:
		return resourceDocument.refuse(a, ErrResourceMetadata, ": it names no authorization server; give it with --issuer")
	case len(m.AuthorizationServers) > maxServers: // each is asked, one after the other
		return resourceDocument.refuse(a, ErrResourceMetadata, ": it names more authorization servers than "+strconv.Itoa(maxServers)+"; give the right one with --issuer")
	}
	for _, issuer := range m.AuthorizationServers {
		as, err := parseEndpoint("authorization server that it names", issuer)
		if err == nil && egress.Loopback(as.Hostname()) && !egress.Loopback(u.Hostname()) {
			err = errors.New("the authorization server of a remote resource is on this machine")
		}
		if err != nil {
			return resourceDocument.refuse(a, ErrResourceMetadata, ": "+err.Error())
		}
	}
	return nil
}
