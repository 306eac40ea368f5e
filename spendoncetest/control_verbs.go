package spendoncetest

import (
	"bytes"
	"errors"
	"net/http"
	"time"
)

// controlSession is the one answer that shows tokens: they are made for the
// asker.
type controlSession struct {
	Account      string    `json:"account"`
	ClientID     string    `json:"client_id"`
	AccessToken  string    `json:"access_token"`
	RefreshToken string    `json:"refresh_token"`
	ExpiresAt    time.Time `json:"expires_at"`
}

func (s *TokenServer) controlSessions(_ *http.Request, body []byte) (any, error) {
	var in struct {
		Account string `json:"account"`
	}
	if err := strictJSON(body, &in); err != nil {
		return nil, err
	}
	if in.Account == "" {
		return nil, errors.New("account is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.newSession(in.Account)
	return controlSession{Account: in.Account, ClientID: s.clientID, AccessToken: p.access,
		RefreshToken: p.refresh, ExpiresAt: p.expires.UTC()}, nil
}

// controlScript takes one answer or a list of them.
func (s *TokenServer) controlScript(_ *http.Request, body []byte) (any, error) {
	var answers []Answer
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := strictJSON(body, &answers); err != nil {
			return nil, err
		}
	} else {
		answers = make([]Answer, 1)
		if err := strictJSON(body, &answers[0]); err != nil {
			return nil, err
		}
	}
	return done{true}, s.Script(answers...)
}

type controlToken struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	Family       string `json:"family"`
}

// controlRevoke ends one access token, or the family of any token.
func (s *TokenServer) controlRevoke(_ *http.Request, body []byte) (any, error) {
	var in controlToken
	if err := strictJSON(body, &in); err != nil {
		return nil, err
	}
	switch {
	case in.AccessToken != "":
		return done{true}, s.RevokeAccessToken(in.AccessToken)
	case in.RefreshToken != "":
		return done{true}, s.RevokeFamily(in.RefreshToken)
	case in.Family != "":
		return done{true}, s.RevokeFamily(in.Family)
	}
	return nil, errors.New("access_token, refresh_token or family is missing")
}

func (s *TokenServer) controlLive(_ *http.Request, body []byte) (any, error) {
	var in controlToken
	if err := strictJSON(body, &in); err != nil {
		return nil, err
	}
	switch {
	case in.AccessToken != "":
		return map[string]bool{"live": s.Live(in.AccessToken)}, nil
	case in.RefreshToken != "":
		return map[string]bool{"live": s.Spendable(in.RefreshToken)}, nil
	}
	return nil, errors.New("access_token or refresh_token is missing")
}

func (s *TokenServer) controlDevice(_ *http.Request, body []byte) (any, error) {
	var in struct {
		UserCode string `json:"user_code"`
		Account  string `json:"account"`
		Deny     bool   `json:"deny"`
	}
	if err := strictJSON(body, &in); err != nil {
		return nil, err
	}
	if in.Deny {
		return done{true}, s.DenyDevice(in.UserCode)
	}
	return done{true}, s.ApproveDevice(in.UserCode, in.Account)
}

func (s *TokenServer) controlForget(_ *http.Request, body []byte) (any, error) {
	var in struct {
		ClientID string `json:"client_id"`
	}
	if err := strictJSON(body, &in); err != nil {
		return nil, err
	}
	if !s.ForgetClient(in.ClientID) {
		return nil, &controlError{404, "no client has that id"}
	}
	return done{true}, nil
}

// settings is what may change while the server runs, durations in
// milliseconds. Members that a request leaves out stay as they are.
type settings struct {
	Lifetime            *int64  `json:"lifetime_ms,omitempty"`
	CodeLifetime        *int64  `json:"code_lifetime_ms,omitempty"`
	ReuseGrace          *int64  `json:"reuse_grace_ms,omitempty"`
	LatencyBefore       *int64  `json:"latency_before_ms,omitempty"`
	Latency             *int64  `json:"latency_ms,omitempty"`
	DeviceInterval      *int64  `json:"device_interval_ms,omitempty"`
	NoRotation          *bool   `json:"no_rotation,omitempty"`
	NoFamilyRevocation  *bool   `json:"no_family_revocation,omitempty"`
	RequireClientSecret *bool   `json:"require_client_secret,omitempty"`
	JWTAccessTokens     *bool   `json:"jwt_access_tokens,omitempty"`
	IDTokenOnRefresh    *bool   `json:"id_token_on_refresh,omitempty"`
	RFC3339Expiry       *bool   `json:"rfc3339_expiry,omitempty"`
	RejectResource      *bool   `json:"reject_resource,omitempty"`
	ClientIDMetadata    *bool   `json:"client_id_metadata,omitempty"`
	NoRegistration      *bool   `json:"no_registration,omitempty"`
	CallbackIssuer      *string `json:"callback_issuer,omitempty"`
	RequiredScope       *string `json:"required_scope,omitempty"`
	ChallengeScope      *string `json:"challenge_scope,omitempty"`
	RequireResource     *string `json:"require_resource,omitempty"`
}

// fields pairs the members with those of the config.
func (v *settings) fields(c *TokenServerConfig) (map[**int64]*time.Duration, map[**bool]*bool, map[**string]*string) {
	return map[**int64]*time.Duration{&v.Lifetime: &c.Lifetime, &v.CodeLifetime: &c.CodeLifetime,
			&v.ReuseGrace: &c.ReuseGrace, &v.LatencyBefore: &c.LatencyBefore, &v.Latency: &c.Latency,
			&v.DeviceInterval: &c.DeviceInterval},
		map[**bool]*bool{&v.NoRotation: &c.NoRotation, &v.NoFamilyRevocation: &c.NoFamilyRevocation,
			&v.RequireClientSecret: &c.RequireClientSecret, &v.JWTAccessTokens: &c.JWTAccessTokens,
			&v.IDTokenOnRefresh: &c.IDTokenOnRefresh, &v.RFC3339Expiry: &c.RFC3339Expiry, &v.RejectResource: &c.RejectResource,
			&v.ClientIDMetadata: &c.ClientIDMetadata, &v.NoRegistration: &c.NoRegistration},
		map[**string]*string{&v.CallbackIssuer: &c.CallbackIssuer, &v.RequiredScope: &c.RequiredScope,
			&v.ChallengeScope: &c.ChallengeScope, &v.RequireResource: &c.RequireResource}
}

func (s *TokenServer) controlSettings() settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg, out := s.cfg, settings{}
	durations, flags, texts := out.fields(&cfg)
	for member, d := range durations {
		*member = new(d.Milliseconds())
	}
	for member, flag := range flags {
		*member = flag
	}
	for member, text := range texts {
		*member = text
	}
	return out
}

func (s *TokenServer) controlConfigure(_ *http.Request, body []byte) (any, error) {
	var in settings
	if err := strictJSON(body, &in); err != nil {
		return nil, err
	}
	err := s.Configure(func(c *TokenServerConfig) {
		durations, flags, texts := in.fields(c)
		for member, d := range durations {
			if *member != nil {
				*d = time.Duration(**member) * time.Millisecond
			}
		}
		for member, flag := range flags {
			if *member != nil {
				*flag = **member
			}
		}
		for member, text := range texts {
			if *member != nil {
				*text = **member
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return s.controlSettings(), nil
}
