package spendoncetest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// Endpoint names what an [Answer] is for.
type Endpoint string

// The endpoints. TokenEndpoints, the zero value, means the token endpoints of
// both dialects.
const (
	TokenEndpoints        Endpoint = ""
	OAuth2Endpoint        Endpoint = "oauth2"
	HypawareEndpoint      Endpoint = "hypaware"
	ResourceEndpoint      Endpoint = "resource"
	AuthorizationEndpoint Endpoint = "authorize"
	LoginEndpoint         Endpoint = "login"
	RevocationEndpoint    Endpoint = "revoke"
	RegistrationEndpoint  Endpoint = "register"
	DeviceEndpoint        Endpoint = "device"
	DiscoveryEndpoint     Endpoint = "discovery"
	AnyEndpoint           Endpoint = "*"
)

func (e Endpoint) known() bool {
	switch e {
	case TokenEndpoints, OAuth2Endpoint, HypawareEndpoint, ResourceEndpoint, AuthorizationEndpoint, LoginEndpoint,
		RevocationEndpoint, RegistrationEndpoint, DeviceEndpoint, DiscoveryEndpoint, AnyEndpoint:
		return true
	}
	return false
}

// Point is a place in the life of a request.
type Point string

const (
	// Before: received in full, nothing done. A client that goes away here
	// has spent nothing: its request is abandoned.
	Before Point = "before"
	// After: processed, a rotation is final, the answer not yet written.
	After Point = "after"
)

// Answer scripts the answer to a request. The zero value is the normal answer
// of a token endpoint, once. Answers wait in a queue; a request takes the
// first one that fits it.
//
// Status, Body, Error and Location make an answer that replaces the normal
// one: the request is then not processed, unless Process says so. All other
// fields leave the processing as it is and change what is seen of it.
//
// In Body, Description, Location and the values of Header, {name} stands for
// the request's parameter of that name ({refresh_token}, {client_secret}), as
// careless servers echo it; the bearer token of a request is {token}.
type Answer struct {
	Endpoint Endpoint `json:"endpoint,omitempty"`
	// Path, if set, is the exact request path this answer is for.
	Path string `json:"path,omitempty"`
	// IfParam and UnlessParam, if set, restrict it to requests that have, or
	// have not, a parameter of that name.
	IfParam     string `json:"if_param,omitempty"`
	UnlessParam string `json:"unless_param,omitempty"`
	// Times is how many requests get it: 1 if 0, without end if negative.
	Times int `json:"times,omitempty"`

	// Process makes a replacing answer come after the normal processing.
	Process bool `json:"process,omitempty"`

	Status      int               `json:"status,omitempty"`
	Header      map[string]string `json:"header,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Body        string            `json:"body,omitempty"`
	// Error and Description make an OAuth error in JSON, status 400 unless
	// Status is set.
	Error       string `json:"error,omitempty"`
	Description string `json:"error_description,omitempty"`
	// Location redirects, with status 307 unless Status is set.
	Location string `json:"location,omitempty"`

	// Set replaces members of a JSON answer by raw JSON (expires_in: 1e18,
	// refresh_token: null); Omit leaves members out.
	Set  map[string]json.RawMessage `json:"set,omitempty"`
	Omit []string                   `json:"omit,omitempty"`
	// Form sends a JSON answer form-encoded.
	Form bool `json:"form,omitempty"`

	// Hold keeps the request at that point until [TokenServer.Release].
	Hold Point `json:"hold,omitempty"`
	// Delay (delay_ms) passes after the processing, before the answer.
	Delay time.Duration `json:"-"`
	// Drop closes the connection without an answer, before or after the
	// processing; Reset makes that a TCP reset.
	Drop  Point `json:"drop,omitempty"`
	Reset bool  `json:"reset,omitempty"`
	// Hang never answers: unprocessed, unless Process is set.
	Hang bool `json:"hang,omitempty"`
	// Truncate sends half of the body and closes; with Hang it sends half
	// and then nothing more.
	Truncate bool `json:"truncate,omitempty"`
}

// MarshalJSON writes the form of the control API.
func (a Answer) MarshalJSON() ([]byte, error) {
	type plain Answer
	return json.Marshal(struct {
		plain
		DelayMS int64 `json:"delay_ms,omitempty"`
	}{plain(a), a.Delay.Milliseconds()})
}

// UnmarshalJSON reads the form of the control API; unknown members are
// errors, so that a misspelt script does not pass for a working one.
func (a *Answer) UnmarshalJSON(b []byte) error {
	type plain Answer
	v := struct {
		plain
		DelayMS int64 `json:"delay_ms"`
	}{}
	if err := strictJSON(b, &v); err != nil {
		return err
	}
	*a = Answer(v.plain)
	a.Delay = time.Duration(v.DelayMS) * time.Millisecond
	return nil
}

func (a Answer) check() error {
	if !a.Endpoint.known() {
		return fmt.Errorf("no endpoint is called %q", a.Endpoint)
	}
	for _, p := range []Point{a.Hold, a.Drop} {
		if p != "" && p != Before && p != After {
			return fmt.Errorf("a point is %q or %q, not %q", Before, After, p)
		}
	}
	if a.Status != 0 && (a.Status < 200 || a.Status > 999) {
		return fmt.Errorf("status %d cannot be sent", a.Status)
	}
	if a.Delay < 0 {
		return fmt.Errorf("delay %v is negative", a.Delay)
	}
	for name, raw := range a.Set {
		if !json.Valid(raw) {
			return fmt.Errorf("member %q is not set to JSON", name)
		}
	}
	return nil
}

// replaces reports whether the normal answer is not wanted.
func (a Answer) replaces() bool {
	return a.Status != 0 || a.Body != "" || a.Error != "" || a.Location != ""
}

// processes reports whether the request takes its normal course first.
func (a Answer) processes() bool {
	if a.Drop == Before {
		return false
	}
	return a.Process || a.Drop == After || (!a.replaces() && (!a.Hang || a.Truncate))
}

func (a Answer) fits(e Endpoint, path string, params url.Values) bool {
	switch a.Endpoint {
	case AnyEndpoint, e:
	case TokenEndpoints:
		if e != OAuth2Endpoint && e != HypawareEndpoint {
			return false
		}
	default:
		return false
	}
	return (a.Path == "" || a.Path == path) &&
		(a.IfParam == "" || params.Has(a.IfParam)) &&
		(a.UnlessParam == "" || !params.Has(a.UnlessParam))
}

// Script appends answers to the queue.
func (s *TokenServer) Script(answers ...Answer) error {
	for i, a := range answers {
		if err := a.check(); err != nil {
			return fmt.Errorf("scripting answer %d: %w", i, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range answers {
		if a.Times == 0 {
			a.Times = 1
		}
		s.script = append(s.script, &a)
	}
	return nil
}

// ClearScript empties the queue. Requests that already have their scripted
// answer keep it.
func (s *TokenServer) ClearScript() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = nil
}

// takeAnswer uses up the first fitting answer. mu is held.
func (s *TokenServer) takeAnswer(e Endpoint, path string, params url.Values) (Answer, bool) {
	for i, a := range s.script {
		if !a.fits(e, path, params) {
			continue
		}
		taken := *a
		if a.Times > 0 {
			if a.Times--; a.Times == 0 {
				s.script = slices.Delete(s.script, i, i+1)
			}
		}
		return taken, true
	}
	return Answer{}, false
}
