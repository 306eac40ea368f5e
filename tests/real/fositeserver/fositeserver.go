// Package fositeserver is an authorization server made of ory/fosite, its
// in-memory store as shipped, and the pages that fosite leaves to others.
//
// What fosite decides: redirect matching (any port on a loopback address), PKCE
// (S256, required), codes, tokens, rotation, revocation of the whole family
// when a retired refresh token comes back, introspection (RFC 7662) and
// revocation (RFC 7009). What is ours is the browser session, the two forms,
// the metadata document (RFC 8414) and, if asked for, the endpoint that adds
// clients to the store (RFC 7591).
//
// Two properties of fosite that a client meets: a refresh retires the access
// token before it at once, and the revocation endpoint ends the whole family,
// whichever of its tokens it is given.
package fositeserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"github.com/ory/fosite/handler/oauth2"
	"github.com/ory/fosite/storage"
	"golang.org/x/crypto/bcrypt"

	"github.com/spendonce/spendonce/tests/real/person"
	"github.com/spendonce/spendonce/tests/real/registration"
	"github.com/spendonce/spendonce/tests/real/wiretap"
)

// The one public client and the one resource server that are registered.
const (
	ClientID       = "spendonce-cli"
	ResourceID     = "demo-api"
	ResourceSecret = "demo-api-secret"
)

const (
	metadataPath   = "/.well-known/oauth-authorization-server"
	authorizePath  = "/authorize"
	loginPath      = "/login"
	consentPath    = "/consent"
	tokenPath      = "/token"
	revokePath     = "/revoke"
	introspectPath = "/introspect"
	resourcePath   = "/api"
)

// Config is what a test may choose. The zero value works.
type Config struct {
	// AccessTokenLifetime is one hour when zero.
	AccessTokenLifetime time.Duration

	// RedirectPaths are the loopback callback paths that the client registered;
	// "/callback" when empty.
	RedirectPaths []string

	// Registration lets clients register themselves (RFC 7591): the endpoint is
	// ours, and puts them into fosite's own store.
	Registration bool
}

// Server is a running authorization server. Close it.
type Server struct {
	http     *httptest.Server
	tap      *wiretap.Tap
	issuer   string
	provider fosite.OAuth2Provider
	store    *storage.MemoryStore
	strategy *oauth2.HMACSHAStrategy
	visits   visits

	registers  bool
	registered atomic.Int64
}

