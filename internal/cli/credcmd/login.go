package credcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/oauthflow"
)

type loginFlags struct {
	url, issuer, clientID, resource, tokenFile string
	scopes                                     []string
	noBrowser                                  bool
	port                                       int
}

func (a *App) loginCommand() *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:   "login TARGET",
		Short: "Sign in to a target and keep the session",
		Long: `Sign in to a target with a browser and keep the session, or store a static token.

The server's endpoints come from the configuration or from the metadata of
--issuer (without it: of the origin of --url). What the session was made with is
kept beside it, and the refresh token never goes anywhere else.`,
		Example: `  spendonce login example --url https://api.example.com --issuer https://login.example.com --client-id abc --scope offline_access
  spendonce login ci --token-file - < token`,
		Args:              targetArg("say"),
		ValidArgsFunction: a.completeTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.changeStore()
			if err != nil {
				return err
			}
			defer closeStore(s)
			if f.tokenFile != "" {
				return a.loginStatic(cmd.Context(), s, args[0], f)
			}
			return a.loginBrowser(cmd.Context(), s, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "the service that the token is for")
	flags.StringVar(&f.issuer, "issuer", "", "the authorization server, if it is not that of --url")
	flags.StringVar(&f.clientID, "client-id", "", "the client's id at the authorization server")
	flags.StringVar(&f.resource, "resource", "", "the resource to ask a token for (RFC 8707)")
	flags.StringArrayVar(&f.scopes, "scope", nil, "a `SCOPE` to ask for; may be repeated")
	flags.BoolVar(&f.noBrowser, "no-browser", false, "only print the address to open")
	flags.IntVar(&f.port, "port", 0, "the port of the redirect on this machine, if the server wants a fixed one")
	flags.StringVar(&f.tokenFile, "token-file", "", "store the static token in `FILE` (or - for standard input)")
	return cmd
}

func (a *App) loginStatic(ctx context.Context, s *credstore.Store, target string, f loginFlags) error {
	if f.issuer != "" || f.clientID != "" || len(f.scopes) > 0 {
		return streams.Usage("--token-file stores a token as it is: --issuer, --client-id and --scope do not go with it")
	}
	token, err := a.readSecret(ctx, "--token-file", f.tokenFile)
	if err != nil {
		return err
	}
	if err := s.SetStatic(ctx, target, token); err != nil {
		return err
	}
	a.done("stored the static token of %s", target)
	return nil
}

func (a *App) done(format string, args ...any) {
	if !a.Streams.Quiet {
		fmt.Fprintf(a.Streams.Err, format+"\n", args...)
	}
}

func (a *App) loginBrowser(ctx context.Context, s *credstore.Store, target string, f loginFlags) error {
	if !credstore.ValidName(target) {
		_, err := s.Source(credstore.SourceConfig{Target: target})
		return err
	}
	c, err := a.Config()
	if err != nil {
		return &streams.Exit{Code: 2, Err: err}
	}
	t, err := merged(c.Targets[target], f)
	if err != nil {
		return err
	}
	// A person's time is not spent on a login that cannot be kept.
	if err := s.Writable(ctx, target); err != nil {
		return err
	}
	requester := oauthflow.Requester{}
	srv, err := a.findServer(ctx, &requester, target, t)
	if err != nil {
		return err
	}
	if t.ClientID == "" {
		return streams.Usage("the client's id at %s is not known: give --client-id, or set client_id of target %s in the configuration", srv.Issuer, target)
	}
	login := &oauthflow.BrowserLogin{
		Requester: requester, Server: srv, Client: oauthflow.Client{ID: t.ClientID}, Scopes: t.Scopes, Resource: t.Resource,
		RedirectPort: f.port, URLOut: a.Streams.Err,
	}
	if f.noBrowser {
		login.Open = func(context.Context, string) error { return nil }
	}
	got, err := login.Run(ctx)
	if err != nil {
		return fmt.Errorf("signing in to %s: %w", target, err)
	}
	in := credstore.SignedIn{
		URL: t.URL, Tokens: refresh.Tokens(got.Tokens),
		Pin: credstore.Pin{
			Issuer: srv.Issuer, AuthorizationEndpoint: srv.AuthorizationEndpoint, TokenEndpoint: srv.TokenEndpoint,
			RevocationEndpoint: srv.RevocationEndpoint, RegistrationEndpoint: srv.RegistrationEndpoint,
			ClientID: got.Client.ID, ClientSecret: got.Client.Secret, ClientAuth: clientAuth(srv, got.Client),
			RedirectURI: got.RedirectURI, Scope: t.Scopes, Resource: t.Resource, Dialect: string(srv.Dialect),
			Subject: got.Account.Subject, Email: got.Account.Email,
		},
	}
	for _, w := range got.Tokens.Warnings {
		a.Streams.Warn(w)
	}
	replaced, err := s.Login(ctx, target, in)
	if err != nil {
		// Nobody can use the new session any more.
		a.revoke(ctx, target, credstore.Ended{Pin: in.Pin, RefreshToken: in.Tokens.RefreshToken, AccessToken: in.Tokens.AccessToken})
		return err
	}
	a.revoke(ctx, target, replaced)
	who := got.Account.Email
	if who == "" {
		who = got.Account.Subject
	}
	if who != "" {
		who = " as " + Printable(who)
	}
	if got.Tokens.RefreshToken.Empty() {
		a.Streams.Warn("the server gave no refresh token, so the session ends with its first token: ask for the scope offline_access if the server knows it")
	}
	a.done("signed in to %s%s", target, who)
	return nil
}

