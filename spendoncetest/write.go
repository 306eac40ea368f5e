package spendoncetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// response makes the replacing answer of the script.
func (a Answer) response(q *request) *response {
	fill := q.placeholders()
	r := &response{status: a.Status, header: http.Header{}, contentType: a.ContentType, outcome: "scripted"}
	switch {
	case a.Error != "":
		r.outcome = a.Error
		r.members = map[string]any{"error": a.Error}
		if a.Description != "" {
			r.members["error_description"] = fill.Replace(a.Description)
		}
		if r.status == 0 {
			r.status = http.StatusBadRequest
		}
	case a.Location != "":
		r.header.Set("Location", fill.Replace(a.Location))
		if r.status == 0 {
			r.status = http.StatusTemporaryRedirect
		}
	}
	if a.Body != "" {
		r.members, r.body = nil, fill.Replace(a.Body)
		if r.contentType == "" {
			r.contentType = "application/json"
		}
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r
}

// placeholders replaces {name} by what the request said.
func (q *request) placeholders() *strings.Replacer {
	pairs := []string{"{token}", q.bearer()}
	for name, values := range q.params {
		pairs = append(pairs, "{"+name+"}", values[0])
	}
	return strings.NewReplacer(pairs...)
}

// patch changes what is seen of an answer, without changing what was done.
func (a Answer) patch(q *request, r *response) {
	fill := q.placeholders()
	if r.header == nil {
		r.header = http.Header{}
	}
	for name, value := range a.Header {
		r.header.Set(name, fill.Replace(value))
	}
	if r.members != nil {
		r.members = maps.Clone(r.members)
		for name, raw := range a.Set {
			r.members[name] = raw
		}
		for _, name := range a.Omit {
			delete(r.members, name)
		}
	}
	if a.ContentType != "" {
		r.contentType = a.ContentType
	}
}

// write sends the answer, or as much of it as the script says.
func (s *TokenServer) write(w http.ResponseWriter, q *request, r *response) {
	body := []byte(r.body)
	contentType := r.contentType
	switch {
	case r.members != nil && q.answer.Form:
		body = formEncoded(r.members)
		contentType = "application/x-www-form-urlencoded"
	case r.members != nil:
		// Only our own values and checked raw JSON are in there.
		body, _ = json.Marshal(r.members)
		if contentType == "" {
			contentType = "application/json"
		}
	}
	h := w.Header()
	for name, values := range r.header {
		h[name] = values
	}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	if r.status != http.StatusNoContent && r.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding"} {
		if v, ok := q.answer.Header[name]; ok {
			h.Set(name, v)
		}
	}
	w.WriteHeader(r.status)
	if !q.answer.Truncate {
		_, _ = w.Write(body)
		// Before this request counts as done, its answer is on its way: a test
		// that waits for InFlight to be 0 relies on it.
		_ = http.NewResponseController(w).Flush()
		return
	}
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
	if q.answer.Hang {
		s.wait(q, -1)
	}
	s.drop(w, q.answer.Reset)
}

func formEncoded(members map[string]any) []byte {
	form := url.Values{}
	for name, v := range members {
		if raw, ok := v.(json.RawMessage); ok {
			var decoded any
			if json.Unmarshal(raw, &decoded) == nil && decoded == nil {
				form.Set(name, "")
				continue
			}
			if text, ok := decoded.(string); ok {
				form.Set(name, text)
				continue
			}
			v = string(raw)
		}
		form.Set(name, fmt.Sprint(v))
	}
	return []byte(form.Encode())
}

// drop breaks the connection; reset makes the peer see a TCP reset.
func (s *TokenServer) drop(w http.ResponseWriter, reset bool) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	under := c
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		under = t.NetConn()
	}
	if t, ok := under.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
		_ = under.Close() // not through TLS: it would say goodbye first
	}
	_ = c.Close()
}

// wait passes d, for ever if negative; it ends when the client goes away or
// the server closes.
func (s *TokenServer) wait(q *request, d time.Duration) {
	var passed <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		passed = t.C
	}
	select {
	case <-passed:
	case <-q.r.Context().Done():
	case <-s.done:
	}
}
