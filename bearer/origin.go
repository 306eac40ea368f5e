package bearer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spendonce/spendonce/internal/egress"
)

// ErrNotAnOrigin is wrapped by every refusal of a URL to which no token may
// go, whatever the target.
var ErrNotAnOrigin = errors.New("no token may go there")

// Origin is scheme, host and port (RFC 6454): what a token belongs to. Two
// are the same exactly if they compare equal with ==. The zero Origin is
// none.
type Origin struct{ scheme, host, port string }

// ParseOrigin returns the origin of an absolute URL: https, or http on a
// loopback host (127.0.0.0/8, ::1, localhost). Without a scheme, as in
// "git.example.com:8443", https is meant. Path, query and fragment do not
// matter; a user name or password in the URL is refused. The URL is not part
// of any error: it may hold a password.
func ParseOrigin(raw string) (Origin, error) {
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Origin{}, fmt.Errorf("%w: it is not an absolute URL", ErrNotAnOrigin)
	}
	if u.User != nil {
		return Origin{}, fmt.Errorf("%w: the URL holds a user name or password", ErrNotAnOrigin)
	}
	return OriginOf(u)
}

// OriginOf is [ParseOrigin] of a URL that is parsed already; user information
// in it does not matter.
func OriginOf(u *url.URL) (Origin, error) {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	o := Origin{scheme: strings.ToLower(u.Scheme), host: host, port: u.Port()}
	if addr, err := netip.ParseAddr(host); err == nil {
		o.host = addr.String() // one spelling of an IPv6 address
	}
	switch {
	case u.Opaque != "" || host == "":
		return Origin{}, fmt.Errorf("%w: it is not an absolute URL", ErrNotAnOrigin)
	case strings.ContainsFunc(host, func(r rune) bool { return r <= 0x20 || r >= 0x7f }):
		return Origin{}, fmt.Errorf("%w: its host is not plain ASCII", ErrNotAnOrigin)
	case o.scheme == "https":
		if o.port == "" {
			o.port = "443"
		}
	case o.scheme == "http" && egress.Loopback(host):
		if o.port == "" {
			o.port = "80"
		}
	default:
		return Origin{}, fmt.Errorf("%w: it is neither https nor on a loopback address", ErrNotAnOrigin)
	}
	return o, nil
}

// String returns the origin as a URL without a path, the port only where it
// is not the scheme's own.
func (o Origin) String() string {
	if o == (Origin{}) {
		return ""
	}
	host := o.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if o.scheme == "https" && o.port == "443" || o.scheme == "http" && o.port == "80" {
		return o.scheme + "://" + host
	}
	return o.scheme + "://" + net.JoinHostPort(o.host, o.port)
}

// Loopback reports whether the origin is on this machine.
func (o Origin) Loopback() bool { return egress.Loopback(o.host) }
