package localproxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/bearer"
	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/localproxy"
)

type answer struct {
	Version                 int
	Error, Message, Command string
	Scopes                  []string
}

func (s *site) refused(resp *http.Response, body string) answer {
	s.t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || a.Version != 1 || a.Message == "" || a.Error != resp.Header.Get("Spendonce-Error") ||
		resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("answered %v %q: %v", resp.Header, body, err)
	}
	return a
}

func TestWhatTheStoreSaysIsAnAnswerThatAProgramUnderstands(t *testing.T) {
	for _, c := range []struct {
		err           error
		status        int
		word, command string
		retry         string
	}{
		{credstore.ErrNoCredential, 401, "login_required", "spendonce login work", ""},
		{credstore.ErrLoginRequired, 401, "login_required", "spendonce login work", ""},
		{fmt.Errorf("%w, %w", credstore.ErrOutcomeUnknown, credstore.ErrLoginRequired), 401, "login_required", "spendonce login work", ""},
		{credstore.ErrTemporary, 503, "temporary", "", "42"},
		{credstore.ErrLocked, 503, "temporary", "", "42"},
		{credstore.ErrDamaged, 500, "local", "", ""},
		{credstore.ErrConfig, 500, "local", "", ""},
		{bearer.ErrElsewhere, 502, "elsewhere", "", ""},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			s := newSite(t, options{cfg: localproxy.Config{RetryAfter: func() time.Duration { return 41500 * time.Millisecond }}}, ok)
			s.source.err = fmt.Errorf("a sentence\x1b[2J: %w", c.err)
			resp, body := s.do(s.request("POST", "/", pattern(100_000)))
			a := s.refused(resp, body)
			if resp.StatusCode != c.status || a.Error != c.word || a.Command != c.command || resp.Header.Get("Retry-After") != c.retry || !strings.HasPrefix(a.Message, "a sentence?[2J") {
				t.Errorf("answered %s %q, Retry-After %q", resp.Status, body, resp.Header.Get("Retry-After"))
			}
			if (resp.Header.Get("WWW-Authenticate") != "") != (c.status == 401) {
				t.Error("a challenge belongs to 401 alone")
			}
			if len(s.seen()) > 0 {
				t.Error("the target was asked")
			}
		})
	}
}

func TestATokenThatIsRefusedIsRenewedAndTheClientSeesNothingOfIt(t *testing.T) {
	var s *site
	s = newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") == "Bearer "+s.source.tokens[0].Secret.Reveal() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, len(b))
	})
	if resp, body := s.do(s.request("POST", "/", struct{ io.Reader }{pattern(100_000)})); resp.StatusCode != http.StatusOK || body != "100000" {
		t.Errorf("answered %s %q", resp.Status, body)
	}
}

// A 401 would tell the client to sign in, and it only has to come again.
func TestARequestThatCannotBeSentTwiceIsToComeAgain(t *testing.T) {
	var s *site
	s = newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Header.Get("Authorization") == "Bearer "+s.source.tokens[0].Secret.Reveal() {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://example.com"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, n)
	})
	resp, body := s.do(s.request("POST", "/", pattern(2<<20)))
	if a := s.refused(resp, body); resp.StatusCode != http.StatusServiceUnavailable || a.Error != "renewed" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("answered %s %q", resp.Status, body)
	}
	if resp, body := s.do(s.request("POST", "/", pattern(2<<20))); resp.StatusCode != http.StatusOK || body != fmt.Sprint(2<<20) {
		t.Errorf("the second time: %s %q", resp.Status, body)
	}
}

func TestWhatTheTargetRefusesIsSaid(t *testing.T) {
	reject := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	for _, c := range []struct {
		name    string
		handle  http.HandlerFunc
		renew   error
		status  int
		word    string
		message string
		scopes  int
	}{
		{"every token", reject, nil, 401, "rejected", "rejects the token of work", 0},
		{"the token, and there is no other", reject, credstore.ErrLoginRequired, 401, "login_required", "login required", 0},
		{"the token, and another is not to be had now", reject, credstore.ErrTemporary, 503, "temporary", "temporary", 0},
		{"the token, once too often", reject, credstore.ErrRejected, 401, "rejected", "rejected", 0},
		{"the scope", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="a b"`)
			w.WriteHeader(http.StatusForbidden)
		}, nil, 403, "insufficient_scope", "spendonce login work --scope a --scope b", 2},
		{"to speak HTTP", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "220 smtp.example.com\r\n")
				c.Close()
			}
		}, nil, 502, "unanswered", "no answer from http://127.0.0.1:", 0},
		{"to keep to HTTP", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
				c.Close()
			}
		}, nil, 502, "upgrade", "another protocol", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, options{}, c.handle)
			s.source.renew = c.renew
			resp, body := s.do(s.request("GET", "/", nil))
			if a := s.refused(resp, body); resp.StatusCode != c.status || a.Error != c.word || !strings.Contains(a.Message, c.message) || len(a.Scopes) != c.scopes {
				t.Errorf("answered %s %q", resp.Status, body)
			}
		})
	}
	t.Run("the connection", func(t *testing.T) {
		s := newSite(t, options{}, ok)
		s.upstream.Close()
		resp, body := s.do(s.request("GET", "/?q=hidden", nil))
		if a := s.refused(resp, body); resp.StatusCode != http.StatusBadGateway || a.Error != "unanswered" || strings.Contains(body, "hidden") {
			t.Errorf("answered %s %q", resp.Status, body)
		}
	})
	t.Run("a thing with 403 and no word of scopes, which passes", func(t *testing.T) {
		s := newSite(t, options{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
		if resp, body := s.do(s.request("GET", "/", nil)); resp.StatusCode != http.StatusForbidden || body != "no\n" || resp.Header.Get("Spendonce-Error") != "" {
			t.Errorf("answered %s %q", resp.Status, body)
		}
	})
}

func TestATokenThatTheTargetEchoesIsInNoAnswerOfOurs(t *testing.T) {
	s := newSite(t, options{}, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, r.Header.Get("Authorization")+"\r\n\r\n")
			c.Close()
		}
	})
	resp, body := s.do(s.request("GET", "/", nil)) // and the end of the test looks for it
	if a := s.refused(resp, body); a.Error != "unanswered" {
		t.Errorf("answered %s %q", resp.Status, body)
	}
}

func TestAnErrorWithoutAKindIsOursToSay(t *testing.T) {
	s := newSite(t, options{}, ok)
	s.source.err = errors.New("out of luck")
	if resp, body := s.do(s.request("GET", "/", nil)); resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "out of luck") {
		t.Errorf("answered %s %q", resp.Status, body)
	}
}
