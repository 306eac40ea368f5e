// Package zitadelserver is an authorization server made of zitadel/oidc and the
// example provider that it ships: pages, store and all.
//
// It differs from fositeserver where implementations differ. It is an OpenID
// provider (discovery document, ID tokens) and knows the device flow. Its store
// rotates refresh tokens and refuses a retired one, but does not end the family
// for it; revoking an access token leaves the refresh token alone; and its
// login page has no button to say no.
package zitadelserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/spendonce/spendonce/tests/real/person"
	"github.com/spendonce/spendonce/tests/real/registration"
	"github.com/spendonce/spendonce/tests/real/wiretap"
)

// ClientID is the one registered client, public and native.
const ClientID = "spendonce-cli"

const (
	authorizePath = "/auth"
	tokenPath     = "/oauth/token"
	revokePath    = "/revoke"
	userinfoPath  = "/userinfo"

	deviceEndpointPath = "/device_authorization"
	devicePagePath     = "/device"
)

// Config is what a test may choose. The zero value works.
type Config struct {
	// RedirectPaths are the loopback callback paths that the client registered;
	// "/callback" when empty.
	RedirectPaths []string

	// Registration lets clients register themselves (RFC 7591): the endpoint is
	// ours, puts them into the example's own store, and is named in the
	// discovery document.
	Registration bool
}

// Server is a running authorization server. Close it.
type Server struct {
	http    *httptest.Server
	tap     *wiretap.Tap
	issuer  string
	inner   http.Handler
	store   *store
	account person.Person

	registered atomic.Int64
}

// Start serves on a free port of 127.0.0.1.
func Start(cfg Config) *Server {
	if len(cfg.RedirectPaths) == 0 {
		cfg.RedirectPaths = []string{"/callback"}
	}
	var redirects []string
	for _, path := range cfg.RedirectPaths {
		redirects = append(redirects, "http://127.0.0.1"+path)
	}

	// The provider has to know its issuer, and the issuer has a port.
	s := &Server{}
	s.http = httptest.NewUnstartedServer(nil)
	s.issuer = "http://" + s.http.Listener.Addr().String()
	users := storage.NewUserStore(s.issuer)
	clients := map[string]*storage.Client{ClientID: storage.NativeClient(ClientID, redirects...)}
	s.store = &store{
		Storage: storage.NewStorageWithClients(users, clients),
		users:   users, clients: clients, grants: map[string][]oidc.GrantType{},
	}
	user := users.GetUserByID("id1")
	s.account = person.Person{Username: user.Username, Password: user.Password}
	s.inner = exampleop.SetupServer(s.issuer, s.store, nil, false)
	if cfg.Registration {
		s.inner = s.withRegistration(s.inner)
	}
	s.tap = wiretap.New(tokenPath, s.inner)
	s.http.Config.Handler = s.tap
	s.http.Start()
	return s
}

// Close ends the server and waits for its open requests.
func (s *Server) Close() { s.http.Close() }

// withRegistration adds the endpoint, and its name to the discovery document.
func (s *Server) withRegistration(op http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", op)
	mux.Handle(registration.Path, registration.Endpoint{
		GrantTypes: []string{string(oidc.GrantTypeCode), string(oidc.GrantTypeRefreshToken), string(oidc.GrantTypeDeviceCode)},
		Store: func(c registration.Client) {
			s.store.add(c)
			s.registered.Add(1)
		},
	})
	mux.HandleFunc(oidc.DiscoveryEndpoint, func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		op.ServeHTTP(answer, r)
		var document map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
			http.Error(w, "no discovery document: "+err.Error(), http.StatusInternalServerError)
			return
		}
		document["registration_endpoint"] = s.issuer + registration.Path
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	})
	return mux
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
func (s *Server) Scopes() []string {
	return []string{oidc.ScopeOpenID, oidc.ScopeEmail, oidc.ScopeOfflineAccess}
}

// Resource is a URL that wants an access token of this server.
func (s *Server) Resource() string { return s.issuer + userinfoPath }

