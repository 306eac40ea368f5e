package mcpproxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/mcpproxy"
)

// doer is a transport of few words.
type doer func(*http.Request) (*http.Response, error)

func (d doer) RoundTrip(req *http.Request) (*http.Response, error) { return d(req) }

func TestErrorsOfTheTransportSayWhatIsToBeDone(t *testing.T) {
	for want, err := range map[string]error{
		`"code":-32001,"message":"the session of box may not do this, which needs the scope x: sign in again with: spendonce login box --scope x","data":{"source":"spendonce","kind":"insufficient_scope","status":403,"scopes":["x"]}`: &bearer.ScopeError{Target: "box", Missing: []string{"x"}},
		`"kind":"rejected","status":401`: &bearer.RejectedError{Target: "box"},
		`"code":-32001,"message":"no session","data":{"source":"spendonce","kind":"login_required"}`: &bearer.RejectedError{Err: fmt.Errorf("no session%w", mute{credstore.ErrLoginRequired})},
		`"code":-32001,"message":"nothing","data":{"source":"spendonce","kind":"login_required"}`:    fmt.Errorf("nothing%w", mute{credstore.ErrNoCredential}),
		`"code":-32004,"message":"later","data":{"source":"spendonce","kind":"temporary"}`:           fmt.Errorf("later%w", mute{credstore.ErrTemporary}),
		`"code":-32001,"message":"broken","data":{"source":"spendonce","kind":"store"}`:              fmt.Errorf("broken%w", mute{credstore.ErrDamaged}),
		`"code":-32000,"message":"elsewhere","data":{"source":"spendonce","kind":"elsewhere"}`:       fmt.Errorf("elsewhere%w", mute{bearer.ErrElsewhere}),
		`"code":-32000,"message":"silence","data":{"source":"spendonce","kind":"unanswered"}`:        fmt.Errorf("silence%w", mute{bearer.ErrUnanswered}),
	} {
		c := connect(t, "https://mcp.example.com/secret-path", mcpproxy.Config{Transport: doer(func(*http.Request) (*http.Response, error) { return nil, err })})
		c.say(`{"id":1,"method":"m"}`)
		if got := c.hear(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"error":{`) || !strings.Contains(got, want) || strings.Contains(got+c.log.String(), "secret-path") {
			t.Errorf("%v gives %s", err, got)
		}
		c.end()
	}
}

// mute is an error that is there, and says nothing.
type mute struct{ error }

func (mute) Error() string   { return "" }
func (m mute) Unwrap() error { return m.error }

// A token that is refused would be exchanged at each attempt.
func TestAStreamWhoseTokenIsRefusedIsAskedForAgainWhenARequestHasGoneWell(t *testing.T) {
	base := &http.Transport{DisableCompression: true}
	t.Cleanup(base.CloseIdleConnections)
	var refused, served atomic.Int32
	var good atomic.Bool
	s := serve(t, func(w http.ResponseWriter, r *http.Request, body string) {
		switch {
		case body == initialize:
			answer(w, welcome("2025-11-25"))
		case r.Method == http.MethodGet:
			served.Add(1)
			events(w)(fmt.Sprintf(data, `{"method":"n"}`))
			<-r.Context().Done()
		case body == initialized:
			w.WriteHeader(http.StatusAccepted)
		default:
			answer(w, `{"id":1,"result":{}}`)
		}
	})
	first := make(chan struct{}, 100)
	c := connect(t, s.URL, mcpproxy.Config{Limits: mcpproxy.Limits{Pause: time.Microsecond}, Transport: doer(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && !good.Load() {
			refused.Add(1)
			first <- struct{}{}
			return nil, &bearer.RejectedError{Target: "box"}
		}
		return base.RoundTrip(r)
	})})
	c.handshake("2025-11-25")
	<-first
	good.Store(true)
	c.say(`{"id":1,"method":"m"}`)
	got := []string{c.hear(), c.hear()}
	if !strings.Contains(strings.Join(got, " "), `{"method":"n"}`) || refused.Load() != 1 || served.Load() != 1 {
		t.Errorf("got %q after %d refusals, %d streams", got, refused.Load(), served.Load())
	}
}

func TestAServerThatIsNotKnownYetIsAskedForUntilItIs(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, `{"id":1,"result":{}}`) })
	var known atomic.Bool
	c := connect(t, "", mcpproxy.Config{Locate: func() (string, error) {
		if !known.Load() {
			return "", fmt.Errorf("where%w", mute{credstore.ErrNoCredential})
		}
		return s.URL, nil
	}})
	c.say(`{"id":1,"method":"m"}`)
	if got := c.hear(); !strings.Contains(got, `"code":-32001,"message":"where"`) {
		t.Errorf("got %s", got)
	}
	known.Store(true)
	c.say(`{"id":1,"method":"m"}`)
	c.want(`{"id":1,"result":{}}`)
}

func TestWhatIsNoServerIsNoProxy(t *testing.T) {
	for _, cfg := range []mcpproxy.Config{
		{}, {Transport: http.DefaultTransport}, {URL: "https://mcp.example.com"},
		{Transport: http.DefaultTransport, URL: "http://mcp.example.com"}, {Transport: http.DefaultTransport, URL: "https://me:secret@mcp.example.com"},
	} {
		if _, err := mcpproxy.New(cfg); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
