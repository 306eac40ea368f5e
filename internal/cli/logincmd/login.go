package logincmd

import (
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/oauthflow"
)

type loginFlags struct {
	url, issuer, clientID, clientSecretFile, resource, tokenFile string
	scopes, hosts                                                []string
	noResource, idToken                                          bool
	device, paste, clientCredentials, noBrowser                  bool
	port                                                         int
	unasked                                                      bool // see SignIn; no flag
}

func (a *app) loginCommand() *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use:   "login TARGET",
		Short: "Sign in to a target and keep the session",
		Long: `Sign in to a target and keep the session, or store a static token.

--url is enough where the service follows the standards: it names its
authorization server (RFC 9728), that one its endpoints (RFC 8414), and a client is
registered there (RFC 7591). What cannot be found out is asked for. What was found is
kept with the session, and the refresh token never goes anywhere else.

The person signs in with a browser on this machine; where there is none (no
display, SSH, a container) with a code that is entered on another device, or by
pasting the address at which a browser elsewhere ended. Why is said, and --device,
--paste and --no-browser choose otherwise. --client-credentials signs in a
machine, with the client's own secret.

To sign in again, the target is enough. --scope then adds to what was granted
before; 'spendonce logout' first gives it up.`,
		Example: `  spendonce login example --url https://mcp.example.com/mcp
  spendonce login example --url https://api.example.com --issuer https://login.example.com --client-id abc --scope offline_access
  spendonce login ci --url https://api.example.com --client-credentials --client-id abc --client-secret-file - < secret
  spendonce login static --token-file - < token`,
		Args:              credcmd.TargetArg("say"),
		ValidArgsFunction: a.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.OpenForChange()
			if err != nil {
				return err
			}
			defer credcmd.CloseStore(s)
			if f.tokenFile != "" {
				return a.loginStatic(cmd.Context(), s, args[0], f)
			}
			return a.signIn(cmd.Context(), s, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "the service that the token is for")
	flags.StringArrayVar(&f.hosts, "host", nil, "a further `ORIGIN`, such as https://cdn.example.com, that the token may go to; may be repeated")
	flags.StringVar(&f.issuer, "issuer", "", "the authorization server, if the service does not name it")
	flags.StringVar(&f.clientID, "client-id", "", "the client's id at the authorization server, or the URL of its metadata document")
	flags.StringVar(&f.clientSecretFile, "client-secret-file", "", "the client's secret is in `FILE` (or - for standard input)")
	flags.StringVar(&f.resource, "resource", "", "the resource to ask a token for (RFC 8707), if it is not the one that the service names")
	flags.BoolVar(&f.noResource, "no-resource", false, "name no resource, for servers that refuse it")
	flags.StringArrayVar(&f.scopes, "scope", nil, "a `SCOPE` to ask for; may be repeated")
	flags.BoolVar(&f.idToken, "id-token", false, "hand out ID tokens (OpenID Connect) in place of access tokens, as Kubernetes wants them")
	flags.BoolVar(&f.device, "device", false, "sign in with a code on another device (RFC 8628)")
	flags.BoolVar(&f.paste, "paste", false, "sign in with a browser on another machine, and paste the address at which it ends")
	flags.BoolVar(&f.clientCredentials, "client-credentials", false, "sign in as the client itself, with its secret")
	flags.BoolVar(&f.noBrowser, "no-browser", false, "only print the address to open on this machine")
	flags.IntVar(&f.port, "port", 0, "the port of the redirect on this machine, if the server wants a fixed one")
	flags.StringVar(&f.tokenFile, "token-file", "", "store the static token in `FILE` (or - for standard input)")
	cmd.MarkFlagsMutuallyExclusive("device", "paste", "client-credentials", "no-browser", "token-file")
	cmd.MarkFlagsMutuallyExclusive("id-token", "client-credentials", "token-file")
	cmd.MarkFlagsMutuallyExclusive("resource", "no-resource")
	return cmd
}

func (a *app) loginStatic(ctx context.Context, s *credstore.Store, target string, f loginFlags) error {
	switch {
	case f.issuer != "" || f.clientID != "" || f.clientSecretFile != "" || len(f.scopes) > 0 || f.resource != "" || f.noResource || f.port != 0:
		return streams.Usage("--token-file stores a token as it is: what chooses a server, a client or a scope does not go with it")
	case f.url != "" || len(f.hosts) > 0:
		return streams.Usage("--token-file stores a token as it is, and no session that could hold --url or --host: set url and hosts of target %s in the configuration", target)
	}
	token, err := a.ReadSecret(ctx, "--token-file", f.tokenFile)
	if err != nil {
		return err
	}
	if err := s.SetStatic(ctx, target, token); err != nil {
		return err
	}
	a.Say("stored the static token of %s", target)
	return nil
}

