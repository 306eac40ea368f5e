package localproxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/spendonce/spendonce/internal/secret"
)

// door is what a request must show to be let in.
type door struct {
	host   string        // the Host of TCP, "127.0.0.1:8080"; "" on a Unix socket
	secret secret.Secret // of TCP
}

// admission is a request that was let in.
type admission struct {
	prefix string   // "/SECRET" if it came that way, else ""
	path   *url.URL // what is asked of the target: path and query, as they came
}

// judge decides whether a request is let in, by its head alone. What it lets
// in has a path that is sent on byte for byte.
func (d door) judge(r *http.Request) (admission, *refusal) {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return admission{}, refuse(http.StatusMethodNotAllowed, "method", r.Method+" is not forwarded")
	case !strings.HasPrefix(r.RequestURI, "/"):
		// An absolute one would be asked of a forward proxy, and its host
		// would stand in for the Host that is judged below.
		return admission{}, refuse(http.StatusBadRequest, "request_target", "the request target must begin with a slash: this is no forward proxy")
	}
	if d.host != "" {
		if no := d.foreign(r); no != nil {
			return admission{}, no
		}
	} else if len(r.Header["Origin"]) > 0 {
		return admission{}, refuse(http.StatusForbidden, "origin", "a request with an Origin header comes from a web page, and none may use this socket")
	}
	prefix, rest, no := d.enter(r)
	if no != nil {
		return admission{}, no
	}
	if upgrade := r.Header.Get("Upgrade"); upgrade != "" && !strings.EqualFold(upgrade, "h2c") {
		return admission{}, refuse(http.StatusNotImplemented, "upgrade", "changing to another protocol, such as WebSocket, is not forwarded")
	}
	path, no := d.path(rest)
	return admission{prefix: prefix, path: path}, no
}

// foreign refuses what a web page may have caused: by a name that resolves to
// this machine (DNS rebinding) or by our address.
func (d door) foreign(r *http.Request) *refusal {
	if r.Host != d.host && r.Host+":80" != d.host {
		return refuse(http.StatusMisdirectedRequest, "host", "the Host of a request must be "+d.host)
	}
	for _, origin := range r.Header["Origin"] {
		if origin != "http://"+r.Host {
			return refuse(http.StatusForbidden, "origin", "no web page of another origin may use this proxy")
		}
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" {
			return refuse(http.StatusForbidden, "origin", "no web page of another origin may use this proxy")
		}
	}
	return nil
}

// enter asks for the secret, in the header or before the path, and returns
// what is left of the request target.
func (d door) enter(r *http.Request) (prefix, rest string, no *refusal) {
	if d.host == "" {
		return "", r.RequestURI, nil
	}
	if given := r.Header["Authorization"]; len(given) == 1 {
		scheme, value, _ := strings.Cut(given[0], " ")
		if strings.EqualFold(scheme, "Bearer") && d.secret.Equal(secret.New(strings.Trim(value, " "))) {
			return "", r.RequestURI, nil
		}
	}
	first, rest := r.RequestURI[1:], ""
	if i := strings.IndexAny(first, "/?"); i >= 0 {
		first, rest = first[:i], first[i:]
	}
	if !d.secret.Equal(secret.New(first)) {
		return "", "", refuse(http.StatusUnauthorized, "secret", "the secret of this proxy is missing or wrong: it was printed when the proxy started, and goes into 'Authorization: Bearer SECRET' or before the path, as /SECRET/path")
	}
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	return "/" + first, rest, nil
}

// path reads a request target so that it is written again as it came.
func (d door) path(target string) (*url.URL, *refusal) {
	u, err := url.ParseRequestURI(target)
	switch {
	case err != nil || u.Host != "" || u.Opaque != "" || u.RequestURI() != target:
		return nil, refuse(http.StatusBadRequest, "request_target", "the path has characters that must be percent-encoded")
	case strings.HasPrefix(target, "//"):
		return nil, refuse(http.StatusBadRequest, "request_target", "a path that begins with two slashes could be read as another host")
	case strings.ContainsRune(target, '\\'):
		return nil, refuse(http.StatusBadRequest, "request_target", "a backslash must be percent-encoded")
	case d.holds(target):
		return nil, refuse(http.StatusBadRequest, "request_target", "the secret of this proxy stands in the path or query a second time, and must not be sent on")
	}
	return u, nil
}
