package spendoncetest

import (
	"context"
	"time"
)

// Counters are exact: every number changes in the same step as the state it
// counts. The three gauges say what is the case now.
type Counters struct {
	Requests          int `json:"requests"`           // all but the control API's
	TokenPosts        int `json:"token_posts"`        // POSTs to a token endpoint, whatever became of them
	Exchanges         int `json:"exchanges"`          // successful refreshes, grace replays not among them
	CodeExchanges     int `json:"code_exchanges"`     // authorization and device codes turned into tokens
	DoubleSpends      int `json:"double_spends"`      // a spent refresh token or code presented outside the grace
	GraceReplays      int `json:"grace_replays"`      // a spent refresh token answered with its old pair
	RefusedRefreshes  int `json:"refused_refreshes"`  // refresh tokens refused for any reason, double spends among them
	FamiliesRevoked   int `json:"families_revoked"`   // by reuse, by request or by the test
	Sessions          int `json:"sessions"`           // families made without a login
	Logins            int `json:"logins"`             // right passwords and device approvals
	FailedLogins      int `json:"failed_logins"`      // wrong passwords
	Denials           int `json:"denials"`            // the deny button
	Registrations     int `json:"registrations"`      // dynamic ones
	Revocations       int `json:"revocations"`        // requests to the revocation endpoint
	ResourceRequests  int `json:"resource_requests"`  // with or without a live token
	ResourceRejected  int `json:"resource_rejected"`  // those answered 401 by the rules
	ScriptedAnswers   int `json:"scripted_answers"`   // requests that met a scripted answer
	Abandoned         int `json:"abandoned"`          // client gone before processing: nothing was spent
	AnswersLost       int `json:"answers_lost"`       // processed, client gone or dropped before the answer
	HeldBefore        int `json:"held_before"`        // gauge: received, not processed
	HeldAfter         int `json:"held_after"`         // gauge: processed, answer held
	InFlight          int `json:"in_flight"`          // gauge: requests being served
	LiveFamilies      int `json:"live_families"`      // gauge: not revoked
	ResourceServed    int `json:"resource_served"`    // answered 200 by the rules
	DiscoveryRequests int `json:"discovery_requests"` // metadata documents asked for
	ClientCredentials int `json:"client_credentials"` // grants to clients in their own name
	ClientDocuments   int `json:"client_documents"`   // client-id documents fetched and accepted
	DeviceRequests    int `json:"device_requests"`    // device codes given out
	WrongTargets      int `json:"wrong_targets"`      // requests refused with invalid_target
	ResourceForbidden int `json:"resource_forbidden"` // those of the resource answered 403 for want of scope
}

// LogEntry is one request, without any secret.
type LogEntry struct {
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	// Token is the fingerprint of the token that the request presented: the
	// first 16 hex digits of its SHA-256.
	Token string `json:"token,omitempty"`
	// Status is 0 while there is no answer and if there never was one.
	Status int `json:"status"`
	// Outcome is the OAuth error, "ok", or what kept the answer back
	// ("abandoned", "lost", "dropped", "hung").
	Outcome string `json:"outcome,omitempty"`
}

// requestLog keeps the last entries.
type requestLog struct {
	entries []*LogEntry
	next    int
	size    int
}

func (l *requestLog) add(e *LogEntry) {
	if len(l.entries) < l.size {
		l.entries = append(l.entries, e)
		return
	}
	l.entries[l.next] = e
	l.next = (l.next + 1) % l.size
}

// Counters returns all numbers as of one moment.
func (s *TokenServer) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Log returns the last requests, oldest first.
func (s *TokenServer) Log() []LogEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]LogEntry, 0, len(s.log.entries))
	for i := range s.log.entries {
		out = append(out, *s.log.entries[(s.log.next+i)%len(s.log.entries)])
	}
	return out
}

// WaitFor returns nil as soon as ok holds for the counters. It looks at every
// change of them, so that a gauge that rises and falls again is not missed by
// a poll. ok is called under the server's lock and must not call the server.
func (s *TokenServer) WaitFor(ctx context.Context, ok func(Counters) bool) error {
	w := &waiter{ok: ok, met: make(chan struct{})}
	s.mu.Lock()
	if ok(s.count) {
		s.mu.Unlock()
		return nil
	}
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.waiters[w] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiters, w)
		s.mu.Unlock()
	}()
	select {
	case <-w.met:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return ErrClosed
	}
}

// WaitForPosts returns nil once n token requests have arrived in all.
func (s *TokenServer) WaitForPosts(ctx context.Context, n int) error {
	return s.WaitFor(ctx, func(c Counters) bool { return c.TokenPosts >= n })
}

// WaitForHeld returns nil once n requests are held at p at the same time.
func (s *TokenServer) WaitForHeld(ctx context.Context, p Point, n int) error {
	return s.WaitFor(ctx, func(c Counters) bool {
		if p == After {
			return c.HeldAfter >= n
		}
		return c.HeldBefore >= n
	})
}

type waiter struct {
	ok  func(Counters) bool
	met chan struct{}
}

// update changes the counters and wakes those who waited for it. mu is held.
func (s *TokenServer) update(change func(*Counters)) {
	change(&s.count)
	for w := range s.waiters {
		if w.ok(s.count) {
			close(w.met)
			delete(s.waiters, w)
		}
	}
}
