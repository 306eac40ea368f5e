package credstore

import (
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/spendonce/spendonce/internal/secret"
)

// Pin binds a session to the server it was made at: a refresh token goes
// nowhere else, whatever a configuration says later. Members that are empty
// were not known.
type Pin struct {
	Issuer                string         `json:"issuer,omitzero"`
	AuthorizationEndpoint string         `json:"authorizationEndpoint,omitzero"`
	TokenEndpoint         string         `json:"tokenEndpoint,omitzero"`
	RevocationEndpoint    string         `json:"revocationEndpoint,omitzero"`
	RegistrationEndpoint  string         `json:"registrationEndpoint,omitzero"`
	ClientID              string         `json:"clientId,omitzero"`
	ClientSecret          secret.Secret  `json:"clientSecret,omitzero"`
	ClientAuth            string         `json:"clientAuth,omitzero"` // RFC 8414 method name; "" is client_secret_post or none
	Registered            bool           `json:"registered,omitzero"` // ClientID came by dynamic registration (RFC 7591)
	Grant                 string         `json:"grant,omitzero"`      // "" is refresh_token; else client_credentials
	RedirectURI           string         `json:"redirectUri,omitzero"`
	Scope                 []string       `json:"scope,omitzero"` // as granted
	Resource              string         `json:"resource,omitzero"`
	Dialect               string         `json:"dialect,omitzero"`
	TokenUse              string         `json:"tokenUse,omitzero"` // which token of an answer is handed out: "" is the access token; else [UseIDToken]
	Subject               string         `json:"subject,omitzero"`
	Email                 string         `json:"email,omitzero"`
	Unknown               jsontext.Value `json:",embed"`
}

// ClientCredentials is the Grant of a session that is renewed with the
// client's own secret (RFC 6749 section 4.4). Nothing of it is spent by use.
const ClientCredentials = "client_credentials"

// renewsByClient reports whether it is the client's secret that renews the
// session, and no refresh token.
func (s *session) renewsByClient() bool {
	return s != nil && s.Pin != nil && s.Pin.Grant == ClientCredentials
}

// UseIDToken, as [Pin.TokenUse], makes the ID token of an answer the one that
// the target hands out, as Kubernetes wants it.
const UseIDToken = "id_token"

// session is sessions/<target>.json: what we must know of a target and a
// program that shares the store must not see.
type session struct {
	Version int      `json:"version"`
	Target  string   `json:"target,omitzero"` // whose file it is: names may differ by case only, files on some systems not
	URL     string   `json:"url,omitzero"`
	Hosts   []string `json:"hosts,omitzero"`   // further origins that may get the token
	LoginID string   `json:"loginId,omitzero"` // random, new at each login, kept by refreshes
	Pin     *Pin     `json:"pin,omitzero"`
	Pending *pending `json:"pending,omitzero"`
	// UnknownServer: a login was cut short and another program has changed
	// the record since, so nobody can tell whose the stored token is.
	UnknownServer bool `json:"unknownServer,omitzero"`

	// Moving: another copy of the session is made elsewhere, or was, so this
	// one is not refreshed.
	Moving bool `json:"moving,omitzero"`

	ObtainedAt      time.Time `json:"obtainedAt,omitzero"`
	LifetimeSeconds float64   `json:"lifetimeSeconds,omitzero"` // of the last access token; 0 if unknown

	// Bound to the refresh token RefreshToken names; void when it changes.
	RefreshToken  string    `json:"refreshToken,omitzero"`  // fingerprint
	LoginRequired string    `json:"loginRequired,omitzero"` // "refused" or "unknown"
	NotBefore     time.Time `json:"notBefore,omitzero"`
	Failures      int       `json:"failures,omitzero"`

	Forced      []time.Time    `json:"forced,omitzero"` // sends that a rejection forced
	LastOutcome *Outcome       `json:"lastOutcome,omitzero"`
	Unknown     jsontext.Value `json:",embed"`
}

// pending is a login whose second file may not have been written yet. It
// counts if the store holds the refresh token it names, and never happened if
// the store holds the one it replaces.
type pending struct {
	URL          string         `json:"url,omitzero"`
	Hosts        []string       `json:"hosts,omitzero"`
	LoginID      string         `json:"loginId"`
	RefreshToken string         `json:"refreshToken"` // fingerprint; of the access token if there is no refresh token
	Replaces     string         `json:"replaces"`     // likewise; "" if nothing was stored
	Pin          Pin            `json:"pin"`
	Unknown      jsontext.Value `json:",embed"`
}

