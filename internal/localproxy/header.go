package localproxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spendonce/spendonce/bearer"
)

// holds reports whether a text has the secret in it.
func (d door) holds(text string) bool {
	return !d.secret.Empty() && strings.Contains(text, d.secret.Reveal())
}

// clean takes out of a request's header what is this proxy's business and not
// the target's. Hop-by-hop fields are gone already.
func (d door) clean(h http.Header) {
	for name, values := range h {
		switch {
		case strings.EqualFold(name, "Authorization"), // the token takes its place
			name == "Origin", // ours, which the target does not know
			name == "Forwarded", strings.HasPrefix(name, "X-Forwarded-"):
			delete(h, name)
		case name == "Referer" && d.host != "" && strings.HasPrefix(values[0], "http://"+d.host),
			slices.ContainsFunc(values, d.holds):
			delete(h, name)
		}
	}
}

// cleanAnswer takes out of an answer's header what would let somebody else
// read it, or lead the client past this proxy.
func cleanAnswer(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") || name == "Alt-Svc" || name == "Timing-Allow-Origin" {
			delete(h, name)
		}
	}
}

// relocate returns the Location that a client of this proxy is told: a path
// here for one at the target's origin, so that the client follows it with
// the proxy and without a token of its own, and what it was for any other. A
// path that could be read as a host stays at the target.
func relocate(location string, asked *url.URL, to bearer.Origin, prefix string) string {
	ref, err := url.Parse(location)
	if err != nil {
		return location
	}
	there := asked.ResolveReference(ref)
	origin, err := bearer.OriginOf(there)
	if err != nil || origin != to || there.User != nil {
		if ref.Scheme == "" && ref.Host != "" {
			return there.String() // "//host/path": not by our scheme
		}
		return location
	}
	if strings.HasPrefix(there.EscapedPath(), "//") {
		return there.String()
	}
	local := url.URL{Path: there.Path, RawPath: there.RawPath, RawQuery: there.RawQuery, ForceQuery: there.ForceQuery, Fragment: there.Fragment, RawFragment: there.RawFragment}
	if local.Path == "" {
		local.Path = "/"
	}
	return prefix + local.String()
}
