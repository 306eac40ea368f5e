// Package credcmd is how every command of the credential half opens the store and
// knows where a token may go, and holds the commands that only look: token, list,
// store, conformance.
package credcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/refresh"
	"github.com/spendonce/spendonce/internal/cli/streams"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
	"github.com/spendonce/spendonce/oauthflow"
)

// App is what the commands of this half share.
type App struct {
	Streams    *streams.Streams
	StateDir   string // of --state-dir
	ConfigPath string // of --config
	// Arm begins to listen for signals; before, they end the process.
	Arm func()
	// Disarm puts signals back as they were, for a program that takes this
	// one's place.
	Disarm func()
	// Version names this build.
	Version func() string
	// Interrupter is given the store's answer to a signal.
	Interrupter func(interrupt func(cancel func()) bool)
	// Hold: see [credstore.Config].
	Hold func() func()

	// OpenShared, when set, reaches the targets that are kept in etcd.
	OpenShared OpenShared

	Progress *streams.Progress

	configOnce sync.Once
	configRead *config.Config
	configErr  error
}

// Config reads the configuration, once.
func (a *App) Config() (*config.Config, error) {
	a.configOnce.Do(func() {
		path := a.ConfigPath
		if path == "" {
			path = config.DefaultPath()
		} else if _, err := os.Stat(path); err != nil {
			a.configErr = fmt.Errorf("the configuration given by --config cannot be read: %w", err)
			return
		}
		a.configRead, a.configErr = config.Load(path)
	})
	return a.configRead, a.configErr
}

// Commands returns the commands that stand here.
func (a *App) Commands() []*cobra.Command {
	return []*cobra.Command{a.tokenCommand(), a.listCommand(), a.storeCommand(), a.conformanceCommand()}
}

// Open opens the store without reading the configuration: a fresh token
// does not need it.
func (a *App) Open() (*credstore.Store, error) {
	return a.open(a.StoreConfig())
}

func (a *App) open(cfg credstore.Config) (*credstore.Store, error) {
	if a.OpenShared == nil { // none are within reach
		return a.openWith(nil, cfg)
	}
	c, err := a.Config()
	if err != nil {
		return nil, &streams.Exit{Code: 2, Err: err}
	}
	return a.openWith(c, cfg)
}

// openWith opens the store with the targets that the configuration keeps in
// etcd.
func (a *App) openWith(c *config.Config, cfg credstore.Config) (*credstore.Store, error) {
	if c != nil {
		var err error
		if cfg.Shared, err = a.OpenShared(c); err != nil {
			return nil, &streams.Exit{Code: 2, Err: err}
		}
		cfg.StaleAfter = time.Duration(c.Lock.StaleAfter) // bounds the calls of those who only read, too
	}
	s, err := credstore.Open(cfg)
	if err == nil && a.Interrupter != nil {
		a.Interrupter(s.Interrupt)
	}
	return s, err
}

// StoreConfig is how the commands open the store.
func (a *App) StoreConfig() credstore.Config {
	a.Progress = streams.NewProgress(a.Streams)
	return credstore.Config{
		Dir: a.StateDir, Warn: a.Streams.Warn, Stage: a.Progress.Stage, Hold: a.Hold, Keys: a.keys(nil),
		OtherNames: func() []string {
			c, err := a.Config()
			if err != nil {
				return nil
			}
			names := make([]string, 0, len(c.Targets))
			for name := range c.Targets {
				names = append(names, name)
			}
			return names
		},
	}
}

// OpenForChange opens the store for a command that writes, with the lock's
// constant from the configuration.
func (a *App) OpenForChange() (*credstore.Store, error) { return a.openForChangeWith(nil) }

// openForChangeWith opens it with other keys than those of the configuration,
// if there are any.
func (a *App) openForChangeWith(by credstore.Keys) (*credstore.Store, error) {
	a.Arm()
	c, err := a.Config()
	if err != nil {
		return nil, &streams.Exit{Code: 2, Err: err}
	}
	cfg := a.changing(c)
	if by != nil {
		cfg.Keys = by
	}
	if cfg.StaleAfter > 0 && cfg.StaleAfter < lockfile.DefaultStaleAfter {
		for name, t := range c.Targets {
			if t.LockScope == "store" || t.LockScope == "" && t.Dialect == string(oauthflow.Hypaware) {
				return nil, streams.Usage("stale_after is %s and target %s shares the store with other programs by the constant %s: raise it, or set lock_scope \"target\"",
					cfg.StaleAfter, name, lockfile.DefaultStaleAfter)
			}
		}
	}
	return a.open(cfg)
}

// changing is how a command opens the store that writes.
func (a *App) changing(c *config.Config) credstore.Config {
	cfg := a.StoreConfig()
	cfg.StaleAfter = time.Duration(c.Lock.StaleAfter)
	return cfg
}

// Source returns the source of a target, talking to its server when it must.
func (a *App) Source(s *credstore.Store, target string) (*credstore.Source, error) {
	return s.Source(credstore.SourceConfig{
		Target: target,
		Settings: func() (credstore.Settings, error) {
			a.Arm() // a lock is about to be taken
			return a.Settings(target)
		},
		Exchange: refresh.Exchange(nil), Register: refresh.Register(nil), Revoke: refresh.Revoke(nil),
	})
}

