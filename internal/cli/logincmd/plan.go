package logincmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"slices"
	"strings"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/oauthflow"
)

// discoveryBound is the time for everything that is asked before a person is.
const discoveryBound = 30 * time.Second

// plan is what a sign-in needs to know before it begins.
type plan struct {
	requester oauthflow.Requester
	server    oauthflow.Server
	client    oauthflow.Client
	clientID  string // that the user or the configuration named
	register  bool   // in place of client, when the redirect is known
	url       string // of the service
	hosts     []string
	resource  string
	asked     []string // scopes that the user or the configuration named
	scopes    []string // to be asked for
	tokenUse  string   // see [credstore.Pin]
	port      int
	noBrowser bool
}

// plan finds out what flags and configuration leave open: from the session
// that the target has, from the service and from the authorization server.
func (a *app) plan(ctx context.Context, s *credstore.Store, target string, f loginFlags) (plan, error) {
	c, err := a.Config()
	if err != nil {
		return plan{}, &streams.Exit{Code: 2, Err: err}
	}
	t, err := merged(c.Targets[target], f)
	if err != nil {
		return plan{}, err
	}
	old, _, err := s.Known(target)
	if err != nil {
		return plan{}, err
	}
	if t.URL == "" && t.Issuer == "" && t.TokenEndpoint == "" {
		// Again, to the same service.
		t.URL, t.Issuer, t.Dialect = old.URL, old.Pin.Issuer, cmp.Or(t.Dialect, old.Pin.Dialect)
		if old.URL != "" && t.Resource == "" {
			t.Resource = cmp.Or(old.Pin.Resource, credcmd.NoResource)
		}
	}
	p := plan{url: t.URL, hosts: f.hosts, resource: t.Resource, asked: t.Scopes, port: f.port, noBrowser: f.noBrowser, clientID: t.ClientID}
	if len(p.hosts) == 0 && old.URL == t.URL {
		p.hosts = old.Hosts
	}
	if err := p.checkPlaces(); err != nil {
		return plan{}, err
	}
	found, err := a.find(ctx, &p.requester, target, t)
	if err != nil {
		return plan{}, err
	}
	p.server = found.server
	switch {
	case f.noResource || t.Resource == credcmd.NoResource:
		p.resource = ""
	case p.resource == "":
		p.resource = found.resource
	}
	same := sameServer(old.Pin, p.server)
	if same {
		p.tokenUse = old.Pin.TokenUse
	}
	if f.idToken {
		p.tokenUse = credstore.UseIDToken
	}
	if p.tokenUse == credstore.UseIDToken && !slices.Contains(p.asked, "openid") {
		p.asked = append(slices.Clone(p.asked), "openid")
	}
	p.scopes = wanted(p.asked, old.Pin.Scope, same, found, f.clientCredentials)
	if err := p.server.SupportsPKCE(); err != nil && !f.device && !f.clientCredentials {
		return plan{}, fmt.Errorf("signing in to %s: %w", target, err)
	}
	return p, a.findClient(ctx, target, t, f, old.Pin, same, &p)
}

// checkPlaces refuses a service to which no token could ever go.
func (p plan) checkPlaces() error {
	if p.url != "" {
		if _, err := bearer.ParseOrigin(p.url); err != nil {
			return streams.Usage("--url: %w", err)
		}
	}
	for _, h := range p.hosts {
		if _, err := bearer.ParseOrigin(h); err != nil {
			return streams.Usage("--host: %w", err)
		}
	}
	return nil
}

// merged adds the flags to the configuration. They must not contradict it: a
// session that was made with something else would not be refreshed.
func merged(t config.Target, f loginFlags) (config.Target, error) {
	// Before anything prints one that holds a password.
	if f.url != "" {
		if _, err := bearer.ParseOrigin(f.url); err != nil {
			return t, streams.Usage("--url: %w", err)
		}
	}
	if f.issuer != "" {
		if err := oauthflow.CheckEndpoint("issuer", f.issuer); err != nil {
			return t, streams.Usage("--issuer: %w", err)
		}
	}
	for _, m := range []struct {
		flag, name string
		to         *string
		from       string
	}{
		{"--url", "url", &t.URL, f.url}, {"--issuer", "issuer", &t.Issuer, f.issuer},
		{"--client-id", "client_id", &t.ClientID, f.clientID}, {"--resource", "resource", &t.Resource, f.resource},
	} {
		if m.from != "" && *m.to != "" && m.from != *m.to {
			return t, streams.Usage("%s says %q and the configuration says %s = %q: change one of them", m.flag, m.from, m.name, *m.to)
		}
		if m.from != "" {
			*m.to = m.from
		}
	}
	if len(f.scopes) > 0 {
		t.Scopes = f.scopes
	}
	return t, nil
}