// login is one sign-in on its way.
type login struct {
	app    *app
	store  *credstore.Store
	target string
	plan   plan
	flow   flow
	// unasked: by a program that nobody has told to sign in.
	unasked bool
	enough  chan struct{} // closed when another process is not waited for any more
	goOn    func()        // closes it
	// Said that another process is waited for; and for how long at most.
	waited, bounded bool
	since           string // the login that is not another process's answer

	saved    credstore.SignedIn
	account  oauthflow.Account
	replaced credstore.Ended
}

func (a *app) signIn(ctx context.Context, s *credstore.Store, target string, f loginFlags) error {
	l := &login{app: a, store: s, target: target, unasked: f.unasked, enough: make(chan struct{})}
	l.goOn = sync.OnceFunc(func() { close(l.enough) })
	// A person's time is not spent on a login that cannot be kept.
	if err := s.Writable(ctx, target); err != nil {
		return err
	}
	// What another process signs in to from here on may be what is wanted.
	before, _, err := s.Known(target)
	if err != nil {
		return err
	}
	l.since = before.Login
	var turn *credstore.Turn
	for did := somethingElse; did == somethingElse; { // then what is to be asked for has changed
		var err error
		if l.plan, err = a.plan(ctx, s, target, f); err != nil {
			return err
		}
		if l.flow, err = a.choose(f, l.plan); err != nil {
			return err
		}
		if turn, did, err = l.turn(ctx); err != nil || did == theSame {
			return err
		}
	}
	defer turn.End()
	if since := time.Since(turn.LastFailed()); l.unasked && since >= 0 && since < Pause {
		return ErrAskedAlready
	}
	if err := l.run(ctx); err != nil {
		if l.unasked && ctx.Err() == nil {
			turn.Failed()
		}
		return fmt.Errorf("signing in to %s: %w", target, err)
	}
	a.revoke(ctx, target, l.replaced)
	if l.saved.Tokens.RefreshToken.Empty() && l.flow != byClient {
		a.Streams.Warn("the server gave no refresh token, so the session ends with its first token: ask for the scope offline_access if the server knows it")
	}
	a.Say("signed in to %s%s", target, as(l.account.Email, l.account.Subject))
	return nil
}

// as words whose account it is, as far as that is known.
func as(email, subject string) string {
	switch {
	case email != "":
		return " as " + credcmd.Printable(email)
	case subject != "":
		return " as " + credcmd.Printable(subject)
	}
	return ""
}

// keep stores what the server gave. Where that fails, nobody can use the new
// session any more, and it is ended.
func (l *login) keep(ctx context.Context, res oauthflow.Result) error {
	for _, w := range res.Tokens.Warnings {
		l.app.Streams.Warn(w)
	}
	l.account = res.Account
	l.saved = l.plan.session(res)
	if l.flow == byClient {
		l.saved.Pin.Grant = credstore.ClientCredentials
		l.saved.Tokens.RefreshToken = credstore.Secret{} // RFC 6749 section 4.4.3
	}
	if l.saved.Tokens.AccessToken.Empty() {
		l.app.revoke(context.WithoutCancel(ctx), l.target, credstore.Ended{Pin: l.saved.Pin, RefreshToken: l.saved.Tokens.RefreshToken, AccessToken: res.Tokens.AccessToken})
		return errors.New("the server gave no ID token: leave --id-token out, or ask whoever runs the server for OpenID Connect")
	}
	replaced, err := l.store.Login(ctx, l.target, l.saved)
	if err != nil {
		// Also if what failed is that the user interrupted us.
		l.app.revoke(context.WithoutCancel(ctx), l.target, credstore.Ended{Pin: l.saved.Pin, RefreshToken: l.saved.Tokens.RefreshToken, AccessToken: l.saved.Tokens.AccessToken})
		return err
	}
	l.replaced = replaced
	return nil
}

// revoke ends a session at its server, best effort: whether that works must
// not decide whether a person is signed in or out here. It returns words for
// the message that follows.
func (a *app) revoke(ctx context.Context, target string, e credstore.Ended) string {
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
