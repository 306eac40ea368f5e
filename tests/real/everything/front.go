package everything

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spendonce/spendonce/spendoncetest"
)

const metadataPath = "/.well-known/oauth-protected-resource"

// Config says what a front does. The zero value works.
type Config struct {
	// Tokens is how strict the authorization server is.
	Tokens spendoncetest.TokenServerConfig
	// Seen, if set, is called for each request when its answer begins, from
	// several goroutines.
	Seen func(Request)
}

// Request is one that the front got.
type Request struct {
	Method string
	Path   string
	Header http.Header
	// Admitted says that it had a token that was good, and went on.
	Admitted bool
}

// Front is a server's public side: it lets requests through that have an
// access token which its authorization server holds good at that moment, and
// answers others as RFC 9728 has it. What it passes on is a request to the
// server itself, without the token; what comes back is passed as it comes.
type Front struct {
	// Tokens is the authorization server: it counts exchanges, and expires and
	// revokes on demand.
	Tokens *spendoncetest.TokenServer

	http     *httptest.Server
	kind     Kind
	seen     func(Request)
	pass     *httputil.ReverseProxy
	backend  atomic.Pointer[url.URL]
	refused  atomic.Int64
	rejects  atomic.Bool
	shutOnce sync.Once

	mu       sync.Mutex
	sessions map[string]bool // by id: whether it is still known
}

// Protect stands in front of a server.
func Protect(server *Server, cfg Config) (*Front, error) {
	tokens, err := spendoncetest.StartTokenServer(cfg.Tokens)
	if err != nil {
		return nil, err
	}
	f := &Front{Tokens: tokens, kind: server.kind, seen: cfg.Seen, sessions: map[string]bool{}}
	if f.seen == nil {
		f.seen = func(Request) {}
	}
	f.Lead(server)
	f.pass = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.backend.Load()) // the Host is the server's too
			r.Out.Header.Del("Authorization")
		},
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100},
		FlushInterval: -1,
		// Tests end servers and clients in the middle of things.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+metadataPath+"/", f.describe)
	mux.HandleFunc("/", f.serve)
	f.http = httptest.NewUnstartedServer(mux)
	f.http.Config.ErrorLog = f.pass.ErrorLog
	f.http.Start()
	return f, nil
}

// Lead has what comes from now on go to another server of the same kind.
func (f *Front) Lead(server *Server) {
	to, err := url.Parse(server.origin)
	if err != nil {
		panic(err) // it is 127.0.0.1 and a port
	}
	f.backend.Store(to)
}

// URL is the address that a client is given.
func (f *Front) URL() string { return f.http.URL + f.kind.path() }

// Refused counts the requests that were answered with 401.
func (f *Front) Refused() int64 { return f.refused.Load() }

// RejectAll has every token refused, also those that are good.
func (f *Front) RejectAll(yes bool) { f.rejects.Store(yes) }

// ForgetSessions has every session that was in use refused from now on, with
// the 404 that the specification has for it. What the server itself says when
// it was started again is a 400.
func (f *Front) ForgetSessions() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.sessions {
		f.sessions[id] = false
	}
}

// knows reports whether a session may go on; every new one may.
func (f *Front) knows(session string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, old := f.sessions[session]
	if !old {
		f.sessions[session] = true
	}
	return known || !old
}

// Close ends the front and its authorization server, and breaks what is open.
func (f *Front) Close() error {
	var err error
	f.shutOnce.Do(func() {
		f.http.CloseClientConnections()
		f.http.Close()
		if t, ok := f.pass.Transport.(*http.Transport); ok {
			t.CloseIdleConnections()
		}
		err = f.Tokens.Close()
	})
	return err
}

func (f *Front) serve(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	admitted := bearer && !f.rejects.Load() && f.Tokens.Live(token)
	f.seen(Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Admitted: admitted})
	if !admitted {
		f.refuse(w, r, bearer)
		return
	}
	// Else what is read of the body ends when the answer begins, and that may
	// be before the connection to the server has seen its end.
	_ = http.NewResponseController(w).EnableFullDuplex()
	if session := r.Header.Get("Mcp-Session-Id"); session != "" && !f.knows(session) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
		return
	}
	f.pass.ServeHTTP(w, r)
}

func (f *Front) refuse(w http.ResponseWriter, r *http.Request, bearer bool) {
	f.refused.Add(1)
	_, _ = io.Copy(io.Discard, r.Body) // a client may not read before it has sent
	challenge := `Bearer resource_metadata="` + f.http.URL + metadataPath + r.URL.Path + `"`
	if bearer {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	http.Error(w, "not signed in", http.StatusUnauthorized)
}

func (f *Front) describe(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"resource":                 f.http.URL + strings.TrimPrefix(r.URL.Path, metadataPath),
		"authorization_servers":    []string{f.Tokens.Issuer()},
		"bearer_methods_supported": []string{"header"},
	})
}
