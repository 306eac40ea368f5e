package logincmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/internal/movein"
	"github.com/spendonce/spendonce/oauthflow"
)

// imported is what an import will do: everything that is needed to go on with
// the session is known before anything is moved.
type imported struct {
	target   string
	from     source
	url      string
	pin      credstore.Pin
	idTokens bool
}

// importPlan finds out which server and client the session belongs to.
func (a *app) importPlan(ctx context.Context, target string, from source, f importFlags) (imported, error) {
	to := imported{target: target, from: from}
	switch {
	case f.use == "id-token", f.use == "" && from.place.Program == movein.Kubelogin:
		to.idTokens = true
	case f.use == "" && from.session.AccessToken.Empty() && !from.session.IDToken.Empty():
		to.idTokens = true // a file that was given back so
	case f.use != "" && f.use != "access-token":
		return to, streams.Usage("--use is %q: it is access-token or id-token", f.use)
	}
	s := from.session
	c, err := a.Config()
	if err != nil {
		return to, &streams.Exit{Code: 2, Err: err}
	}
	// A client that the session names may be another one than kubelogin's ID
	// token is for: what the user says counts.
	t, err := merged(c.Targets[target], f.login)
	if err != nil {
		return to, err
	}
	if t.Issuer != "" && s.Issuer != "" && !oauthflow.SameIssuer(t.Issuer, s.Issuer) {
		return to, streams.Usage("the session is from the issuer %q, and not from %q: its refresh token goes to no other, so nothing was moved", s.Issuer, t.Issuer)
	}
	if s.ClientID != "" && t.ClientID != "" && s.ClientID != t.ClientID && from.place.Program != movein.Kubelogin {
		return to, streams.Usage("the session is the client's %q, and not %q: nothing was moved", s.ClientID, t.ClientID)
	}
	t.URL, t.Issuer, t.TokenEndpoint = cmp.Or(t.URL, s.URL), cmp.Or(s.Issuer, t.Issuer), cmp.Or(t.TokenEndpoint, s.TokenEndpoint)
	if t.URL != "" {
		if _, err := bearer.ParseOrigin(t.URL); err != nil {
			return to, streams.Usage("the URL of the service: %w", err)
		}
	}
	to.url = t.URL
	server, resource, err := a.importServer(ctx, target, t, from.place.Program)
	if err != nil {
		return to, err
	}
	if t.Resource == credcmd.NoResource {
		t.Resource, resource = "", ""
	}
	client := oauthflow.Client{ID: cmp.Or(t.ClientID, s.ClientID), Secret: s.ClientSecret}
	if f.login.clientSecretFile != "" {
		if client.Secret, err = a.ReadSecret(ctx, "--client-secret-file", f.login.clientSecretFile); err != nil {
			return to, err
		}
	}
	if client.ID == "" {
		return to, streams.Usage("the session does not say which client it was made for: give --client-id")
	}
	auth := ""
	if s.ClientAuth == "client_secret_basic" || s.ClientAuth == "client_secret_post" {
		auth = s.ClientAuth
	}
	to.pin = credstore.Pin{
		Issuer: server.Issuer, AuthorizationEndpoint: server.AuthorizationEndpoint, TokenEndpoint: server.TokenEndpoint,
		RevocationEndpoint: server.RevocationEndpoint, RegistrationEndpoint: server.RegistrationEndpoint,
		ClientID: client.ID, ClientSecret: client.Secret, ClientAuth: clientAuth(server, oauthflow.Result{Client: client, AuthMethod: auth}),
		Registered: s.Registered && client.ID == s.ClientID, RedirectURI: s.RedirectURI,
		Resource: cmp.Or(t.Resource, s.Resource, resource), Dialect: string(server.Dialect),
		Subject: s.Subject, Email: s.Email,
	}
	if to.idTokens {
		to.pin.TokenUse = credstore.UseIDToken
	}
	to.pin.Scope = s.Scope
	if len(to.pin.Scope) == 0 {
		to.pin.Scope = t.Scopes
	}
	_, err = to.login(s)
	return to, err
}

// importServer asks the issuer for its endpoints. Where the endpoint is known
// and no issuer, nobody is asked.
func (a *app) importServer(ctx context.Context, target string, t config.Target, program movein.Program) (server oauthflow.Server, resource string, err error) {
	if t.Issuer == "" && t.TokenEndpoint != "" {
		server = oauthflow.Server{TokenEndpoint: t.TokenEndpoint, AuthorizationEndpoint: t.AuthorizationEndpoint, RevocationEndpoint: t.RevocationEndpoint, Dialect: oauthflow.Dialect(t.Dialect)}
	} else {
		r := &oauthflow.Requester{}
		got, err := a.find(ctx, r, target, t)
		if err != nil {
			return server, "", err
		}
		server, resource = got.server, got.resource
		if resource == "" && t.Resource == "" && t.Issuer != "" && program == movein.MCPRemote {
			// It names the resource wherever the service does.
			ctx, cancel := context.WithTimeout(ctx, discoveryBound)
			defer cancel()
			switch res, err := r.DiscoverResource(ctx, t.URL); {
			case err == nil:
				resource = res.Resource
			case !errors.Is(err, oauthflow.ErrNoResourceMetadata):
				a.Streams.Warn("the service does not say under which name its tokens are asked for (" + err.Error() + "): none will be sent; --resource names one")
			}
		}
	}
	if err := oauthflow.CheckEndpoint("token endpoint", server.TokenEndpoint); err != nil {
		return server, "", streams.Usage("%w", err)
	}
	return server, resource, nil
}

