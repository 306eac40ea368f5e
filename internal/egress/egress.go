// Package egress is how requests leave this machine: by the proxy of the
// environment, and never by a proxy or a resolver to this machine itself.
// Everything that connects asks it, so that discovery, registration, token
// requests, revocation and the resource's own requests all go the same way.
package egress

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Loopback reports whether host is this machine: 127.0.0.0/8, ::1 or
// localhost. It takes only spellings that no resolver decides about: 127.1
// and the like are names.
func Loopback(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && !addr.Is4In6() && addr.IsLoopback()
}

// Proxy makes the Proxy of an [http.Transport]. choose names the proxy of a
// URL; nil is that of the environment (HTTPS_PROXY, NO_PROXY). Neither is
// asked about a loopback host.
func Proxy(choose func(*url.URL) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(req *http.Request) (*url.URL, error) {
		switch {
		case Loopback(req.URL.Hostname()):
			return nil, nil //nolint:nilnil // net/http's way of saying: none
		case choose != nil:
			return choose(req.URL)
		}
		return http.ProxyFromEnvironment(req)
	}
}

// Dial connects by d, and lets no resolver answer for localhost: plain http
// goes there.
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if !Loopback(host) || net.ParseIP(host) != nil {
		return d.DialContext(ctx, network, address)
	}
	conn, err := d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err == nil {
		return conn, nil
	}
	if conn, err6 := d.DialContext(ctx, network, net.JoinHostPort("::1", port)); err6 == nil {
		return conn, nil
	}
	return nil, err
}
