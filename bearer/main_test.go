package bearer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const box = "box"

// source is a store of one session: a token is exchanged by who names it as
// rejected.
type source struct {
	mu        sync.Mutex
	tokens    []canary.Value // all that were issued; the last one is stored
	asked     int
	exchanges int
	err       error // of every exchange
	stuck     bool  // an exchange gives the same token again
}

func newSource() *source { return &source{tokens: []canary.Value{canary.New("token")}} }

func (s *source) Get(_ context.Context, req credstore.Request) (credstore.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	var err error
	if req.Rejected.Equal(s.stored()) {
		s.exchanges++
		switch err = s.err; {
		case s.stuck:
		case err == nil, err == credstore.ErrNotSaved: //nolint:errorlint // it is that very one
			s.tokens = append(s.tokens, canary.New("token"))
		default:
			return credstore.Token{}, err
		}
	}
	return credstore.Token{AccessToken: s.stored(), Kind: credstore.KindOIDC}, err
}

func (s *source) stored() secret.Secret { return s.tokens[len(s.tokens)-1].Secret }

// good reports whether a request has the token that is stored, after so many
// exchanges.
func (s *source) good(r *http.Request, exchanges int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanges >= exchanges && r.Header.Get("Authorization") == "Bearer "+s.stored().Reveal()
}

func (s *source) counts() (asked, exchanges int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.exchanges
}

// silent fails the test if a token stands in an error.
func (s *source) silent(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	canary.Absent(t, s.tokens, canary.Places{Outputs: map[string][]byte{
		"the error": []byte(err.Error()), "the error, in detail": fmt.Appendf(nil, "%+v %#v", err, err),
	}})
}

// server keeps what it was asked.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // method, path, body
	auth []string
}

// serve starts a server; handle is given the request's whole body.
func serve(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, body string)) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(s.handler(handle))
	t.Cleanup(s.Close)
	return s
}

func (s *server) handler(handle func(http.ResponseWriter, *http.Request, string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(b[:min(len(b), 100)])))
		s.auth = append(s.auth, r.Header.Get("Authorization"))
		s.mu.Unlock()
		handle(w, r, string(b))
	})
}

func (s *server) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// authorizations are the headers that came, those that were empty too.
func (s *server) authorizations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.auth)
}

func origin(t *testing.T, url string) bearer.Origin {
	t.Helper()
	o, err := bearer.ParseOrigin(url)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// clientOf is an [http.Client] with the token of src for a server.
func clientOf(t *testing.T, cfg bearer.Config, urls ...string) *http.Client {
	t.Helper()
	cfg.Target = box
	for _, u := range urls {
		cfg.Origins = append(cfg.Origins, origin(t, u))
	}
	tr, err := bearer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: tr}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// do sends a request and returns the whole answer.
func do(t *testing.T, c *http.Client, req *http.Request) (status int, body string, err error) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), nil
}

// doer is a Base of few words.
type doer func(*http.Request) (*http.Response, error)

func (d doer) RoundTrip(req *http.Request) (*http.Response, error) { return d(req) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}
