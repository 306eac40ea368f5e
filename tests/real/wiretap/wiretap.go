// Package wiretap stands between an authorization server and its clients. It
// counts what arrives before the server has any say, and remembers every
// secret that crosses, so that a test can search for them where none belongs.
package wiretap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const maxBody = 1 << 20

// Entry is one request, in the order of arrival.
type Entry struct {
	Method string
	Path   string
	Grant  string // grant_type of a token request, else empty
	Status int    // 0 while the answer is outstanding
	Error  string // error member of an answer in JSON
}

// Tap is the handler in front of the server. Use New.
type Tap struct {
	tokenPath string
	next      http.Handler

	// serial is held while the server handles one request. The stores that the
	// servers ship are not ready for two: each looks a refresh token up and
	// retires it in two separate steps, so two simultaneous uses of one token
	// may both succeed and go unnoticed, and each has a map that one path
	// touches without its mutex. One at a time, every second use is a use of a
	// retired token.
	serial sync.Mutex

	mu      sync.Mutex
	latency time.Duration
	hold    *hold
	log     []*Entry
	secrets map[string]string // value -> kind
}

type hold struct {
	arrived chan struct{}
	release chan struct{}
}

// New returns a tap in front of next, whose token endpoint is at tokenPath.
func New(tokenPath string, next http.Handler) *Tap {
	return &Tap{tokenPath: tokenPath, next: next, secrets: map[string]string{}}
}

// SetLatency delays every token answer by d. The delay comes after the server
// has decided, as on a slow way back: the refresh token is spent already, and
// a second request in the meantime is a reuse.
func (t *Tap) SetLatency(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latency = d
}

// HoldNextAnswer keeps back the answer to the next token request, after the
// server has decided. The first channel is closed when the answer is there;
// release lets it go, and must be called.
func (t *Tap) HoldNextAnswer() (decided <-chan struct{}, release func()) {
	h := &hold{arrived: make(chan struct{}), release: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold = h
	return h.arrived, sync.OnceFunc(func() { close(h.release) })
}

// TokenPosts counts the token requests with one of the grant types; with none
// given, all of them, whatever they asked for.
func (t *Tap) TokenPosts(grants ...string) int {
	n := 0
	for _, e := range t.Log() {
		if e.Path == t.tokenPath && e.Method == http.MethodPost &&
			(len(grants) == 0 || slices.Contains(grants, e.Grant)) {
			n++
		}
	}
	return n
}

// String is the entry as a line of a failure message.
func (e Entry) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %d %s", e.Method, e.Path, e.Grant, e.Status, e.Error))
}

// Log returns a copy of what has arrived so far.
func (t *Tap) Log() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Entry, len(t.log))
	for i, e := range t.log {
		out[i] = *e
	}
	return out
}

// Secrets returns the codes, verifiers, tokens and client secrets that have
// crossed, with the kind of each.
func (t *Tap) Secrets() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.secrets)
}

// Alone runs f while the server handles no request. A test that asks the server
// something behind the back of its clients does it so.
func (t *Tap) Alone(f func()) {
	t.serial.Lock()
	defer t.serial.Unlock()
	f()
}

func (t *Tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	entry := &Entry{Method: r.Method, Path: r.URL.Path}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "request too long", http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	isToken := r.URL.Path == t.tokenPath && r.Method == http.MethodPost

	t.mu.Lock()
	if isToken {
		// A body that is no form has no grant type, and is counted all the same.
		form, _ := url.ParseQuery(string(body))
		entry.Grant = form.Get("grant_type")
		t.noteForm(form)
	}
	if auth := r.Header.Get("Authorization"); len(auth) > len("Bearer ") && strings.EqualFold(auth[:len("Bearer ")], "Bearer ") {
		t.note(auth[len("Bearer "):], "bearer token")
	}
	t.log = append(t.log, entry)
	t.mu.Unlock()

	answer := &answer{header: http.Header{}}
	t.Alone(func() { t.next.ServeHTTP(answer, r) })

	t.mu.Lock()
	entry.Status = answer.code()
	entry.Error = t.noteAnswer(answer.body.Bytes())
	if to, err := url.Parse(answer.header.Get("Location")); err == nil {
		t.note(to.Query().Get("code"), "code")
	}
	var wait time.Duration
	var held *hold
	if isToken {
		wait = t.latency
		held, t.hold = t.hold, nil
	}
	t.mu.Unlock()

	if held != nil {
		close(held.arrived)
		<-held.release
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	answer.copyTo(w)
}

func (t *Tap) noteForm(form url.Values) {
	for _, name := range []string{"refresh_token", "code", "code_verifier", "client_secret", "device_code"} {
		t.note(form.Get(name), name)
	}
}

// noteAnswer remembers the tokens of an answer and returns its error member.
func (t *Tap) noteAnswer(body []byte) string {
	var members map[string]any
	if json.Unmarshal(body, &members) != nil {
		return ""
	}
	for _, name := range []string{"access_token", "refresh_token", "id_token", "device_code"} {
		if value, ok := members[name].(string); ok {
			t.note(value, name)
		}
	}
	code, _ := members["error"].(string)
	return code
}

func (t *Tap) note(value, kind string) {
	if value == "" {
		return
	}
	if _, known := t.secrets[value]; !known {
		t.secrets[value] = kind
	}
}

// answer keeps a whole answer until it may go out.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

func (a *answer) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.code())
	// The reader may have gone; there is nobody left to tell.
	_, _ = w.Write(a.body.Bytes())
}
