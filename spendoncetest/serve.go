package spendoncetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spendonce/spendonce/internal/secret"
)

// Ready is the line that [Serve] prints when the server listens. It shows the
// control secret and the client secret: whoever started the server is to use
// them.
type Ready struct {
	Event            string `json:"event"` // "ready"
	Version          int    `json:"version"`
	URL              string `json:"url"`
	Issuer           string `json:"issuer"`
	TokenEndpoint    string `json:"token_endpoint"`
	HypawareEndpoint string `json:"hypaware_token_endpoint"`
	Resource         string `json:"resource"`
	ClientID         string `json:"client_id"`
	ClientSecret     string `json:"client_secret,omitempty"`
	User             string `json:"user,omitempty"`
	Password         string `json:"password,omitempty"`
	ControlURL       string `json:"control_url"`
	ControlHeader    string `json:"control_header"`
	ControlSecret    string `json:"control_secret"`
}

// Final is the line that [Serve] prints at its end.
type Final struct {
	Event    string   `json:"event"` // "done"
	Version  int      `json:"version"`
	Counters Counters `json:"counters"`
}

// Serve runs a token server until ctx ends: one JSON line on stdout when it
// is ready, one with the final counters. It returns nil when ctx ended it.
func Serve(ctx context.Context, cfg TokenServerConfig, stdout io.Writer) error {
	s, err := StartTokenServer(cfg)
	if err != nil {
		return fmt.Errorf("starting the token server: %w", err)
	}
	defer s.Close()
	if err := json.NewEncoder(stdout).Encode(s.ready(cfg)); err != nil {
		return fmt.Errorf("saying that the token server is ready: %w", err)
	}
	<-ctx.Done()
	if err := s.Close(); err != nil {
		return fmt.Errorf("closing the token server: %w", err)
	}
	if err := json.NewEncoder(stdout).Encode(Final{Event: "done", Version: 1, Counters: s.Counters()}); err != nil {
		return fmt.Errorf("writing the final counters: %w", err)
	}
	return nil
}

func (s *TokenServer) ready(cfg TokenServerConfig) Ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Ready{Event: "ready", Version: 1, URL: s.base, Issuer: s.issuer,
		TokenEndpoint: s.TokenEndpoint(), HypawareEndpoint: s.HypawareEndpoint(), Resource: s.ResourceURL(),
		ClientID: s.clientID, ClientSecret: s.clients[s.clientID].Secret,
		ControlURL: s.ControlURL(), ControlHeader: ControlHeader, ControlSecret: s.controlSecret}
	if len(cfg.Users) == 0 {
		r.User, r.Password = DefaultUser, DefaultPassword
	}
	return r
}

// ControlURL is where the control API stands, with a slash at its end.
func (s *TokenServer) ControlURL() string { return s.local + pathControl }

// ControlSecret is what requests to the control API carry in
// [ControlHeader]. It is new in every run.
func (s *TokenServer) ControlSecret() secret.Secret { return secret.New(s.controlSecret) }
