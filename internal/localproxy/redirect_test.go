package localproxy_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestARedirectIsPassedOnAndLeadsHereOnlyWhereItStaysAtTheTarget(t *testing.T) {
	s := newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Location"] = []string{r.Header.Get("X-Location")}
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	prefix := "/" + s.proxy.Secret().Reveal()
	for _, c := range []struct{ location, want string }{ // HERE stands for the prefix, if the client came with it
		{"TARGET/a?b=c#d", "HERE/a?b=c#d"},
		{"TARGET", "HERE/"},
		{"TARGET/a%2Fb", "HERE/a%2Fb"},
		{"/a", "HERE/a"},
		{"a", "HERE/dir/a"},
		{"../../../a", "HERE/a"},
		{"?x", "HERE/dir/page?x"},
		{"TARGET//evil.example/x", "TARGET//evil.example/x"},
		{"//evil.example/x", "http://evil.example/x"},
		{"https://evil.example/x", "https://evil.example/x"},
		{"https://TARGETHOST/x", "https://TARGETHOST/x"},
		{"http://user@TARGETHOST/x", "http://user@TARGETHOST/x"},
		{"mailto:a@example.com", "mailto:a@example.com"},
		{"http://[bad", "http://[bad"},
	} {
		fill := func(text, here string) string {
			return strings.NewReplacer("TARGETHOST", strings.TrimPrefix(s.upstream.URL, "http://"), "TARGET", s.upstream.URL, "HERE", here).Replace(text)
		}
		for _, here := range []string{"", prefix} {
			req := s.request("POST", here+"/dir/page", nil)
			if here != "" {
				req.Header.Del("Authorization")
			}
			req.Header.Set("X-Location", fill(c.location, ""))
			before := len(s.seen())
			resp, err := s.client.Transport.RoundTrip(req) // a client would parse the Location
			must(t, err)
			resp.Body.Close()
			if got, want := resp.Header.Get("Location"), fill(c.want, here); got != want || resp.StatusCode != http.StatusTemporaryRedirect {
				t.Errorf("%s: answered %s to %s, want %s", c.location, resp.Status, got, want)
			}
			if len(s.seen()) != before+1 {
				t.Error("the redirect was followed")
			}
		}
	}
}
