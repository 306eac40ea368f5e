package oauthflow

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spendonce/spendonce/internal/egress"
)

// ErrInsecure is wrapped by every refusal of a URL that is neither https nor
// on a loopback host.
var ErrInsecure = errors.New("not https and not a loopback address")

// CheckEndpoint reports whether a secret may be sent to rawURL: absolute, with
// a host, https (or http for 127.0.0.0/8, ::1 and localhost), without user
// information and fragment. name says in the error whose URL it is. The URL
// itself is not printed: it may hold a password.
func CheckEndpoint(name, rawURL string) error {
	_, err := parseEndpoint(name, rawURL)
	return err
}

func parseEndpoint(name, rawURL string) (*url.URL, error) {
	if rawURL == "" {
		return nil, fmt.Errorf("the %s is not known", name)
	}
	u, err := url.Parse(rawURL)
	switch {
	case strings.ContainsFunc(rawURL, func(r rune) bool { return r < 0x20 || r > 0x7e }):
		// RFC 3986. Such a URL is also printed, and may steer a terminal.
		return nil, fmt.Errorf("the %s holds control or non-ASCII characters: a URL has them only percent-encoded, a host only as xn--", name)
	case err != nil, u.Opaque != "", u.Hostname() == "":
		return nil, fmt.Errorf("the %s is not an absolute URL", name)
	case u.User != nil:
		return nil, fmt.Errorf("the %s holds a user name or password", name)
	case u.Fragment != "" || strings.Contains(rawURL, "#"):
		return nil, fmt.Errorf("the %s has a fragment", name)
	case u.Scheme == "https", u.Scheme == "http" && egress.Loopback(u.Hostname()):
		return u, nil
	}
	return nil, fmt.Errorf("the %s is %w", name, ErrInsecure)
}
