// Package config reads the user's configuration. It never writes it: the file
// is the user's, and a library that rewrites TOML loses their comments.
//
//	[targets.example]
//	url       = "https://mcp.example.com"
//	issuer    = "https://login.example.com"
//	client_id = "abc"
//	scopes    = ["read", "offline_access"]
//
//	[lock]
//	stale_after = "60s"
//
//	[store]
//	key = "keyring" # or "age:/home/me/.config/age/key.txt"
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// maxSize bounds what is read of the file.
const maxSize = 1 << 20

// Config is the whole file; a missing file is an empty one.
type Config struct {
	Path    string            `toml:"-"`
	Targets map[string]Target `toml:"targets"`
	Lock    Lock              `toml:"lock"`
	Store   Store             `toml:"store"`
	Etcd    Etcd              `toml:"etcd"`
}

// Etcd is the cluster in which the targets with store = "etcd" are kept.
// Paths are absolute.
type Etcd struct {
	Endpoints []string `toml:"endpoints"` // client URLs of its members
	Prefix    string   `toml:"prefix"`    // of all keys; "" is /spendonce/
	CA        string   `toml:"ca"`        // PEM file of the authority that signed the members' certificates
	Cert      string   `toml:"cert"`      // PEM files of the client certificate
	Key       string   `toml:"key"`
	Username  string   `toml:"username"`
	// PasswordFile holds the password and nothing else.
	PasswordFile string `toml:"password_file"`
	// Identity is the file of the age identity that opens the values; "" is
	// that of the store's key.
	Identity string `toml:"identity"`
	// Recipients are further age recipients that can open them: those of the
	// other machines.
	Recipients []string `toml:"recipients"`
}

// StoreEtcd, as [Target.Store], keeps the target in etcd.
const StoreEtcd = "etcd"

// SharedTargets are the names of the targets that are kept in etcd, in order.
func (c *Config) SharedTargets() []string {
	var names []string
	for name, t := range c.Targets {
		if t.Store == StoreEtcd {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// EtcdIdentity is the path of the age identity that opens the values in etcd;
// "" if none is configured.
func (c *Config) EtcdIdentity() string {
	if c.Etcd.Identity != "" {
		return c.Etcd.Identity
	}
	path, _ := strings.CutPrefix(c.Store.Key, "age:")
	if path == c.Store.Key {
		return ""
	}
	return path
}

// Store says how the store is kept.
type Store struct {
	// Key protects the store at rest: "" (nothing but the file's mode),
	// "keyring" (the Secret Service), or "age:" and the absolute path of an
	// identity file.
	Key string `toml:"key"`
	// Recipients are further age recipients that can open the store.
	Recipients []string `toml:"recipients"`
}

// Target is one remote service. Empty members are not configured.
type Target struct {
	URL                   string   `toml:"url"`
	Hosts                 []string `toml:"hosts"`    // further origins that may get the token
	Username              string   `toml:"username"` // beside the token, for git and docker
	Issuer                string   `toml:"issuer"`
	TokenEndpoint         string   `toml:"token_endpoint"`
	AuthorizationEndpoint string   `toml:"authorization_endpoint"`
	RevocationEndpoint    string   `toml:"revocation_endpoint"`
	ClientID              string   `toml:"client_id"`
	Scopes                []string `toml:"scopes"`
	RefreshScope          bool     `toml:"refresh_scope"` // send the granted scope with each refresh
	Resource              string   `toml:"resource"`      // RFC 8707; "none": never sent
	Dialect               string   `toml:"dialect"`       // "oauth2" (default) or "hypaware"
	LockScope             string   `toml:"lock_scope"`    // "target" (default) or "store"
	Store                 string   `toml:"store"`         // "file" (default) or "etcd"
}

// Lock holds the lock's one constant.
type Lock struct {
	StaleAfter Duration `toml:"stale_after"`
}

// Duration is written as Go writes one: "90s", "2m".
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is no duration like \"60s\"", text)
	}
	if v <= 0 {
		return fmt.Errorf("%.40q is not positive", text)
	}
	*d = Duration(v)
	return nil
}

