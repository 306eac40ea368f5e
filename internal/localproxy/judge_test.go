package localproxy_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestOnlyARequestWithTheSecretForOurAddressIsLetInOnTCP(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			s := newSite(t, options{address: address}, ok)
			secret, host := s.proxy.Secret().Reveal(), s.proxy.Host()
			port := host[strings.LastIndex(host, ":"):]
			other := strings.Repeat("A", len(secret))
			with := "Authorization: Bearer " + secret + "\r\n"
			for _, c := range []struct {
				name, target, host, header string
				status                     int
				word                       string
			}{
				{"with the secret", "/x", host, with, 200, ""},
				{"with the scheme in other letters", "/x", host, "authorization: bearer " + secret + "\r\n", 200, ""},
				{"with the secret before the path", "/" + secret + "/x", host, "", 200, ""},
				{"with it as the whole path", "/" + secret, host, "", 200, ""},
				{"with it and a query", "/" + secret + "?a=b", host, "", 200, ""},
				{"with it before the path and a key of the client's own", "/" + secret + "/x", host, "Authorization: Bearer dummy\r\n", 200, ""},
				{"from a page of its own", "/x", host, with + "Origin: http://" + host + "\r\nSec-Fetch-Site: same-origin\r\n", 200, ""},

				{"without the secret", "/x", host, "", 401, "secret"},
				{"with another secret", "/x", host, "Authorization: Bearer " + other + "\r\n", 401, "secret"},
				{"with another secret before the path", "/" + other + "/x", host, "", 401, "secret"},
				{"with the beginning of the secret", "/x", host, "Authorization: Bearer " + secret[:20] + "\r\n", 401, "secret"},
				{"with more than the secret", "/" + secret + "x/x", host, "", 401, "secret"},
				{"with an empty secret", "/x", host, "Authorization: Bearer \r\n", 401, "secret"},
				{"with two", "/x", host, with + with, 401, "secret"},
				{"with another scheme", "/x", host, "Authorization: Basic " + secret + "\r\n", 401, "secret"},
				{"with it behind the path", "/x/" + secret, host, "", 401, "secret"},
				{"with it in the query", "/x?" + secret, host, "", 401, "secret"},
				{"with it percent-encoded", "/%" + strings.ToUpper(hex(secret[0])) + secret[1:] + "/x", host, "", 401, "secret"},
				{"with two slashes before it", "//" + secret + "/x", host, "", 401, "secret"},

				{"for a name that resolves to us", "/x", "rebound.example" + port, with, 421, "host"},
				{"for localhost", "/x", "localhost" + port, with, 421, "host"},
				{"for another spelling", "/x", "127.1" + port, with, 421, "host"},
				{"for another port", "/x", strings.TrimSuffix(host, port) + ":1", with, 421, "host"},
				{"for no port", "/x", strings.TrimSuffix(host, port), with, 421, "host"},
				{"for a name before ours", "/x", "me@" + host, with, 400, ""},
				{"for nobody", "/x", "", with, 421, "host"},

				{"from another page", "/x", host, with + "Origin: https://evil.example\r\n", 403, "origin"},
				{"from our port by https", "/x", host, with + "Origin: https://" + host + "\r\n", 403, "origin"},
				{"from a page without an origin", "/x", host, with + "Origin: null\r\n", 403, "origin"},
				{"from two", "/x", host, with + "Origin: http://" + host + "\r\nOrigin: https://evil.example\r\n", 403, "origin"},
				{"by an image of another site", "/" + secret + "/x", host, "Sec-Fetch-Site: cross-site\r\n", 403, "origin"},
				{"from another port of this machine", "/" + secret + "/x", host, "Sec-Fetch-Site: same-site\r\n", 403, "origin"},

				{"for an absolute URL of ours", "http://" + host + "/x", host, with, 400, "request_target"},
				{"for an absolute URL of others", "http://evil.example/x", host, with, 400, "request_target"},
				{"for https of others", "https://evil.example/x", host, with, 400, "request_target"},
				{"for two slashes", "//evil.example/x", host, with, 400, "request_target"},
				{"for two slashes behind the secret", "/" + secret + "//evil.example/x", host, "", 400, "request_target"},
				{"for a backslash", `/\evil.example/x`, host, with, 400, "request_target"},
				{"for a path that would be written in another way", "/a%2Fb|c", host, with, 400, "request_target"},
				{"for the secret in the path", "/" + secret + "/" + secret, host, "", 400, "request_target"},
				{"for the secret in the query", "/x?" + secret, host, with, 400, "request_target"},
				{"for another protocol", "/x", host, with + "Connection: upgrade\r\nUpgrade: websocket\r\n", 501, "upgrade"},
				{"for a better HTTP, which may be ignored", "/x", host, with + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 200, ""},
			} {
				t.Run(c.name, func(t *testing.T) {
					before := s.source.requests()
					resp := s.raw("GET " + c.target + " HTTP/1.1\r\nHost: " + c.host + "\r\nConnection: close\r\n" + c.header + "\r\n")
					if resp.StatusCode != c.status || resp.Header.Get("Spendonce-Error") != c.word {
						t.Errorf("answered %s %q", resp.Status, resp.Header.Get("Spendonce-Error"))
					}
					if asked := s.source.requests() > before; asked != (c.status == 200) {
						t.Errorf("the store was asked for a token: %v", asked)
					}
					for name := range resp.Header {
						if strings.HasPrefix(name, "Access-Control-") {
							t.Errorf("the answer has %s", name)
						}
					}
				})
			}
			for _, text := range []string{
				"CONNECT evil.example:443 HTTP/1.1\r\nHost: " + host + "\r\n" + with + "\r\n",
				"CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n" + with + "\r\n",
				"TRACE /x HTTP/1.1\r\nHost: " + host + "\r\n" + with + "\r\n",
			} {
				if resp := s.raw(text); resp.StatusCode != http.StatusMethodNotAllowed {
					t.Errorf("%q was answered %s", text[:7], resp.Status)
				}
			}
			for _, text := range []string{
				"OPTIONS * HTTP/1.1\r\nHost: " + host + "\r\n" + with + "\r\n",
				"GET /x HTTP/1.1\r\nHost: " + host + "\r\nHost: evil.example\r\n" + with + "\r\n",
				"GET /x HTTP/1.1\r\n" + with + "\r\n",
			} {
				if resp := s.raw(text); resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%q was answered %s", text[:9], resp.Status)
				}
			}
		})
	}
}

