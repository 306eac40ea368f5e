package sourceprogram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"
)

const (
	requestBound = 30 * time.Second
	skew         = 60 * time.Second
	// iso is what JavaScript's toISOString writes.
	iso = "2006-01-02T15:04:05.000Z"
)

// token prints the target's access token. The lock is held from the reading
// to the commit, over the request too: a refresh token is good for one use.
func (p *program) token(ctx context.Context, target string) error {
	records, err := read(p.store)
	if err != nil {
		return err
	}
	if r, ok := records[target].(map[string]any); ok && r["kind"] == "static" {
		return p.print(fmt.Sprint(r["token"]))
	}
	r, ok := sessionOf(records, target)
	if !ok {
		return errNothing
	}
	if at, err := time.Parse(time.RFC3339, r.ExpiresAt); err == nil && time.Until(at) > skew {
		return p.print(r.AccessJwt)
	}
	next, err := p.refresh(ctx, r)
	if err != nil {
		return err
	}
	if err := p.commit(target, r.RefreshToken, next); err != nil {
		return err
	}
	return p.print(next.AccessJwt)
}

func (p *program) print(token string) error {
	_, err := fmt.Fprintln(p.out, token)
	return err
}

// refresh sends the refresh token and returns the record that the answer
// makes: the five members, and what the answer leaves out as it was.
func (p *program) refresh(ctx context.Context, r oidc) (oidc, error) {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	body, err := json.Marshal(map[string]string{"grant_type": "refresh_token", "refresh_token": r.RefreshToken})
	if err != nil {
		return oidc{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.origin+"/v1/identity/token", bytes.NewReader(body))
	if err != nil {
		return oidc{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := new(http.Client).Do(req)
	if err != nil {
		return oidc{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return oidc{}, err
	}
	var answer struct {
		AccessJwt    string          `json:"access_jwt"`
		ExpiresAt    json.RawMessage `json:"expires_at"`
		RefreshToken string          `json:"refresh_token"`
		Org          string          `json:"org"`
		Error        string          `json:"error"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return oidc{}, fmt.Errorf("the server answered %d and no JSON", res.StatusCode)
	}
	switch {
	case answer.Error == "invalid_grant":
		return oidc{}, errLogin
	case res.StatusCode != http.StatusOK || answer.AccessJwt == "":
		return oidc{}, fmt.Errorf("the server answered %d", res.StatusCode)
	}
	next := oidc{Kind: "oidc", RefreshToken: r.RefreshToken, AccessJwt: answer.AccessJwt, ExpiresAt: expiry(answer.ExpiresAt), Org: r.Org}
	if answer.RefreshToken != "" {
		next.RefreshToken = answer.RefreshToken
	}
	if answer.Org != "" {
		next.Org = answer.Org
	}
	return next, nil
}

// expiry reads what servers of this dialect say: seconds since 1970, or
// RFC 3339.
func expiry(raw json.RawMessage) string {
	var seconds float64
	if json.Unmarshal(raw, &seconds) == nil {
		return time.Unix(int64(seconds), 0).UTC().Format(iso)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at.UTC().Format(iso)
		}
	}
	return ""
}

// commit stores next if the record still holds the refresh token that was
// sent. Else somebody removed it or signed in anew, and nothing is written.
func (p *program) commit(target, sent string, next oidc) error {
	records, err := read(p.store)
	if err != nil {
		return err
	}
	if r, ok := sessionOf(records, target); !ok || r.RefreshToken != sent {
		return nil
	}
	records[target] = next
	return write(p.store, records)
}

// read parses the whole file; a missing one is empty.
func read(path string) (map[string]any, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, err
	}
	var records map[string]any
	if err := json.Unmarshal(b, &records); err != nil || records == nil {
		return nil, fmt.Errorf("%s is no JSON object", path)
	}
	return records, nil
}

// write replaces the whole file: a temporary one beside it, then a rename.
func write(path string, records map[string]any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(records); err != nil {
		return err
	}
	temp := path + "." + newNonce() + ".tmp"
	if err := os.WriteFile(temp, b.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
