// Package etcdtargets makes, of the user's configuration, the store on etcd
// that some targets are kept in. Only the program that reaches etcd links it.
package etcdtargets

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/credstore/keys"
	"github.com/spendonce/spendonce/etcdstore"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/internal/secret"
)

// Open returns the targets that the configuration keeps in etcd, nil if there
// are none. Nothing is sent yet.
func Open(c *config.Config) (*credstore.SharedTargets, error) {
	names := c.SharedTargets()
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // as said above
	}
	cfg := etcdstore.Config{Endpoints: c.Etcd.Endpoints, Prefix: c.Etcd.Prefix, Username: c.Etcd.Username}
	var err error
	if cfg.TLS, err = tlsConfig(c.Etcd); err != nil {
		return nil, err
	}
	if c.Etcd.PasswordFile != "" {
		if cfg.Password, err = readPassword(c.Etcd.PasswordFile); err != nil {
			return nil, err
		}
	}
	in, err := etcdstore.Open(cfg)
	if err != nil {
		return nil, err
	}
	by := keys.Config{Key: "age:" + c.EtcdIdentity(), Recipients: c.Etcd.Recipients}
	return &credstore.SharedTargets{
		Names: names, In: in,
		Keys: &keys.Keys{Config: func() (keys.Config, error) { return by, nil }},
	}, nil
}

// maxFile bounds what is read of a certificate, a key or a password.
const maxFile = 1 << 20

func read(what, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the %s of [etcd] cannot be read: %w", what, err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the %s of [etcd] cannot be read: %w", what, err)
	case len(b) > maxFile:
		return nil, fmt.Errorf("the %s of [etcd], %s, is larger than 1 MiB", what, path)
	}
	return b, nil
}

// tlsConfig is nil where nothing is configured: then the system's authorities
// are trusted.
func tlsConfig(e config.Etcd) (*tls.Config, error) {
	if e.CA == "" && e.Cert == "" {
		return nil, nil //nolint:nilnil // as said above
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CA != "" {
		b, err := read("ca", e.CA)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("the ca of [etcd], %s, holds no certificate in PEM", e.CA)
		}
	}
	if e.Cert != "" {
		cert, err := read("cert", e.Cert)
		if err != nil {
			return nil, err
		}
		key, err := read("key", e.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil { // its words may tell of the key
			return nil, fmt.Errorf("cert and key of [etcd], %s and %s, are no certificate and key in PEM that belong together", e.Cert, e.Key)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func readPassword(path string) (secret.Secret, error) {
	b, err := read("password_file", path)
	if err != nil {
		return secret.Secret{}, err
	}
	text := strings.TrimRight(string(b), "\r\n")
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return secret.Secret{}, errors.New("the password_file of [etcd] is empty, or holds more than one line")
	}
	return secret.New(text), nil
}
