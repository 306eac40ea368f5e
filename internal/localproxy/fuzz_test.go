package localproxy_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/localproxy"
	"github.com/spendonce/spendonce/internal/secret"
)

// FuzzJudge: whatever bytes come, what is let in has shown the secret for our
// address, not from another page, and is sent on as a part of what came,
// without the secret.
func FuzzJudge(f *testing.F) {
	const host, key = "127.0.0.1:8080", "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
	for _, head := range []string{
		"GET /x HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + key + "\r\n\r\n",
		"GET /" + key + "/x?y HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
		"GET /" + key + "//evil/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
		"GET http://" + host + "/" + key + "/x HTTP/1.1\r\nHost: evil\r\n\r\n",
		"CONNECT evil:1 HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + key + "\r\n\r\n",
		"GET /" + key + " HTTP/1.1\r\nHost: " + host + "\r\nOrigin: http://evil\r\n\r\n",
		"GET /" + key + "?a HTTP/1.1\r\nHost: " + host + "\r\nOrigin: http://" + host + "\r\nSec-Fetch-Site: none\r\n\r\n",
		"GET /%2F" + key + "/\\ HTTP/1.0\r\n\r\n",
	} {
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, head string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil {
			return
		}
		sentOn, status := localproxy.Judge(host, secret.New(key), r)
		if status != 0 {
			if sentOn != "" || status < 400 || status > 501 {
				t.Errorf("refused with %d and %q", status, sentOn)
			}
			return
		}
		switch {
		case r.Host != host:
			t.Errorf("for %q", r.Host)
		case !strings.Contains(head, key):
			t.Error("without the secret")
		case strings.Contains(sentOn, key):
			t.Error("the secret is sent on")
		case !strings.HasPrefix(sentOn, "/") || strings.HasPrefix(sentOn, "//") || strings.ContainsAny(sentOn, "\\ \r\n\t"):
			t.Errorf("sent on as %q", sentOn)
		case !strings.HasSuffix("/"+strings.TrimPrefix(r.RequestURI, "/"+key), sentOn) && r.RequestURI != sentOn:
			t.Errorf("%q is sent on as %q", r.RequestURI, sentOn)
		case r.Method == http.MethodConnect:
			t.Error("a tunnel")
		}
		for _, origin := range r.Header["Origin"] {
			if origin != "http://"+host {
				t.Errorf("from a page of %q", origin)
			}
		}
	})
}
