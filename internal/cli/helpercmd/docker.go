package helpercmd

import (
	"context"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/helper"
)

// DockerProgram is the name by which docker and others of its kind start
// "spendonce credential docker": a link to the program.
const DockerProgram = "docker-credential-spendonce"

func (a *app) dockerCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "docker",
		Short: "Be a credential helper of docker, podman and others",
		Long: `Be a credential helper of docker, podman, buildah, skopeo, and whatever else reads
docker's configuration. They start it as docker-credential-spendonce, which is a link
to this program.

The target is the one whose URL or hosts have the registry's origin. A registry that no
target has is "not found", so that it is asked without credentials; one that several
have is an error until --target says which.

The token is the password of a user name: that of --username, of the target's
configuration, or the one that the registry is known to demand. --username '<token>'
makes it an identity token.

An erase (docker logout) takes the stored token as refused, and refreshes it. No session
is ever deleted. As this protocol wants it, errors are on standard output and the exit
code is 1.`,
		Example: `  echo registry.example.com | spendonce credential docker get
  spendonce credential docker list`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return a.docker(fmt.Errorf("unknown credential action %.40q: there are get, store, erase, list and version", args[0]))
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return a.docker(err) })
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.target, "target", "", "answer for this `TARGET` only")
	flags.StringVar(&o.username, "username", "", "the user `NAME` beside the token")
	o.minValidFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("target", a.CompleteTargets)
	sub := func(name, short, stdin string, run func(context.Context) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: short, Example: "  " + stdin + "spendonce credential docker " + name,
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) > 0 {
					return a.docker(errors.New("the action stands alone: what it is about is read from standard input"))
				}
				return nil
			},
			RunE: func(cmd *cobra.Command, _ []string) error { return a.docker(run(cmd.Context())) },
		}
	}
	const server = "echo registry.example.com | "
	cmd.AddCommand(
		sub("get", "Answer docker with a token", server, func(ctx context.Context) error { return a.dockerGet(ctx, o) }),
		sub("store", "Do nothing: the token comes from here", `echo '{"ServerURL":"registry.example.com"}' | `, func(context.Context) error { return a.dockerStore() }),
		sub("erase", "Refresh a token that the registry refused", server, func(ctx context.Context) error { return a.dockerErase(ctx, o) }),
		sub("list", "List the registries that get would answer for", "", func(context.Context) error { return a.dockerList(o) }),
		sub("version", "Print the version as docker's own helpers do", "", func(context.Context) error {
			_, err := fmt.Fprintf(a.Streams.Out, "%s (github.com/spendonce/spendonce) %s\n", DockerProgram, a.Version())
			return err
		}),
	)
	return cmd
}

// docker says an error where this protocol wants it.
func (a *app) docker(err error) error {
	if err == nil {
		return nil
	}
	var exit *streams.Exit
	if errors.As(err, &exit) && exit.Err == nil || errors.Is(err, credcmd.ErrElsewhere) {
		return err // said already, or not ours to say
	}
	text := err.Error()
	if errors.Is(err, errNoTarget) {
		text = helper.DockerNotFound
	}
	_, _ = fmt.Fprintln(a.Streams.Out, streams.Printable(text))
	return &streams.Exit{Code: 1}
}

func (a *app) dockerGet(ctx context.Context, o output) error {
	if err := a.Here(); err != nil { // before what is read is gone
		return err
	}
	s, p, server, err := a.dockerPlace(o.target)
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	c, err := a.issue(ctx, s, p.Target, o)
	if err != nil {
		return err
	}
	return helper.WriteDocker(a.Streams.Out, server, dockerUsername(o, p, server), c)
}

func dockerUsername(o output, p credcmd.Place, server string) string {
	switch {
	case o.username != "":
		return o.username
	case p.Username != "":
		return p.Username
	}
	_, host, ok := strings.Cut(server, "://")
	if !ok {
		host = server
	}
	host, _, _ = strings.Cut(host, "/")
	return helper.DockerUsername(host)
}

