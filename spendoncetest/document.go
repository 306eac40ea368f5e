package spendoncetest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	documentBound = 5 * time.Second
	maxDocument   = 64 << 10
)

// fetchClient makes a client known whose id is the URL of its metadata, if the
// server takes such ones: again if refetch says so, else unless it is known. A
// client whose document is not accepted is unknown from then on. mu is not
// held, for the document may come slowly.
func (s *TokenServer) fetchClient(q *request, refetch bool) {
	id := q.params.Get("client_id")
	if !q.cfg.ClientIDMetadata || !isClientURL(id) {
		return
	}
	s.mu.Lock()
	_, known := s.clients[id]
	s.mu.Unlock()
	if known && !refetch {
		return
	}
	client, err := readDocument(q.r.Context(), q.cfg.DocumentTLS, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.clients, id)
		return
	}
	s.clients[id] = client
	s.update(func(c *Counters) { c.ClientDocuments++ })
}

// isClientURL checks the form of a client id that is a URL: it has a path of
// its own, without dot segments, and neither user information nor fragment.
// Here it also has no query, which the draft only advises against.
func isClientURL(id string) bool {
	u, err := url.Parse(id)
	if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(id, "#?") ||
		len(u.Path) < 2 || strings.TrimSuffix(u.Path, "/") != path.Clean(u.Path) {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && ip != nil && ip.IsLoopback()
}

// readDocument fetches and judges a client-id document. No redirect is
// followed: another place's document is another client's.
func readDocument(ctx context.Context, conf *tls.Config, id string) (Client, error) {
	ctx, cancel := context.WithTimeout(ctx, documentBound)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return Client{}, err
	}
	req.Header.Set("Accept", "application/json")
	tr := &http.Transport{TLSClientConfig: conf, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return Client{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return Client{}, err
	case resp.StatusCode != http.StatusOK:
		return Client{}, fmt.Errorf("status %d", resp.StatusCode)
	case len(body) > maxDocument:
		return Client{}, errors.New("the document is too long")
	}
	return clientOf(id, body)
}

// clientOf judges the document that stands at the URL id. Such a client has
// no secret, since everybody can read its registration.
func clientOf(id string, body []byte) (Client, error) {
	var doc struct {
		ClientID     string   `json:"client_id"`
		RedirectURIs []string `json:"redirect_uris"`
		GrantTypes   []string `json:"grant_types"`
		AuthMethod   string   `json:"token_endpoint_auth_method"`
	}
	var members map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(body, &members), json.Unmarshal(body, &doc)); err != nil {
		return Client{}, err
	}
	_, secret := members["client_secret"]
	_, expiry := members["client_secret_expires_at"]
	switch {
	case doc.ClientID != id:
		return Client{}, errors.New("the document names another client")
	case secret || expiry || doc.AuthMethod != "none":
		return Client{}, errors.New("the document is not that of a public client")
	case len(doc.RedirectURIs) == 0 && (len(doc.GrantTypes) == 0 || slices.Contains(doc.GrantTypes, "authorization_code")):
		return Client{}, errors.New("the document has no redirect URIs")
	}
	if len(doc.GrantTypes) == 0 {
		doc.GrantTypes = []string{"authorization_code"} // RFC 7591, section 2
	}
	return Client{ID: id, RedirectURIs: doc.RedirectURIs, GrantTypes: doc.GrantTypes}, nil
}
