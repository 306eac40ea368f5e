package requestcmd

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/spendonce/spendonce/bearer"
)

var (
	errNoPath     = errors.New("an empty address: give a path such as / or an absolute URL")
	errSpelling   = errors.New("an address with a backslash, a space or a control character: percent-encode it")
	errTwoSlashes = errors.New("a path that begins with two slashes would name another host: give one slash, or an absolute URL")
	errColon      = errors.New("neither a path nor a URL of http or https: write ./ before a path whose first part has a colon")
	errUnparsed   = errors.New("an address that cannot be read as a URL")
	errNotItsOwn  = errors.New("an address that leads to another origin")
)

// requestURL is where a request goes: an absolute URL with one of the origins
// as it stands; a path with a slash before it on the origin of base; another
// path below base. What it returns has one of the origins, that of base for
// a path, and no user name. No error holds any part of the address.
func requestURL(base string, origins []bearer.Origin, address string) (*url.URL, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	absolute := strings.HasPrefix(rest, "//") && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
	first := address
	if i := strings.IndexAny(first, "/?#"); i >= 0 {
		first = first[:i]
	}
	switch {
	case address == "":
		return nil, errNoPath
	case strings.ContainsFunc(address, func(r rune) bool { return r <= 0x20 || r == 0x7f || r == '\\' }):
		return nil, errSpelling
	case strings.HasPrefix(address, "//"):
		return nil, errTwoSlashes
	case !absolute && strings.Contains(first, ":"):
		return nil, errColon
	}
	if !strings.Contains(base, "://") {
		base = "https://" + base
	}
	from, err := url.Parse(base)
	if err != nil {
		return nil, errUnparsed
	}
	to, err := url.Parse(address)
	if err != nil {
		return nil, errUnparsed
	}
	if absolute {
		if to.User != nil {
			return nil, bearer.ErrNotAnOrigin
		}
	} else {
		from.RawQuery, from.ForceQuery = "", false
		if from.Path == "" || !strings.HasSuffix(from.Path, "/") {
			from.Path += "/"
			if from.RawPath != "" {
				from.RawPath += "/"
			}
		}
		own, err := bearer.ParseOrigin(base)
		if err != nil {
			return nil, err
		}
		origins = []bearer.Origin{own}
		to = from.ResolveReference(to)
	}
	to.Fragment, to.RawFragment = "", ""
	o, err := bearer.OriginOf(to)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(origins, o) || to.User != nil:
		return nil, errNotItsOwn
	}
	return to, nil
}