func hex(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

func TestAPreflightOfAPageIsRefusedAndAllowsNothing(t *testing.T) {
	s := newSite(t, options{}, ok)
	resp := s.raw("OPTIONS /x HTTP/1.1\r\nHost: " + s.proxy.Host() + "\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: authorization\r\n\r\n")
	if resp.StatusCode != http.StatusForbidden || len(resp.Header.Values("Access-Control-Allow-Origin")) > 0 {
		t.Errorf("answered %s with %v", resp.Status, resp.Header)
	}
}

func TestEachProxyHasASecretOfItsOwn(t *testing.T) {
	a, b := newSite(t, options{}, ok), newSite(t, options{}, ok)
	if a.proxy.Secret().Equal(b.proxy.Secret()) || len(a.proxy.Secret().Reveal()) < 43 {
		t.Error("two proxies have the same secret, or one of less than 256 bits")
	}
}

func TestAPathIsSentOnByteForByte(t *testing.T) {
	s := newSite(t, options{}, ok)
	secret := s.proxy.Secret().Reveal()
	for _, target := range []string{
		"/", "/?", "/x", "/x/", "/a//b", "/a/../b", "/..", "/./x", "/a%2Fb", "/a%2fb/%2e%2e/c", "/%00", "/%5Cx", "/a;b=c", "/a:b", "/:x",
		"/x?a=b;c=d", "/x?a=%zz&&b", "/x??", "/?u=http://evil.example/", "/%E2%82%AC", "/a+b%20c", "/x?q=%2F..%2F",
	} {
		for _, prefix := range []string{"", "/" + secret} {
			header := ""
			if prefix == "" {
				header = "Authorization: Bearer " + secret + "\r\n"
			}
			before := len(s.seen())
			resp := s.raw("GET " + prefix + target + " HTTP/1.1\r\nHost: " + s.proxy.Host() + "\r\n" + header + "\r\n")
			seen := s.seen()
			if resp.StatusCode != http.StatusOK || len(seen) != before+1 {
				t.Errorf("%s was answered %s", target, resp.Status)
				continue
			}
			if got := seen[before]; got.RequestURI != target || "http://"+got.Host != s.upstream.URL {
				t.Errorf("%s arrived as %s at %s", target, got.RequestURI, got.Host)
			}
		}
	}
}