// found is what a service and its authorization server say of themselves.
type found struct {
	server    oauthflow.Server
	resource  string
	challenge []string // the scopes that the service asks for
	offered   []string // those that it knows
}

// find takes the endpoints from the configuration, or asks the issuer, or
// asks the service for its issuer.
func (a *app) find(ctx context.Context, r *oauthflow.Requester, target string, t config.Target) (found, error) {
	var f found
	f.server = oauthflow.Server{
		Issuer: t.Issuer, AuthorizationEndpoint: t.AuthorizationEndpoint, TokenEndpoint: t.TokenEndpoint,
		RevocationEndpoint: t.RevocationEndpoint, Dialect: oauthflow.Dialect(t.Dialect),
	}
	if f.server.Dialect == oauthflow.Hypaware && f.server.TokenEndpoint == "" {
		endpoint, err := credcmd.HypawareEndpoint(t)
		if err != nil {
			return f, streams.Usage("target %s: %w", target, err)
		}
		f.server.TokenEndpoint = endpoint
	}
	if f.server.AuthorizationEndpoint != "" && f.server.TokenEndpoint != "" {
		return f, nil
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryBound)
	defer cancel()
	a.Progress.Stage("asking the servers of " + target)
	defer a.Progress.Stage("")
	issuers := []string{t.Issuer}
	if t.Issuer == "" {
		if t.URL == "" {
			return f, streams.Usage("it is not known where to sign in to %s: give --url or --issuer, or set them in the configuration", target)
		}
		if err := oauthflow.CheckEndpoint("URL", t.URL); err != nil {
			return f, streams.Usage("%w", err)
		}
		resource, err := r.DiscoverResource(ctx, t.URL)
		f.challenge = resource.ChallengeScope
		switch {
		case err == nil:
			issuers = resource.AuthorizationServers
			f.resource, f.offered = resource.Resource, resource.ScopesSupported
		case errors.Is(err, oauthflow.ErrNoResourceMetadata):
			// Before RFC 9728 a service was its own authorization server.
			origin, _ := bearer.ParseOrigin(t.URL) // checked above
			issuers = []string{origin.String()}
		default:
			return f, fmt.Errorf("asking %s for its authorization server: %w", t.URL, err)
		}
	} else if err := oauthflow.CheckEndpoint("issuer", t.Issuer); err != nil {
		return f, streams.Usage("%w", err)
	}
	server, err := firstOf(ctx, r, issuers)
	if err != nil {
		return f, fmt.Errorf("finding the endpoints of %s: %w", target, err)
	}
	// What the user wrote down wins over what the server says of itself.
	for _, m := range []struct {
		to   *string
		from string
	}{
		{&server.AuthorizationEndpoint, f.server.AuthorizationEndpoint}, {&server.TokenEndpoint, f.server.TokenEndpoint},
		{&server.RevocationEndpoint, f.server.RevocationEndpoint},
	} {
		if m.from != "" {
			*m.to = m.from
		}
	}
	server.Dialect = f.server.Dialect
	f.server = server
	return f, nil
}

// firstOf returns the first issuer that answers for itself; the first one's
// error, if none does.
func firstOf(ctx context.Context, r *oauthflow.Requester, issuers []string) (oauthflow.Server, error) {
	var first error
	for _, issuer := range issuers {
		server, err := r.Discover(ctx, issuer)
		if err == nil {
			return server, nil
		}
		if first == nil {
			first = err
		}
	}
	return oauthflow.Server{}, first
}

// sameServer reports whether a session was made at this server. The issuer
// counts, too: anybody's metadata can name another server's token endpoint, and
// beside it an endpoint of its own to which the client's secret would go.
func sameServer(p credstore.Pin, s oauthflow.Server) bool {
	return p.TokenEndpoint != "" && p.TokenEndpoint == s.TokenEndpoint && (p.Issuer == s.Issuer || oauthflow.SameIssuer(p.Issuer, s.Issuer))
}

