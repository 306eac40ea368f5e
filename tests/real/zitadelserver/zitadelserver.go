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
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/spendonce/spendonce/tests/real/person"
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
}

// Server is a running authorization server. Close it.
type Server struct {
	http    *httptest.Server
	tap     *wiretap.Tap
	issuer  string
	inner   http.Handler
	store   *store
	account person.Person
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
	s.store = &store{
		Storage: storage.NewStorageWithClients(users, map[string]*storage.Client{
			ClientID: storage.NativeClient(ClientID, redirects...),
		}),
		users: users,
	}
	user := users.GetUserByID("id1")
	s.account = person.Person{Username: user.Username, Password: user.Password}
	s.inner = exampleop.SetupServer(s.issuer, s.store, nil, false)
	s.tap = wiretap.New(tokenPath, s.inner)
	s.http.Config.Handler = s.tap
	s.http.Start()
	return s
}

// Close ends the server and waits for its open requests.
func (s *Server) Close() { s.http.Close() }

// Tap is the counter in front of the server.
func (s *Server) Tap() *wiretap.Tap { return s.tap }

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
	users storage.UserStore
}

func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	client, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return deviceClient{client}, nil
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

type deviceClient struct{ op.Client }

func (c deviceClient) GrantTypes() []oidc.GrantType {
	return append(c.Client.GrantTypes(), oidc.GrantTypeDeviceCode)
}