// TokenEndpoint is where codes and refresh tokens are exchanged.
func (s *Server) TokenEndpoint() string { return s.issuer + tokenPath }

// AuthorizationEndpoint is where a login starts.
func (s *Server) AuthorizationEndpoint() string { return s.issuer + authorizePath }

// DeviceEndpoint is where a device asks for a code (RFC 8628).
func (s *Server) DeviceEndpoint() string { return s.issuer + deviceEndpointPath }

// DevicePage is where a person enters the code that a device shows.
func (s *Server) DevicePage() string { return s.issuer + devicePagePath }

// Account is an account holder who gives the right password.
func (s *Server) Account() person.Person { return s.account }

// Live tells whether the server would accept an access token now.
func (s *Server) Live(ctx context.Context, accessToken string) bool {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, s.Resource(), nil)
	request.Header.Set("Authorization", "Bearer "+accessToken)
	return s.ask(request).Code == http.StatusOK
}

// RefreshLive tells whether a refresh token could be spent now. It does not
// spend it.
func (s *Server) RefreshLive(ctx context.Context, refreshToken string) bool {
	live := false
	s.tap.Alone(func() {
		_, err := s.store.TokenRequestByRefreshToken(ctx, refreshToken)
		live = err == nil
	})
	return live
}

// KillAccessToken ends one access token and leaves its family alone.
func (s *Server) KillAccessToken(ctx context.Context, accessToken string) error {
	return s.revoke(ctx, accessToken, "access_token")
}

// EndSession ends a refresh token and the access token that came with it.
func (s *Server) EndSession(ctx context.Context, refreshToken string) error {
	return s.revoke(ctx, refreshToken, "refresh_token")
}

func (s *Server) revoke(ctx context.Context, token, kind string) error {
	form := url.Values{"token": {token}, "token_type_hint": {kind}, "client_id": {ClientID}}
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, s.issuer+revokePath, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if answer := s.ask(request); answer.Code != http.StatusOK {
		return fmt.Errorf("revoking: status %d", answer.Code)
	}
	return nil
}

// ask goes past the tap: what a test asks is not what a client sent.
func (s *Server) ask(request *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	s.tap.Alone(func() { s.inner.ServeHTTP(answer, request) })
	return answer
}

// store mends the example's store where it would not do. As shipped, a session
// from the device flow belongs to no client, so that its first refresh is
// refused, and its subject is the login name, which is no user's id; and no
// native client may use the flow at all.
type store struct {
	*storage.Storage
	users   storage.UserStore
	clients map[string]*storage.Client  // the very map that Storage has
	grants  map[string][]oidc.GrantType // of those that registered themselves
}

// add runs while the tap lets no other request in.
func (s *store) add(c registration.Client) {
	s.clients[c.ID] = storage.NativeClient(c.ID, c.RedirectURIs...)
	for _, grant := range c.GrantTypes {
		s.grants[c.ID] = append(s.grants[c.ID], oidc.GrantType(grant))
	}
}

func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	grants, registered := s.grants[id]
	if !registered {
		grants = append(found.GrantTypes(), oidc.GrantTypeDeviceCode)
	}
	return client{found, grants}, nil
}

func (s *store) CreateAccessAndRefreshTokens(ctx context.Context, request op.TokenRequest, current string) (accessID, refresh string, expires time.Time, err error) {
	if device, ok := request.(*op.DeviceAuthorizationState); ok {
		request = &storage.AuthRequest{ApplicationID: device.ClientID, UserID: device.Subject, Scopes: device.Scopes}
	}
	return s.Storage.CreateAccessAndRefreshTokens(ctx, request, current)
}

func (s *store) CompleteDeviceAuthorization(ctx context.Context, userCode, username string) error {
	user := s.users.GetUserByUsername(username)
	if user == nil {
		return fmt.Errorf("no user %q", username)
	}
	return s.Storage.CompleteDeviceAuthorization(ctx, userCode, user.ID)
}

// client may use the grants that it was registered for.
type client struct {
	op.Client
	grants []oidc.GrantType
}

func (c client) GrantTypes() []oidc.GrantType { return c.grants }