// DefaultPath is $XDG_CONFIG_HOME/spendonce/config.toml, else below
// ~/.config. It is "" if the environment names neither.
func DefaultPath() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "spendonce", "config.toml")
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "spendonce", "config.toml")
	}
	return ""
}

// Load reads the file at path. Unknown keys are errors: a misspelt endpoint
// must not be a silent default. Errors name the path and the line and never
// quote a value.
func Load(path string) (*Config, error) {
	c := &Config{Path: path}
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	if len(b) > maxSize {
		return nil, fmt.Errorf("the configuration %s is larger than 1 MiB", path)
	}
	if err := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields().Decode(c); err != nil {
		return nil, describe(path, err)
	}
	if err := c.Store.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := c.checkEtcd(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, t := range c.Targets {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("%s: target %.80q: %w", path, name, err)
		}
	}
	return c, nil
}

func describe(path string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		row, _ := strict.Errors[0].Position()
		return fmt.Errorf("%s:%d: unknown key %q", path, row, strict.Errors[0].Key())
	}
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		row, column := syntax.Position()
		return fmt.Errorf("%s:%d:%d: %s", path, row, column, syntax.Error())
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (s Store) check() error {
	identity, age := strings.CutPrefix(s.Key, "age:")
	switch {
	case s.Key == "" || s.Key == "keyring":
	case !age:
		return errors.New("the store's key is neither \"keyring\" nor \"age:IDENTITY-FILE\"")
	case !filepath.IsAbs(identity):
		return errors.New("the age identity file of the store's key is not an absolute path")
	}
	if len(s.Recipients) > 0 && !age {
		return errors.New("the store has recipients and no age key")
	}
	return nil
}

func (c *Config) checkEtcd() error {
	e := c.Etcd
	for _, f := range []struct{ name, path string }{{"ca", e.CA}, {"cert", e.Cert}, {"key", e.Key}, {"password_file", e.PasswordFile}, {"identity", e.Identity}} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return fmt.Errorf("%s of [etcd] is not an absolute path", f.name)
		}
	}
	switch {
	case (e.Cert == "") != (e.Key == ""):
		return errors.New("[etcd] has only one of cert and key")
	case (e.Username == "") != (e.PasswordFile == ""):
		return errors.New("[etcd] has only one of username and password_file")
	case e.Prefix != "" && (!strings.HasPrefix(e.Prefix, "/") || strings.ContainsFunc(e.Prefix, func(r rune) bool { return r <= 0x20 || r > 0x7e })):
		return errors.New("prefix of [etcd] does not begin with \"/\", or holds white space or non-ASCII characters")
	}
	if shared := c.SharedTargets(); len(shared) > 0 {
		switch {
		case len(e.Endpoints) == 0:
			return fmt.Errorf("target %.80q is kept in etcd and [etcd] names no endpoints", shared[0])
		case c.EtcdIdentity() == "":
			return fmt.Errorf("target %.80q is kept in etcd and there is no age identity to open it with: name its file as identity under [etcd], or as key = \"age:FILE\" under [store] (age-keygen -o FILE makes one)", shared[0])
		}
	}
	return nil
}

func (t Target) check() error {
	switch t.Store {
	case "", "file":
	case StoreEtcd:
		if t.Dialect == "hypaware" || t.LockScope == "store" {
			return errors.New("it shares its record with programs that read this machine's file only, so it cannot be kept in etcd")
		}
	default:
		return fmt.Errorf("store %.40q is neither \"file\" nor \"etcd\"", t.Store)
	}
	if strings.ContainsFunc(t.Username, func(r rune) bool { return r < 0x21 || r > 0x7e || r == ':' }) {
		return errors.New("username holds a colon, white space, control or non-ASCII characters")
	}
	switch t.Dialect {
	case "", "oauth2", "hypaware":
	default:
		return fmt.Errorf("dialect %.40q is neither \"oauth2\" nor \"hypaware\"", t.Dialect)
	}
	switch t.LockScope {
	case "", "target", "store":
	default:
		return fmt.Errorf("lock_scope %.40q is neither \"target\" nor \"store\"", t.LockScope)
	}
	return nil
}