// revoke ends a session at its server, best effort: whether that works must
// not decide whether a person is signed in or out here. It returns words for
// the message that follows.
func (a *App) revoke(ctx context.Context, target string, e credstore.Ended) string {
	if e.Empty() {
		return ""
	}
	if e.Pin.TokenEndpoint == "" { // a session of another program, never used by this one
		if set, err := a.Settings(target); err == nil {
			e.Pin = set.Pin
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	switch err := refresh.Revoke(nil)(ctx, e); {
	case errors.Is(err, oauthflow.ErrNoRevocation):
		return " (the server offers no revocation: its tokens live on until they expire)"
	case err != nil:
		a.Streams.Warn(fmt.Sprintf("the old session of %s could not be revoked at the server: %v", target, err))
		return ""
	}
	return " and revoked its tokens"
}

// clientAuth is what the session must remember of how its secret travels.
func clientAuth(s oauthflow.Server, c oauthflow.Client) string {
	const basic, post = "client_secret_basic", "client_secret_post"
	if !c.Secret.Empty() && slices.Contains(s.TokenAuthMethods, basic) && !slices.Contains(s.TokenAuthMethods, post) {
		return basic
	}
	return ""
}

// merged adds the flags to the configuration. They must not contradict it: a
// session that was made with something else would not be refreshed.
func merged(t config.Target, f loginFlags) (config.Target, error) {
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

// findServer takes the endpoints from the configuration or asks the issuer.
func (a *App) findServer(ctx context.Context, r *oauthflow.Requester, target string, t config.Target) (oauthflow.Server, error) {
	srv := oauthflow.Server{
		Issuer: t.Issuer, AuthorizationEndpoint: t.AuthorizationEndpoint, TokenEndpoint: t.TokenEndpoint,
		RevocationEndpoint: t.RevocationEndpoint, Dialect: oauthflow.Dialect(t.Dialect),
	}
	if srv.Dialect == oauthflow.Hypaware && srv.TokenEndpoint == "" {
		endpoint, err := hypawareEndpoint(t)
		if err != nil {
			return srv, streams.Usage("target %s: %w", target, err)
		}
		srv.TokenEndpoint = endpoint
	}
	if srv.AuthorizationEndpoint != "" && srv.TokenEndpoint != "" {
		return srv, nil
	}
	issuer := t.Issuer
	if issuer == "" {
		origin, err := originOf(t.URL)
		if err != nil {
			return srv, streams.Usage("it is not known where to sign in to %s: give --issuer or --url, or set them in the configuration", target)
		}
		issuer = origin
	}
	if err := oauthflow.CheckEndpoint("issuer", issuer); err != nil {
		return srv, streams.Usage("%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	found, err := r.Discover(ctx, issuer)
	if err != nil {
		return srv, fmt.Errorf("finding the endpoints of %s: %w", target, err)
	}
	// What the user wrote down wins over what the server says of itself.
	for _, m := range []struct {
		to   *string
		from string
	}{
		{&found.AuthorizationEndpoint, srv.AuthorizationEndpoint}, {&found.TokenEndpoint, srv.TokenEndpoint},
		{&found.RevocationEndpoint, srv.RevocationEndpoint},
	} {
		if m.from != "" {
			*m.to = m.from
		}
	}
	found.Dialect = srv.Dialect
	return found, nil
}
