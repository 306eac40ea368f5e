package spendoncetest

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// ControlHeader carries the control secret. A page in a browser can neither
// know the secret nor send the header without asking us first, which we never
// allow.
const ControlHeader = "Spendonce-Control"

// controlError is a refusal of the control API.
type controlError struct {
	status  int
	problem string
}

func (e *controlError) Error() string { return e.problem }

type controlVerb func(r *http.Request, body []byte) (any, error)

// control routes the control API: every verb stands in this table, behind the
// one guard.
func (s *TokenServer) control() http.HandlerFunc {
	verbs := map[string]controlVerb{
		"GET counters":   func(*http.Request, []byte) (any, error) { return s.Counters(), nil },
		"GET log":        func(*http.Request, []byte) (any, error) { return s.Log(), nil },
		"GET wait":       s.controlWait,
		"GET config":     func(*http.Request, []byte) (any, error) { return s.controlSettings(), nil },
		"POST config":    s.controlConfigure,
		"POST sessions":  s.controlSessions,
		"POST script":    s.controlScript,
		"DELETE script":  func(*http.Request, []byte) (any, error) { s.ClearScript(); return done{true}, nil },
		"POST expire":    func(*http.Request, []byte) (any, error) { s.ExpireAccessTokens(); return done{true}, nil },
		"POST hold":      func(_ *http.Request, b []byte) (any, error) { return atPoint(b, s.Hold) },
		"POST release":   func(_ *http.Request, b []byte) (any, error) { return atPoint(b, s.Release) },
		"POST revoke":    s.controlRevoke,
		"POST live":      s.controlLive,
		"POST device":    s.controlDevice,
		"DELETE clients": s.controlForget,
	}
	return func(w http.ResponseWriter, r *http.Request) {
		status, answer := http.StatusOK, any(nil)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8*maxBody))
		if err == nil {
			err = s.guard(r)
		}
		if err == nil {
			verb := verbs[r.Method+" "+strings.TrimPrefix(r.URL.Path, pathControl)]
			if verb == nil {
				err = &controlError{404, "the control API has no such verb"}
			} else {
				answer, err = verb(r, body)
			}
		}
		if err != nil {
			status = http.StatusBadRequest
			if e, ok := errors.AsType[*controlError](err); ok {
				status = e.status
			}
			answer = map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// done is the answer of a verb that has nothing to say.
type done struct {
	OK bool `json:"ok"`
}

// guard lets in only who names us by a loopback address, as a rebound DNS
// name does not, comes from no page, and knows the secret of this run.
func (s *TokenServer) guard(r *http.Request) error {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	switch {
	case ip == nil || !ip.IsLoopback():
		return &controlError{403, "the control API answers only to a loopback IP address as Host"}
	case r.Header.Get("Origin") != "":
		return &controlError{403, "the control API does not answer to web pages"}
	case subtle.ConstantTimeCompare([]byte(r.Header.Get(ControlHeader)), []byte(s.controlSecret)) != 1:
		return &controlError{403, "the header " + ControlHeader + " does not hold the control secret of this run"}
	}
	return nil
}

// controlWait answers when every named counter has reached its value.
func (s *TokenServer) controlWait(r *http.Request, _ []byte) (any, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	timeout := 30 * time.Second
	var wanted []func(reflect.Value) bool
	for name, values := range query {
		n, err := strconv.Atoi(values[0])
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s is not a number", name)
		}
		if name == "timeout_ms" {
			timeout = min(time.Duration(n)*time.Millisecond, 10*time.Minute)
			continue
		}
		if name == "posts" {
			name = "token_posts"
		}
		field, ok := counterField(name)
		if !ok {
			return nil, fmt.Errorf("no counter is called %s", name)
		}
		wanted = append(wanted, func(c reflect.Value) bool { return c.Field(field).Int() >= int64(n) })
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	var met Counters
	err = s.WaitFor(ctx, func(c Counters) bool {
		v := reflect.ValueOf(c)
		for _, reached := range wanted {
			if !reached(v) {
				return false
			}
		}
		met = c
		return true
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, &controlError{504, "not reached in time"}
	}
	return met, err
}

func counterField(name string) (int, bool) {
	t := reflect.TypeFor[Counters]()
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("json") == name {
			return i, true
		}
	}
	return 0, false
}

func atPoint(body []byte, do func(Point) error) (any, error) {
	var in struct {
		Point Point `json:"point"`
	}
	if err := strictJSON(body, &in); err != nil {
		return nil, err
	}
	return done{true}, do(in.Point)
}