// Outcome is how the last exchange of a target ended.
type Outcome struct {
	ID           string         `json:"id"`
	Time         time.Time      `json:"time"`
	RefreshToken string         `json:"refreshToken"` // fingerprint of the token that was sent
	Class        Class          `json:"class"`
	Unknown      bool           `json:"outcomeUnknown,omitzero"` // a refusal after a send without an answer
	Status       int            `json:"status,omitzero"`         // HTTP
	Code         string         `json:"code,omitzero"`           // OAuth error code
	Text         string         `json:"text,omitzero"`           // short, clean
	ServerDate   time.Time      `json:"serverDate,omitzero"`
	Rest         jsontext.Value `json:",embed"`
}

const sessionVersion = 1

var sessionOptions = json.JoinOptions(
	json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, s secret.Secret) error {
		return e.WriteToken(jsontext.String(s.Reveal()))
	})),
	json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, s *secret.Secret) error {
		t, err := d.ReadToken()
		if err != nil {
			return err
		}
		if t.Kind() != '"' {
			return errors.New("not a string")
		}
		*s = secret.New(t.String())
		return nil
	})),
	jsontext.WithIndent("  "),
)

func parseSession(b []byte, target string) (*session, error) {
	s, ok := quickSession(b)
	if !ok {
		var err error
		if s, err = carefulSession(b); err != nil {
			return nil, err
		}
	}
	if s.Version != sessionVersion {
		return nil, &damage{0, "a version this program does not know"}
	}
	if s.Target != "" && s.Target != target {
		return nil, &damage{0, "the file of another target"}
	}
	return s, nil
}

func carefulSession(b []byte) (*session, error) {
	if _, err := parseDocument(b); err != nil {
		return nil, err
	}
	s := &session{}
	if err := json.Unmarshal(b, s, sessionOptions); err != nil {
		var semantic *json.SemanticError
		if errors.As(err, &semantic) {
			return nil, &damage{semantic.ByteOffset, "a member of the wrong type"}
		}
		return nil, &damage{0, "not a session file"}
	}
	return s, nil
}

func (s *session) encode() ([]byte, error) {
	b, err := json.Marshal(s, sessionOptions)
	return append(b, '\n'), err
}

// clone returns a copy whose members can be replaced, for a session that was
// read may be shared by its cache; a nil session gives an empty one.
func (s *session) clone() *session {
	if s == nil {
		return &session{Version: sessionVersion}
	}
	c := *s
	c.Forced = slices.Clone(s.Forced)
	if s.Pin != nil {
		pin := *s.Pin
		c.Pin = &pin
	}
	return &c
}

// settled decides a login that may have been cut short, by the refresh token
// that the store holds. One that is neither the login's nor its predecessor's
// was put there by a program that knows nothing of this file, after a refresh
// at one server or the other: it goes to none.
func (s *session) settled(r Record) *session {
	if s == nil || s.Pending == nil {
		return s
	}
	c := s.clone()
	c.Pending = nil
	switch stored := r.fingerprint(); {
	case r.Kind != KindOIDC, stored == s.Pending.Replaces:
		return c
	case stored == s.Pending.RefreshToken:
		return c.signedIn(s.Pending)
	default:
		c.Pin, c.UnknownServer = nil, true
		return c
	}
}

// signedIn is the session that a login leaves: nothing of the old one stays
// but what a newer program wrote beside it.
func (s *session) signedIn(p *pending) *session {
	pin := p.Pin
	return &session{Version: sessionVersion, URL: p.URL, Hosts: p.Hosts, LoginID: p.LoginID, Pin: &pin, RefreshToken: p.RefreshToken, Unknown: s.Unknown}
}

// about returns the state that is bound to the refresh token, or none of it
// if the state speaks of another one.
func (s *session) about(refresh secret.Secret) (loginRequired string, notBefore time.Time, failures int) {
	if s == nil || s.RefreshToken != refresh.Fingerprint() {
		return "", time.Time{}, 0
	}
	return s.LoginRequired, s.NotBefore, s.Failures
}

func (s *session) lifetime() time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(s.LifetimeSeconds * float64(time.Second))
}

func (s *session) outcomeID() string {
	if s == nil || s.LastOutcome == nil {
		return ""
	}
	return s.LastOutcome.ID
}
