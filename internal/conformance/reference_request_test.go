//go:build linux

package conformance_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// request judges a whole frame, in the order of the protocol.
func (r *reference) request(frame []byte, p refPeer) map[string]any {
	q, code := r.parse(frame)
	stranger := func() string {
		switch {
		case p.alien && !r.has("does not ask who writes"), p.laden && !r.has("takes descriptors"):
			return "PEER_REFUSED"
		case !living(p.pid, p.start) && !r.has("serves the dead"):
			if _, zombie := lookUp(p.pid); !zombie || !r.has("takes zombies for living peers") {
				return "PEER_REFUSED"
			}
		}
		return ""
	}
	if r.has("judges the writer first") && stranger() != "" {
		return refusal("PEER_REFUSED")
	}
	if r.has("judges the shape last") {
		if known := r.before(frame, p); known != "" {
			return refusal(known)
		}
	}
	if code == "" && !r.has("judges the writer last") && !(r.has("registers for whoever writes") && q.action == "register_anchor") {
		code = stranger()
	}
	if code != "" {
		return refusal(code)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune()
	if q.action == "register_anchor" {
		return r.register(q, p)
	}
	s, code := r.session(q, p)
	if code == "" && r.has("judges the writer last") {
		code = stranger()
	}
	if code != "" {
		return refusal(code)
	}
	switch q.action {
	case "authenticate":
		if r.has("authenticating empties the session") {
			r.empty(s)
		}
		return map[string]any{"ok": true, "session_id": s.id, "runtime_generation": s.generation}
	case "mint_token":
		return r.mint(q, s)
	}
	return r.consume(q, s)
}

// before judges the session without having looked at the rest.
func (r *reference) before(frame []byte, p refPeer) string {
	var q struct {
		SessionID  string `json:"session_id"`
		Generation uint64 `json:"runtime_generation"`
	}
	if json.Unmarshal(frame, &q) != nil || q.SessionID == "" {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, code := r.session(refRequest{sessionID: q.SessionID, generation: q.Generation}, p)
	return code
}

func (r *reference) empty(s *refSession) {
	maps.DeleteFunc(r.tokens, func(_ string, t *refToken) bool { return t.session == s })
}

// prune drops what belongs to anchors that have exited.
func (r *reference) prune() {
	if r.has("sessions outlive their anchors") {
		return
	}
	r.sessions = slices.DeleteFunc(r.sessions, func(s *refSession) bool {
		if living(s.pid, s.start) {
			return false
		}
		if p, ok := lookUp(s.pid); ok && p.start == s.start && r.has("takes zombies for living anchors") {
			return false
		}
		if !r.has("keeps the tokens of the dead") {
			r.empty(s)
		}
		r.heirs = append(r.heirs, s.id)
		return true
	})
}

func (r *reference) register(q refRequest, p refPeer) map[string]any {
	now, _ := lookUp(p.pid)
	i := slices.IndexFunc(r.sessions, func(s *refSession) bool {
		switch {
		case r.has("forgets whom it registered"):
			return false
		case r.has("one session for all"):
			return true
		case r.has("knows anchors by what they execute") && s.stack != now.stack:
			return false
		case r.has("nested anchors join") && r.descends(p, s):
			return true
		}
		return s.pid == p.pid && s.start == p.start
	})
	if i < 0 {
		s := &refSession{id: fresh(), pid: p.pid, start: p.start, stack: now.stack, generation: q.generation}
		switch {
		case r.has("short ids"):
			s.id = s.id[:22]
		case r.has("sessions are inherited") && len(r.heirs) > 0:
			s.id = r.heirs[len(r.heirs)-1]
		}
		if r.has("nested anchors end the outer session") {
			r.sessions = slices.DeleteFunc(r.sessions, func(outer *refSession) bool { return r.descends(p, outer) })
		}
		r.sessions = append(r.sessions, s)
		i = len(r.sessions) - 1
	}
	s := r.sessions[i]
	s.since = ticks()
	if r.has("raises in two steps") && q.generation > s.generation {
		r.empty(s)
		r.pause(200 * time.Millisecond)
	}
	switch {
	case q.generation < s.generation && r.has("generations go down"):
		s.generation = q.generation
	case q.generation < s.generation:
		if r.has("a lower generation empties the session") {
			r.empty(s)
		}
		return refusal("GENERATION_STALE")
	case q.generation > s.generation && r.has("generations stay"):
	case q.generation > s.generation:
		s.generation = q.generation
		if r.has("a new generation has a new id") {
			s.id = fresh()
		}
		if r.has("a new generation empties all sessions") {
			clear(r.tokens)
		}
		if !r.has("tokens survive generations") {
			r.empty(s)
		}
	case r.has("registering again empties the session"):
		r.empty(s)
	}
	return map[string]any{"ok": true, "session_id": s.id, "runtime_generation": s.generation}
}

// session finds the session that q names, and judges descent and generation.
func (r *reference) session(q refRequest, p refPeer) (*refSession, string) {
	i := slices.IndexFunc(r.sessions, func(s *refSession) bool {
		return s.id == q.sessionID || r.has("takes session ids in any spelling") && lenient(s.id) == lenient(q.sessionID)
	})
	generation := func(s *refSession) string {
		switch {
		case q.generation < s.generation && !r.has("serves old generations"):
			return "GENERATION_STALE"
		case q.generation > s.generation && !r.has("serves generations to come"):
			return "GENERATION_UNKNOWN"
		}
		return ""
	}
	switch {
	case q.action == "consume_token" && r.has("spelling before all") && !spelt(q.token):
		return nil, "TOKEN_MALFORMED"
	case q.action == "consume_token" && r.has("token before generation") && i >= 0 && r.tokens[q.token] == nil:
		return nil, "TOKEN_REPLAY"
	case i < 0 && r.has("hides unknown sessions"):
		return nil, "NOT_DESCENDANT"
	case i < 0:
		return nil, "SESSION_UNKNOWN"
	case r.has("generation before descent") && generation(r.sessions[i]) != "":
		return nil, generation(r.sessions[i])
	case !r.descends(p, r.sessions[i]):
		if r.has("a stranger's attempt spends the token") {
			delete(r.tokens, q.token)
		}
		return nil, "NOT_DESCENDANT"
	}
	return r.sessions[i], generation(r.sessions[i])
}

func (r *reference) mint(q refRequest, s *refSession) map[string]any {
	most := 256
	switch {
	case r.has("room for 255"):
		most--
	case r.has("room for more"):
		most++
	}
	pending := 0
	for _, t := range r.tokens {
		if !t.spent && (t.session == s || !r.has("counts each session by itself")) || r.has("room never comes back") {
			pending++
		}
	}
	if pending >= most {
		if r.has("a refusal for want of room makes room") {
			for tok := range r.tokens {
				delete(r.tokens, tok)
				break
			}
		}
		return refusal("TOKEN_CAPACITY")
	}
	tok := fresh()
	if r.has("short ids") {
		tok = tok[:22]
	}
	if r.has("one token for one binding") {
		for known, t := range r.tokens {
			if t.session == s && !t.spent {
				tok = known
			}
		}
	}
	r.tokens[tok] = &refToken{session: s, generation: s.generation, binding: q.binding}
	return map[string]any{"ok": true, "token": tok}
}

func (r *reference) consume(q refRequest, s *refSession) map[string]any {
	if !spelt(q.token) {
		if !r.has("takes tokens in any spelling") {
			return refusal("TOKEN_MALFORMED")
		}
		for tok := range r.tokens {
			if lenient(tok) == lenient(q.token) {
				q.token = tok
			}
		}
	}
	t := r.tokens[q.token]
	switch {
	case t == nil, t.spent && !r.has("replays are granted"):
		if r.has("tells the unknown from the spent") && t == nil {
			return refusal("TOKEN_UNKNOWN")
		}
		return refusal("TOKEN_REPLAY")
	case t.session != s && r.has("any session's token will do"):
	case t.session != s:
		if r.has("a foreign attempt spends the token") {
			t.spent = true
		}
		return refusal("TOKEN_REPLAY")
	case t.generation != s.generation && !r.has("tokens survive generations"):
		return refusal("TOKEN_REPLAY")
	}
	if r.has("looks and deletes in two steps") {
		r.pause(20 * time.Millisecond)
	}
	if r.has("spends a little later") {
		time.AfterFunc(3*time.Second, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.tokens, q.token)
		})
		return map[string]any{"ok": true, "binding": t.binding}
	}
	t.spent = true
	if !r.has("replays are granted") && !r.has("room never comes back") {
		delete(r.tokens, q.token)
	}
	if r.has("bindings lose precision") {
		t.binding["compaction_epoch"] = float64(t.binding["compaction_epoch"].(uint64) &^ 1)
	}
	return map[string]any{"ok": true, "binding": t.binding}
}

// pause lets others come between.
func (r *reference) pause(d time.Duration) {
	r.mu.Unlock()
	<-time.After(d)
	r.mu.Lock()
}

// spelt reports whether text is the one spelling of 256 bits.
func spelt(text string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(b) == 32 && !strings.ContainsAny(text, "\r\n")
}

// lenient is what a careless decoder makes of text.
func lenient(text string) string {
	b, _ := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
	return string(b)
}