// dockerPlace reads the registry's address and finds the target. Where no
// token may go is decided before anything else is read.
func (a *app) dockerPlace(target string) (*credstore.Store, credcmd.Place, string, error) {
	server, err := helper.ReadDockerServer(a.Streams.In)
	if err != nil {
		return nil, credcmd.Place{}, "", err
	}
	origins, err := dockerOrigins(server)
	if err != nil {
		return nil, credcmd.Place{}, "", err
	}
	s, err := a.Open()
	if err != nil {
		return nil, credcmd.Place{}, "", err
	}
	list, err := a.Places(s)
	if err == nil {
		var p credcmd.Place
		if p, err = choose(list, want{origins: origins, target: target}); err == nil {
			return s, p, server, nil
		}
	}
	credcmd.CloseStore(s)
	return nil, credcmd.Place{}, "", err
}

// dockerOrigins are the origins that a registry's address can mean: docker
// leaves the scheme out, and speaks http with registries of this machine.
func dockerOrigins(server string) ([]bearer.Origin, error) {
	o, err := bearer.ParseOrigin(server)
	if err != nil {
		return nil, fmt.Errorf("docker asks for a token: %w", err)
	}
	origins := []bearer.Origin{o}
	if !strings.Contains(server, "://") && o.Loopback() {
		plain, err := bearer.ParseOrigin("http://" + server)
		if err != nil {
			return nil, fmt.Errorf("docker asks for a token: %w", err)
		}
		origins = append(origins, plain)
	}
	return origins, nil
}

func (a *app) dockerStore() error {
	// All of it is read, for docker takes a pipe that breaks for a failure.
	if _, err := io.Copy(io.Discard, io.LimitReader(a.Streams.In, 1<<20)); err != nil {
		return fmt.Errorf("standard input cannot be read: %w", err)
	}
	a.Streams.Warn("nothing was stored: sign in with 'spendonce login', and docker gets its tokens from there")
	return nil
}

func (a *app) dockerErase(ctx context.Context, o output) error {
	s, p, _, err := a.dockerPlace(o.target)
	if errors.Is(err, errNoTarget) {
		return nil
	}
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	entries, err := s.List()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(entries, func(e credstore.Entry) bool { return e.Target == p.Target })
	if i < 0 || entries[i].Kind != credstore.KindOIDC || entries[i].Override {
		return nil // nothing to refresh, and nobody said that the token is bad
	}
	_, err = a.get(ctx, s, p.Target, credstore.Request{Refresh: true})
	return err
}

// dockerList lists what get would answer for: docker fails altogether if it
// would not for one of them.
func (a *app) dockerList(o output) error {
	s, err := a.Open()
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	list, err := a.Places(s)
	if err != nil {
		return err
	}
	entries, err := s.List()
	if err != nil {
		return err
	}
	now := time.Now()
	live := map[string]bool{}
	for _, e := range entries {
		live[e.Target] = e.Usable && (e.Override || answers(e, now))
	}
	usernames := map[string]string{}
	for _, origin := range originsOf(list) {
		// As docker names them. The schemes of one host are one registry.
		_, server, _ := strings.Cut(origin.String(), "://")
		origins, err := dockerOrigins(server)
		if err != nil {
			continue // http on a port of this machine that is https's own
		}
		if p, err := choose(list, want{origins: origins, target: o.target}); err == nil && live[p.Target] {
			usernames[server] = dockerUsername(o, p, server)
		}
	}
	return helper.WriteDockerList(a.Streams.Out, usernames)
}

// answers reports whether a token of e is to be had, as far as can be told
// without asking anybody.
func answers(e credstore.Entry, now time.Time) bool {
	switch {
	case e.Err != nil || e.Kind == credstore.KindStatic:
		return e.Err == nil
	case e.LoginRequired:
		return false
	}
	return e.Refreshable || e.HasToken && (e.ExpiresAt.IsZero() || e.ExpiresAt.After(now))
}

// originsOf returns the origins of all targets of list.
func originsOf(list []credcmd.Place) []bearer.Origin {
	var all []bearer.Origin
	for _, p := range list {
		for _, o := range p.Origins {
			if !slices.Contains(all, o) {
				all = append(all, o)
			}
		}
	}
	return all
}