// login is what the store gets, of what is then in the file. It must still be
// the same session.
func (to imported) login(s movein.Session) (credstore.SignedIn, error) {
	if s.Issuer != to.from.session.Issuer || s.ClientID != to.from.session.ClientID || s.Subject != to.from.session.Subject {
		return credstore.SignedIn{}, fmt.Errorf("the session of %s changed hands meanwhile: look at it with --dry-run and try again", to.from.place.Program.Words())
	}
	tokens := credstore.Tokens{AccessToken: s.AccessToken, RefreshToken: s.RefreshToken, ExpiresAt: s.ExpiresAt, Lifetime: s.Lifetime}
	if to.idTokens {
		if s.IDToken.Empty() {
			return credstore.SignedIn{}, fmt.Errorf("the session of %s holds no ID token, which %s is to hand out: its server may give none on refresh either, so nothing was moved", to.from.place.Program.Words(), to.target)
		}
		tokens.AccessToken, tokens.ExpiresAt, tokens.Lifetime = s.IDToken, s.IDTokenExpires, 0
	}
	return credstore.SignedIn{URL: to.url, Pin: to.pin, Tokens: tokens}, nil
}

type importOutput struct {
	Version       int        `json:"version"`
	Program       string     `json:"program"`
	File          string     `json:"file"`
	Target        string     `json:"target"`
	URL           string     `json:"url,omitempty"`
	Issuer        string     `json:"issuer,omitempty"`
	TokenEndpoint string     `json:"token_endpoint"`
	ClientID      string     `json:"client_id"`
	Resource      string     `json:"resource,omitempty"`
	Account       string     `json:"account,omitempty"`
	Scope         []string   `json:"scope,omitempty"`
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`
	HandsOut      string     `json:"hands_out"` // access-token or id-token
	Resumed       bool       `json:"resumed,omitempty"`
	Others        []string   `json:"others,omitempty"` // files of further sessions for the same server
}

func (to imported) output() importOutput {
	in, _ := to.login(to.from.session) // was asked before
	out := importOutput{
		Version: 1, Program: string(to.from.place.Program), File: to.from.place.Path(), Target: to.target, URL: to.url,
		Issuer: to.pin.Issuer, TokenEndpoint: to.pin.TokenEndpoint, ClientID: to.pin.ClientID, Resource: to.pin.Resource,
		Account: cmp.Or(to.pin.Email, to.pin.Subject), Scope: to.pin.Scope, HandsOut: "access-token",
		Resumed: to.from.resumed, Others: to.from.others,
	}
	if to.idTokens {
		out.HandsOut = "id-token"
	}
	if at := in.Tokens.ExpiresAt; !at.IsZero() {
		at = at.UTC()
		out.ExpiresAt = &at
	}
	return out
}

// print shows the plan. It never shows a token.
func (to imported) print(w io.Writer) error {
	o := to.output()
	expires := "unknown"
	if o.ExpiresAt != nil {
		expires = o.ExpiresAt.Format(time.RFC3339)
	}
	rows := [][2]string{
		{"from", o.Program + ", " + o.File}, {"into target", o.Target}, {"service", o.URL}, {"issuer", o.Issuer},
		{"refreshed at", o.TokenEndpoint}, {"client", o.ClientID}, {"resource", o.Resource}, {"account", o.Account},
		{"scope", strings.Join(o.Scope, " ")}, {"token expires", expires}, {"hands out", o.HandsOut},
	}
	if o.Resumed {
		rows = slices.Insert(rows, 0, [2]string{"state", "an earlier move was cut short, and is completed"})
	}
	for _, other := range o.Others {
		rows = append(rows, [2]string{"left alone", other})
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(tw, "%s:\t%s\n", r[0], credcmd.Printable(r[1]))
		}
	}
	return tw.Flush()
}

// agreed asks a person, where there is one.
func (a *app) agreed(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	in, ok := a.Streams.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return streams.Usage("nobody can be asked here, so nothing was moved: --yes moves without asking, --dry-run only shows")
	}
	fmt.Fprintf(a.Streams.Err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // the end is a no
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return &streams.Exit{Code: 1, Err: errors.New("nothing was moved")}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