// wanted is what to ask for: what the user named, else what the service
// demands, else what it knows; never less than what the session at this server
// had before, so that a step up does not lose anything. A person's session is
// to be renewable and to have a name, where the server offers that.
func wanted(asked, before []string, same bool, f found, machine bool) []string {
	var scopes []string
	add := func(more ...string) {
		for _, s := range more {
			if s != "" && !slices.Contains(scopes, s) {
				scopes = append(scopes, s)
			}
		}
	}
	if same && !machine {
		add(before...)
	}
	add(asked...)
	if len(scopes) == 0 {
		add(f.challenge...)
	}
	if len(scopes) == 0 {
		add(f.offered...)
	}
	if machine {
		return scopes
	}
	for _, s := range []string{"offline_access", "openid", "email"} {
		if slices.Contains(f.server.ScopesSupported, s) && (len(asked) == 0 || s == "offline_access") {
			add(s)
		}
	}
	return scopes
}

// findClient decides as which client to sign in.
func (a *app) findClient(ctx context.Context, target string, t config.Target, f loginFlags, old credstore.Pin, same bool, p *plan) error {
	p.client.ID = t.ClientID
	if f.clientSecretFile != "" {
		var err error
		if p.client.Secret, err = a.ReadSecret(ctx, "--client-secret-file", f.clientSecretFile); err != nil {
			return err
		}
	}
	if same && !old.Registered && (p.client.ID == "" || p.client.ID == old.ClientID) && p.client.Secret.Empty() {
		p.client = refresh.Client(old)
	}
	document := strings.HasPrefix(p.client.ID, "https://")
	switch {
	case f.clientCredentials && (p.client.ID == "" || p.client.Secret.Empty()):
		return streams.Usage("--client-credentials signs in as the client: give --client-id and --client-secret-file")
	case document && !p.server.ClientIDMetadataSupported:
		return streams.Usage("%s does not read client-id metadata documents: leave --client-id out to register, or give an id that it knows", serverName(p.server))
	case p.client.ID != "":
		return nil
	case p.server.RegistrationEndpoint != "":
		p.register = true
		return nil
	}
	return streams.Usage("the client's id at %s is not known, and it registers nobody by itself: give --client-id, or set client_id of target %s in the configuration", serverName(p.server), target)
}

// register makes the client that the login uses, for this redirect.
func (l *login) register(ctx context.Context, redirectURI string) (oauthflow.Registered, error) {
	return l.registered(ctx, oauthflow.Registration{
		RedirectURIs: []string{redirectURI}, GrantTypes: []string{"authorization_code", "refresh_token"}, Scopes: l.plan.scopes,
	})
}

// deviceClient is the client of a sign-in by device code.
func (l *login) deviceClient(ctx context.Context) (oauthflow.Registered, error) {
	if !l.plan.register {
		return oauthflow.Registered{Client: l.plan.client}, nil
	}
	return l.registered(ctx, oauthflow.Registration{
		GrantTypes: []string{"urn:ietf:params:oauth:grant-type:device_code", "refresh_token"}, Scopes: l.plan.scopes,
	})
}

func (l *login) registered(ctx context.Context, r oauthflow.Registration) (oauthflow.Registered, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryBound)
	defer cancel()
	return l.plan.requester.Register(ctx, l.plan.server, r)
}

// serverName is what the person knows the authorization server by.
func serverName(s oauthflow.Server) string {
	return cmp.Or(s.Issuer, s.TokenEndpoint)
}

// session is what the store keeps of the login.
func (p plan) session(res oauthflow.Result) credstore.SignedIn {
	s := p.server
	in := credstore.SignedIn{
		URL: p.url, Hosts: p.hosts,
		Pin: credstore.Pin{
			Issuer: s.Issuer, AuthorizationEndpoint: s.AuthorizationEndpoint, TokenEndpoint: s.TokenEndpoint,
			RevocationEndpoint: s.RevocationEndpoint, RegistrationEndpoint: s.RegistrationEndpoint,
			ClientID: res.Client.ID, ClientSecret: res.Client.Secret, ClientAuth: clientAuth(s, res), Registered: p.register,
			RedirectURI: res.RedirectURI, Scope: p.scopes, Resource: p.resource, Dialect: string(s.Dialect),
			Subject: res.Account.Subject, Email: res.Account.Email, TokenUse: p.tokenUse,
		},
	}
	in.Tokens = refresh.TokensOf(in.Pin, res.Tokens)
	return in
}

// clientAuth is what the session must remember of how its secret travels.
func clientAuth(s oauthflow.Server, res oauthflow.Result) string {
	const basic, post = "client_secret_basic", "client_secret_post"
	switch {
	case res.Client.Secret.Empty():
		return ""
	case res.AuthMethod != "":
		return res.AuthMethod
	}
	if slices.Contains(s.TokenAuthMethods, basic) && !slices.Contains(s.TokenAuthMethods, post) {
		return basic
	}
	return ""
}