// Start serves on a free port of 127.0.0.1.
func Start(cfg Config) (*Server, error) {
	if cfg.AccessTokenLifetime == 0 {
		cfg.AccessTokenLifetime = time.Hour
	}
	if len(cfg.RedirectPaths) == 0 {
		cfg.RedirectPaths = []string{"/callback"}
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	hashed, err := bcrypt.GenerateFromPassword([]byte(ResourceSecret), bcrypt.MinCost)
	if err != nil {
		return nil, err
	}

	s := &Server{store: storage.NewMemoryStore(), visits: newVisits(), registers: cfg.Registration}
	public := &fosite.DefaultClient{
		ID:            ClientID,
		Public:        true,
		ResponseTypes: fosite.Arguments{"code"},
		GrantTypes:    fosite.Arguments{"authorization_code", "refresh_token"},
		Scopes:        fosite.Arguments{"offline", "offline_access", "demo.read"},
	}
	for _, path := range cfg.RedirectPaths {
		public.RedirectURIs = append(public.RedirectURIs, "http://127.0.0.1"+path)
	}
	s.store.Clients[ClientID] = public
	s.store.Clients[ResourceID] = &fosite.DefaultClient{ID: ResourceID, Secret: hashed}
	s.store.Users[account.Username] = storage.MemoryUserRelation{Username: account.Username, Password: account.Password}

	mux := http.NewServeMux()
	s.tap = wiretap.New(tokenPath, mux)
	s.http = httptest.NewServer(s.tap)
	s.issuer = s.http.URL

	config := &fosite.Config{
		GlobalSecret:                secret,
		AccessTokenLifespan:         cfg.AccessTokenLifetime,
		AccessTokenIssuer:           s.issuer,
		TokenURL:                    s.issuer + tokenPath,
		EnforcePKCE:                 true,
		EnforcePKCEForPublicClients: true,
		HashCost:                    bcrypt.MinCost,
	}
	s.strategy = compose.NewOAuth2HMACStrategy(config)
	s.provider = compose.Compose(config, s.store, &compose.CommonStrategy{CoreStrategy: s.strategy},
		compose.OAuth2AuthorizeExplicitFactory,
		compose.OAuth2PKCEFactory,
		compose.OAuth2RefreshTokenGrantFactory,
		compose.OAuth2TokenIntrospectionFactory,
		compose.OAuth2TokenRevocationFactory,
	)

	mux.HandleFunc("GET "+metadataPath, s.metadata)
	mux.HandleFunc("GET "+authorizePath, s.authorize)
	mux.HandleFunc("GET "+loginPath, s.showLogin)
	mux.HandleFunc("POST "+loginPath, s.login)
	mux.HandleFunc("GET "+consentPath, s.showConsent)
	mux.HandleFunc("POST "+consentPath, s.consent)
	mux.HandleFunc(tokenPath, s.token)
	mux.HandleFunc(revokePath, s.revoke)
	mux.HandleFunc(introspectPath, s.introspect)
	mux.HandleFunc(resourcePath, s.resource)
	if cfg.Registration {
		mux.Handle(registration.Path, registration.Endpoint{
			GrantTypes: []string{"authorization_code", "refresh_token"}, Store: s.register,
		})
	}
	return s, nil
}

// Close ends the server and waits for its open requests.
func (s *Server) Close() { s.http.Close() }

// register runs while the tap lets no other request in.
func (s *Server) register(c registration.Client) {
	s.store.Clients[c.ID] = &fosite.DefaultClient{
		ID: c.ID, Public: true, ResponseTypes: fosite.Arguments{"code"},
		RedirectURIs: c.RedirectURIs, GrantTypes: c.GrantTypes, Scopes: c.Scopes,
	}
	s.registered.Add(1)
}

// Registrations counts the clients that registered themselves.
func (s *Server) Registrations() int { return int(s.registered.Load()) }

// Tap is the counter in front of the server.
func (s *Server) Tap() *wiretap.Tap { return s.tap }

// Secrets are those that crossed the wire, with the kind of each.
func (s *Server) Secrets() map[string]string { return s.tap.Secrets() }

// Issuer identifies the server and is where its metadata is found.
func (s *Server) Issuer() string { return s.issuer }

// ClientID is the registered public client.
func (s *Server) ClientID() string { return ClientID }

// Scopes are what a login has to ask for to get a refresh token.
func (s *Server) Scopes() []string { return []string{"demo.read", "offline_access"} }

// Resource is a URL that wants an access token of this server.
func (s *Server) Resource() string { return s.issuer + resourcePath }

// TokenEndpoint is where codes and refresh tokens are exchanged.
func (s *Server) TokenEndpoint() string { return s.issuer + tokenPath }

// AuthorizationEndpoint is where a login starts.
func (s *Server) AuthorizationEndpoint() string { return s.issuer + authorizePath }

// Account is the one account holder, who gives the right password and consents.
func (s *Server) Account() person.Person { return account }

// Live tells whether the server would accept an access token now.
func (s *Server) Live(ctx context.Context, accessToken string) bool {
	return s.introspects(ctx, accessToken, fosite.AccessToken)
}

// RefreshLive tells whether a refresh token could be spent now. It does not
// spend it.
func (s *Server) RefreshLive(ctx context.Context, refreshToken string) bool {
	return s.introspects(ctx, refreshToken, fosite.RefreshToken)
}

// introspects asks for one kind only: fosite takes the kind for a hint and
// goes on to look for the other.
func (s *Server) introspects(ctx context.Context, token string, kind fosite.TokenUse) bool {
	live := false
	s.tap.Alone(func() { live = s.accepts(ctx, token, kind) })
	return live
}

func (s *Server) accepts(ctx context.Context, token string, kind fosite.TokenUse) bool {
	found, _, err := s.provider.IntrospectToken(ctx, token, kind, new(fosite.DefaultSession))
	return err == nil && found == kind
}

// KillAccessToken ends one access token and leaves its family alone, as a
// server does that forgets a session or changes a key. The revocation endpoint
// would not do: fosite ends the refresh token along with it.
func (s *Server) KillAccessToken(ctx context.Context, accessToken string) error {
	err := errors.New("the access token is not live")
	s.tap.Alone(func() {
		if s.accepts(ctx, accessToken, fosite.AccessToken) {
			err = s.store.DeleteAccessTokenSession(ctx, s.strategy.AccessTokenSignature(ctx, accessToken))
		}
	})
	return err
}

// EndSession revokes the family that a refresh token belongs to, as an
// administrator would.
func (s *Server) EndSession(ctx context.Context, refreshToken string) (err error) {
	s.tap.Alone(func() {
		session, found := s.store.GetRefreshTokenSession(ctx, s.strategy.RefreshTokenSignature(ctx, refreshToken), nil)
		if found != nil {
			err = found
			return
		}
		err = errors.Join(
			s.store.RevokeRefreshToken(ctx, session.GetID()),
			s.store.RevokeAccessToken(ctx, session.GetID()),
		)
	})
	return err
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	document := map[string]any{
		"issuer":                                     s.issuer,
		"authorization_endpoint":                     s.issuer + authorizePath,
		"token_endpoint":                             s.issuer + tokenPath,
		"revocation_endpoint":                        s.issuer + revokePath,
		"introspection_endpoint":                     s.issuer + introspectPath,
		"response_types_supported":                   []string{"code"},
		"response_modes_supported":                   []string{"query"},
		"grant_types_supported":                      []string{"authorization_code", "refresh_token"},
		"code_challenge_methods_supported":           []string{"S256"},
		"token_endpoint_auth_methods_supported":      []string{"none"},
		"revocation_endpoint_auth_methods_supported": []string{"none"},
		"scopes_supported":                           []string{"demo.read", "offline_access"},
	}
	if s.registers {
		document["registration_endpoint"] = s.issuer + registration.Path
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := s.provider.NewAccessRequest(ctx, r, new(fosite.DefaultSession))
	if err != nil {
		s.provider.WriteAccessError(ctx, w, request, err)
		return
	}
	response, err := s.provider.NewAccessResponse(ctx, request)
	if err != nil {
		s.provider.WriteAccessError(ctx, w, request, err)
		return
	}
	s.provider.WriteAccessResponse(ctx, w, request, response)
}

func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	s.provider.WriteRevocationResponse(ctx, w, s.provider.NewRevocationRequest(ctx, r))
}

func (s *Server) introspect(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	response, err := s.provider.NewIntrospectionRequest(ctx, r, new(fosite.DefaultSession))
	if err != nil {
		s.provider.WriteIntrospectionError(ctx, w, err)
		return
	}
	s.provider.WriteIntrospectionResponse(ctx, w, response)
}

func (s *Server) resource(w http.ResponseWriter, r *http.Request) {
	if !s.accepts(r.Context(), fosite.AccessTokenFromRequest(r), fosite.AccessToken) {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		http.Error(w, "not signed in", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"hello":"world"}` + "\n"))
}
