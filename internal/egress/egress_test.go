package egress_test

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"testing"

	"github.com/spendonce/spendonce/internal/egress"
)

func TestLoopbackIsWhatNoResolverDecides(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.10": true, "::1": true, "localhost": true, "LocalHost": true, "localhost.": true,
		"": false, "127.1": false, "0.0.0.0": false, "::ffff:127.0.0.1": false, "::1%lo": false, "localhost.example.com": false, "example.com": false,
	} {
		if got := egress.Loopback(host); got != want {
			t.Errorf("Loopback(%q) is %v", host, got)
		}
	}
}

func TestAChosenProxyIsNotAskedAboutLoopback(t *testing.T) {
	chosen := &url.URL{Scheme: "http", Host: "proxy.example:3128"}
	var asked []string
	proxy := egress.Proxy(func(u *url.URL) (*url.URL, error) {
		asked = append(asked, u.Host)
		return chosen, nil
	})
	for host, want := range map[string]*url.URL{"api.example.com": chosen, "127.0.0.1:1": nil, "[::1]:1": nil, "localhost.": nil} {
		got, err := proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: host}})
		if err != nil || got != want {
			t.Errorf("%s goes by %v, %v; want %v", host, got, err, want)
		}
	}
	if len(asked) != 1 || asked[0] != "api.example.com" {
		t.Errorf("asked about %q", asked)
	}
}

func TestNoResolverAnswersForLocalhost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		DNSStart: func(info httptrace.DNSStartInfo) { t.Errorf("a resolver is asked about %s", info.Host) },
	})
	for _, host := range []string{"localhost", "LOCALHOST", "localhost.", "127.0.0.1"} {
		conn, err := egress.Dial(ctx, &net.Dialer{}, "tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if got := conn.RemoteAddr().String(); got != l.Addr().String() {
			t.Errorf("%s leads to %s", host, got)
		}
		conn.Close()
	}
}
