package requestcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/localproxy"
)

func (a *app) proxyCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "proxy TARGET --listen unix:PATH|127.0.0.1:PORT",
		Short: "Let programs that cannot sign in send requests with the target's token",
		Long: `Let programs that speak HTTP and cannot sign in send requests with the target's
token: a reverse proxy on this machine that forwards what it is asked to the origin
of the target's URL, and to no other.

On a Unix socket only this user's processes are served; the kernel says who connects.
The socket's directory must be one that nobody else can change. On a loopback address,
other users and web pages could connect too: there each request must show a secret,
which is new at every start, as "Authorization: Bearer SECRET", or before the path, as
/SECRET/path, where a program takes nothing but a URL. Port 0 is a free one.

When it listens, it prints one line of JSON to standard output: version, target,
forwards_to, url, and socket, or secret and secret_url. Nothing else is printed there.
With --verbose each answer is a line of JSON on standard error: method, status, bytes
and time, and never what it was about.

It ends at SIGTERM, SIGINT or SIGHUP, within a second or so and after an exchange
that has begun, with 0. Another server on the same socket ends it with 7.`,
		Example: `  spendonce proxy example --listen unix:/run/user/1000/spendonce/example.sock
  spendonce proxy example --listen 127.0.0.1:0`,
		Args:              credcmd.TargetArg("say for"),
		ValidArgsFunction: a.CompleteTargets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if listen == "" {
				return streams.Usage("say where to listen: --listen unix:PATH, or --listen 127.0.0.1:0")
			}
			at, err := localproxy.ParseAddress(listen)
			if err != nil {
				return streams.Usage("--listen: %w", err)
			}
			return a.proxy(cmd.Context(), args[0], at)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "the `ADDRESS`: unix:PATH, 127.0.0.1:PORT or [::1]:PORT")
	return cmd
}

func (a *app) proxy(ctx context.Context, target string, at localproxy.Address) error {
	a.Arm()
	s, err := a.Open()
	if err != nil {
		return err
	}
	defer credcmd.CloseStore(s)
	source, err := a.Source(s, target)
	if err != nil {
		return err
	}
	base, to, err := a.proxyTo(s, target)
	if err != nil {
		return err
	}
	talk := newTalk(a.Streams)
	defer talk.end()
	transport, err := bearer.New(bearer.Config{
		Target: target, Origins: []bearer.Origin{to}, HeaderTimeout: -1,
		Source: &settled{source: source, origin: to, now: func() (bearer.Origin, error) {
			_, o, err := a.proxyTo(s, target)
			return o, err
		}},
		Warn: func(err error) { talk.warn(err.Error()) },
	})
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	p, err := localproxy.Listen(ctx, localproxy.Config{
		Listen: at, Target: target, To: to, Transport: transport,
		RetryAfter: func() time.Duration { return notBefore(s, target) },
		Served:     talk.served(), Warn: talk.warn,
	})
	switch {
	case errors.Is(err, localproxy.ErrTaken):
		return &streams.Exit{Code: 7, Err: fmt.Errorf("another server is running: %w", err)}
	case errors.Is(err, localproxy.ErrUnsafe):
		return &streams.Exit{Code: 6, Err: err}
	case errors.Is(err, localproxy.ErrAddress):
		return streams.Usage("--listen: %w", err)
	case err != nil:
		return fmt.Errorf("listening: %w", err)
	}
	if err := a.printReady(p, at, target, to, base); err != nil {
		p.Close()
		return err
	}
	return p.Serve(ctx)
}

// proxyTo is where a target's requests go: the path of its URL, and the
// origin.
func (a *app) proxyTo(s *credstore.Store, target string) (path string, to bearer.Origin, err error) {
	p, err := a.placeOf(s, target)
	if err != nil {
		return "", bearer.Origin{}, err
	}
	if p.URL == "" {
		return "", bearer.Origin{}, streams.Usage("the URL of %s is not known, so that there is no place to forward to: sign in with 'spendonce login %s --url URL', or set url of the target in the configuration", target, target)
	}
	to, err = bearer.ParseOrigin(p.URL)
	if err != nil {
		return "", bearer.Origin{}, streams.Usage("nothing can be forwarded to the URL of %s: %w", target, err)
	}
	if u, err := url.Parse(p.URL); err == nil && u.Scheme != "" {
		path = u.EscapedPath()
	}
	return path, to, nil
}

// notBefore is how long nobody may refresh a target.
func notBefore(s *credstore.Store, target string) time.Duration {
	entries, err := s.List()
	if err != nil {
		return 0
	}
	if i := slices.IndexFunc(entries, func(e credstore.Entry) bool { return e.Target == target }); i >= 0 && !entries[i].NotBefore.IsZero() {
		return time.Until(entries[i].NotBefore)
	}
	return 0
}

// proxyReady is the line that says that requests are served.
type proxyReady struct {
	Version    int    `json:"version"`
	Target     string `json:"target"`
	ForwardsTo string `json:"forwards_to"`
	URL        string `json:"url"` // what stands for the target's URL
	Socket     string `json:"socket,omitempty"`
	Secret     string `json:"secret,omitempty"`
	SecretURL  string `json:"secret_url,omitempty"` // URL with the secret before its path
}

func (a *app) printReady(p *localproxy.Proxy, at localproxy.Address, target string, to bearer.Origin, path string) error {
	r := proxyReady{Version: 1, Target: target, ForwardsTo: to.String(), URL: "http://localhost" + path, Socket: at.Socket}
	if at.Socket == "" {
		r.Secret = p.Secret().Reveal()
		r.URL, r.SecretURL = "http://"+p.Host()+path, "http://"+p.Host()+"/"+r.Secret+path
	}
	e := json.NewEncoder(a.Streams.Out)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("what says that the proxy is ready cannot be written: %w", err)
	}
	return nil
}
