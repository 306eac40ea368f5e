//go:build linux

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for one test.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Files are the paths of an authority's certificate, and of a certificate that
// it signed with its key, all as PEM.
type Files struct{ CA, Cert, Key string }

// NewAuthority makes an authority whose files last until the test ends.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir()}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority of a test"},
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	a.cert, a.key = a.sign(t, template)
	writePEM(t, a.path("ca.pem"), "CERTIFICATE", a.cert.Raw)
	return a
}

// Server signs for a member: as a server, and as a client of other members.
func (a *Authority) Server(t testing.TB, name string, addr netip.Addr) Files {
	t.Helper()
	return a.issue(t, name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{addr.AsSlice(), net.IPv4(127, 0, 0, 1)},
	})
}

// Client signs for a client. With passwords required, etcd takes the common
// name for the user of a client that gives no password.
func (a *Authority) Client(t testing.TB, commonName string) Files {
	t.Helper()
	return a.issue(t, "client-"+commonName, &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) issue(t testing.TB, name string, template *x509.Certificate) Files {
	t.Helper()
	cert, key := a.sign(t, template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := Files{CA: a.path("ca.pem"), Cert: a.path(name + ".pem"), Key: a.path(name + ".key")}
	writePEM(t, f.Cert, "CERTIFICATE", cert.Raw)
	writePEM(t, f.Key, "PRIVATE KEY", der)
	return f
}

// sign signs the template, by itself if there is no authority yet.
func (a *Authority) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template.SerialNumber = big.NewInt(now.UnixNano())
	template.NotBefore, template.NotAfter = now.Add(-48*time.Hour), now.Add(48*time.Hour)
	parent, parentKey := a.cert, a.key
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Config is the files as a client in this process uses them.
func (f Files) Config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
