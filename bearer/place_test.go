package bearer_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/spendoncetest"
)

// closer is a body that knows whether it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestARequestElsewhereIsRefusedBeforeTheStoreIsRead(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"another host":          func(r *http.Request) { r.URL.Host = "api.example.org" },
		"another port":          func(r *http.Request) { r.URL.Host = "api.example.com:444" },
		"another scheme":        func(r *http.Request) { r.URL.Scheme = "http" },
		"no scheme":             func(r *http.Request) { r.URL.Scheme = "" },
		"an opaque URL":         func(r *http.Request) { r.URL.Opaque = "//evil.example/x" },
		"another host's name":   func(r *http.Request) { r.Host = "evil.example" },
		"a host behind a space": func(r *http.Request) { r.Host = "api.example.com evil.example" },
	} {
		t.Run(name, func(t *testing.T) {
			src := newSource()
			client := clientOf(t, bearer.Config{Source: src, Base: doer(func(*http.Request) (*http.Response, error) {
				t.Error("it was sent")
				return answer(200, ""), nil
			})}, "https://api.example.com")
			body := &closer{Reader: strings.NewReader("x")}
			req := request(t, "POST", "https://api.example.com/", body)
			change(req)
			_, err := client.Transport.RoundTrip(req)
			if asked, _ := src.counts(); !errors.Is(err, bearer.ErrElsewhere) || asked != 0 || !body.closed {
				t.Errorf("error %v, asked for a token %d times, body closed %v", err, asked, body.closed)
			}
		})
	}
}

func TestARequestElsewhereGoesOutBareWhereThatIsAsked(t *testing.T) {
	src := newSource()
	there := serve(t, func(http.ResponseWriter, *http.Request, string) {})
	client := clientOf(t, bearer.Config{Source: src, Elsewhere: bearer.Bare}, "https://api.example.com")
	req := request(t, "POST", there.URL+"/x", strings.NewReader("hello"))
	req.Header.Set("Authorization", "Basic mine")
	if status, _, err := do(t, client, req); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	asked, _ := src.counts()
	if got := there.authorizations(); asked != 0 || !slices.Equal(got, []string{"Basic mine"}) {
		t.Errorf("asked for a token %d times; sent %q", asked, got)
	}
}

func TestWithoutOriginsNoRequestGetsAToken(t *testing.T) {
	src := newSource()
	client := clientOf(t, bearer.Config{Source: src, Origins: []bearer.Origin{{}}})
	for _, url := range []string{"https://api.example.com", "http://127.0.0.1:1"} {
		if _, _, err := do(t, client, request(t, "GET", url, nil)); !errors.Is(err, bearer.ErrElsewhere) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := bearer.New(bearer.Config{}); err == nil {
		t.Error("there is a transport without a source")
	}
}

func TestAnAuthorizationOfTheCallerIsNeverReplaced(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"a header":                  func(r *http.Request) { r.Header.Set("Authorization", "Basic mine") },
		"a header, spelt otherwise": func(r *http.Request) { r.Header["authorization"] = []string{"Basic mine"} },
		"an empty header":           func(r *http.Request) { r.Header["Authorization"] = nil },
		"a name in the URL":         func(r *http.Request) { r.URL.User = nil; r.SetBasicAuth("me", "mine") },
	} {
		t.Run(name, func(t *testing.T) {
			src := newSource()
			here := serve(t, func(http.ResponseWriter, *http.Request, string) {})
			req := request(t, "GET", here.URL, nil)
			change(req)
			_, _, err := do(t, clientOf(t, bearer.Config{Source: src}, here.URL), req)
			if asked, _ := src.counts(); !errors.Is(err, bearer.ErrAuthorization) || asked != 0 || len(here.got()) != 0 {
				t.Errorf("error %v, asked %d times, sent %q", err, asked, here.got())
			}
		})
	}
}

func TestARedirectElsewhereNeverCarriesTheToken(t *testing.T) {
	id, err := spendoncetest.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	for _, elsewhere := range []bearer.Elsewhere{bearer.Refuse, bearer.Bare} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			for _, differs := range []string{"host", "port", "scheme"} {
				t.Run(fmt.Sprint(elsewhere, status, differs), func(t *testing.T) {
					there := &server{}
					handler := there.handler(func(http.ResponseWriter, *http.Request, string) {})
					var target string
					here := serve(t, func(w http.ResponseWriter, r *http.Request, _ string) {
						if differs == "host" && r.URL.Path == "/there" {
							handler.ServeHTTP(w, r)
							return
						}
						http.Redirect(w, r, target, status)
					})
					switch differs {
					case "host":
						target = strings.Replace(here.URL, "127.0.0.1", "localhost", 1) + "/there"
					case "port":
						there.Server = httptest.NewServer(handler)
						t.Cleanup(there.Close)
						target = there.URL
					case "scheme":
						there.Server = httptest.NewUnstartedServer(handler)
						there.TLS = id.Server
						there.StartTLS()
						t.Cleanup(there.Close)
						target = there.URL
					}
					base := &http.Transport{TLSClientConfig: id.Client()}
					t.Cleanup(base.CloseIdleConnections)
					src := newSource()
					client := clientOf(t, bearer.Config{Source: src, Elsewhere: elsewhere, Base: base}, here.URL)
					_, _, err := do(t, client, request(t, "POST", here.URL+"/here", strings.NewReader("hello")))
					if first := here.authorizations()[0]; first == "" {
						t.Error("the first request has no token")
					}
					got := there.authorizations()
					if elsewhere == bearer.Refuse {
						if !errors.Is(err, bearer.ErrElsewhere) || len(got) != 0 {
							t.Errorf("error %v, %d requests there", err, len(got))
						}
						return
					}
					if err != nil || !slices.Equal(got, []string{""}) {
						t.Errorf("error %v, %q went there", err, got)
					}
				})
			}
		}
	}
}

func TestARedirectWithinTheOriginCarriesTheToken(t *testing.T) {
	src := newSource()
	here := serve(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b", http.StatusTemporaryRedirect)
		}
	})
	if _, _, err := do(t, clientOf(t, bearer.Config{Source: src}, here.URL), request(t, "POST", here.URL+"/a", strings.NewReader("hello"))); err != nil {
		t.Fatal(err)
	}
	want := "Bearer " + src.stored().Reveal()
	if !slices.Equal(here.authorizations(), []string{want, want}) || !slices.Equal(here.got(), []string{"POST /a hello", "POST /b hello"}) {
		t.Errorf("the requests are %q", here.got())
	}
}

func TestNeitherTheRequestNorTheAnswerHoldsTheToken(t *testing.T) {
	src := newSource()
	here := serve(t, func(http.ResponseWriter, *http.Request, string) {})
	client := clientOf(t, bearer.Config{Source: src}, here.URL)
	req := request(t, "GET", here.URL, nil)
	req.Header.Set("X-Mine", "1")
	resp, err := client.Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(req.Header) != 1 || resp.Request != req {
		t.Errorf("the request's header is %q; the answer's request is the caller's: %v", req.Header, resp.Request == req)
	}
}