// Settings is what the configuration says of a target.
func (a *App) Settings(target string) (credstore.Settings, error) {
	c, err := a.Config()
	if err != nil {
		return credstore.Settings{}, err
	}
	t := c.Targets[target]
	if t.Store == config.StoreEtcd && a.OpenShared == nil {
		return credstore.Settings{}, ErrElsewhere
	}
	set := credstore.Settings{
		URL: t.URL, Scope: credstore.Scope(t.LockScope), RefreshScope: t.RefreshScope, StaleAfter: time.Duration(c.Lock.StaleAfter),
		Pin: credstore.Pin{
			Issuer: t.Issuer, TokenEndpoint: t.TokenEndpoint, AuthorizationEndpoint: t.AuthorizationEndpoint,
			RevocationEndpoint: t.RevocationEndpoint, ClientID: t.ClientID, Resource: t.Resource, Dialect: t.Dialect,
		},
	}
	if t.Resource == NoResource {
		set.Pin.Resource = ""
	}
	if set.Pin.TokenEndpoint == "" && t.Dialect == string(oauthflow.Hypaware) {
		if set.Pin.TokenEndpoint, err = HypawareEndpoint(t); err != nil {
			return credstore.Settings{}, fmt.Errorf("target %s: %w", target, err)
		}
	}
	return set, nil
}

// HypawareEndpoint is where that dialect's servers answer, by convention.
func HypawareEndpoint(t config.Target) (string, error) {
	base := t.Issuer
	if base == "" {
		base = t.URL
	}
	origin, err := originOf(base)
	if err != nil {
		return "", err
	}
	return origin + "/v1/identity/token", nil
}

func originOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return "", errors.New("the target needs an absolute url or issuer")
	}
	return u.Scheme + "://" + u.Host, nil
}

// ReadSecret reads a token from a file, or from standard input for "-".
func (a *App) ReadSecret(ctx context.Context, flag, path string) (secret.Secret, error) {
	const limit = 1 << 20
	in := a.Streams.In
	if path != "-" {
		f, err := OpenFile(ctx, path)
		if ctx.Err() != nil {
			return secret.Secret{}, context.Cause(ctx)
		}
		if err != nil {
			return secret.Secret{}, streams.Usage("%s: %w", flag, err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := readAll(ctx, io.LimitReader(in, limit+1))
	if ctx.Err() != nil {
		return secret.Secret{}, context.Cause(ctx)
	}
	if err != nil {
		return secret.Secret{}, streams.Usage("%s: reading %s: %w", flag, path, err)
	}
	text := strings.TrimSpace(string(b))
	switch {
	case len(b) > limit:
		return secret.Secret{}, streams.Usage("%s: %s is larger than 1 MiB", flag, path)
	case text == "":
		return secret.Secret{}, streams.Usage("%s: %s holds no token", flag, path)
	case strings.ContainsFunc(text, func(r rune) bool { return r < 0x21 || r > 0x7e }):
		return secret.Secret{}, streams.Usage("%s: %s holds white space, control or non-ASCII characters inside the token", flag, path)
	}
	return secret.New(text), nil
}

// OpenFile opens a file until ctx ends: a pipe that nobody writes to opens for
// nobody.
func OpenFile(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readAll reads until the end or until ctx ends, for a person may be at the
// other side.
func readAll(ctx context.Context, in io.Reader) (b []byte, err error) {
	done := make(chan struct{})
	var got []byte
	var readErr error
	go func() {
		defer close(done)
		got, readErr = io.ReadAll(in)
	}()
	select {
	case <-done:
		return got, readErr
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// CloseStore waits for what was begun.
func CloseStore(s *credstore.Store) { _ = s.Close(context.Background()) }

// TargetArg demands one argument, a target.
func TargetArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return streams.Usage("%s which target: see 'spendonce list' and '%s --help'", what, cmd.CommandPath())
		case 1:
			return nil
		default:
			return streams.Usage("one target at a time: see '%s --help'", cmd.CommandPath())
		}
	}
}

// CompleteTargets offers the names that are stored or configured. Those that
// are kept in etcd are configured, and nobody is asked over the network.
func (a *App) CompleteTargets(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	cfg := a.StoreConfig()
	cfg.Keys = quietKeys{cfg.Keys}
	if s, err := credstore.Open(cfg); err == nil {
		if entries, err := s.List(); err == nil {
			for _, e := range entries {
				if e.Usable {
					names = append(names, e.Target)
				}
			}
		}
	}
	if c, err := a.Config(); err == nil {
		for name := range c.Targets {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// Say tells the person at the terminal what was done.
func (a *App) Say(format string, args ...any) {
	if !a.Streams.Quiet {
		fmt.Fprintf(a.Streams.Err, format+"\n", args...)
	}
}

// NoResource in the place of a resource: none is ever sent.
const NoResource = "none"
