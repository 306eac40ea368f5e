// Package baseline is the client that this project is measured against: what
// a careful programmer writes in an afternoon with flock(2).
//
// What it promises: as long as nobody crashes, is stopped or fills the disk,
// one of the processes that ask at once refreshes and the others take its
// result. The file is replaced by rename after an fsync, so that readers see
// the old session or the new one.
//
// What it does not promise, and what leaving it out makes cheaper: it does not
// prove before the send that the answer can be saved, remembers nothing of a
// send whose sender died, syncs no directory, keeps one session per file and
// never looks who the file belongs to, waits for ever behind a stopped holder,
// gives a signal no chance to wait for the commit, takes no failure over from
// the process that made it (each of those that waited sends again), and does
// not check which server a session was made at.
//
// With Unlocked it is the client that most programs really have: without the
// lock, so that processes that ask at once spend one refresh token twice.
package baseline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Client shares the session in one file.
type Client struct {
	Path     string // of the session; the lock is beside it
	Endpoint string
	ClientID string
	Unlocked bool
}

// Session is the content of the file.
type Session struct {
	AccessToken  string    `json:"access_token"`
	RefreshToken string    `json:"refresh_token"`
	ExpiresAt    time.Time `json:"expires_at"`
}

// skew is how long before its expiry a token is refreshed.
const skew = time.Minute

// Token returns a fresh access token.
func (c *Client) Token(ctx context.Context) (string, error) {
	s, err := Read(c.Path)
	if err != nil {
		return "", err
	}
	if s.fresh() {
		return s.AccessToken, nil
	}
	if !c.Unlocked {
		unlock, err := lock(c.Path + ".lock")
		if err != nil {
			return "", err
		}
		defer unlock()
		if s, err = Read(c.Path); err != nil {
			return "", err
		}
		if s.fresh() {
			return s.AccessToken, nil
		}
	}
	if s, err = c.refresh(ctx, s); err != nil {
		return "", err
	}
	return s.AccessToken, s.Write(c.Path)
}

func (s Session) fresh() bool { return time.Until(s.ExpiresAt) > skew }

// Read reads the session in the file at path.
func Read(path string) (Session, error) {
	var s Session
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// Write replaces the file at path.
func (s Session) Write(path string) (err error) {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// lock blocks until it has the lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

func (c *Client) refresh(ctx context.Context, s Session) (Session, error) {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {s.RefreshToken}, "client_id": {c.ClientID}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return s, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", UserAgent(os.Getpid()))
	client := &http.Client{Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	var answer struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		ExpiresIn    int    `json:"expires_in"`
		Error        string `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return s, err
	}
	if resp.StatusCode != http.StatusOK || answer.AccessToken == "" {
		return s, fmt.Errorf("the server answers %d %s", resp.StatusCode, answer.Error)
	}
	s.AccessToken = answer.AccessToken
	if answer.RefreshToken != "" {
		s.RefreshToken = answer.RefreshToken
	}
	s.ExpiresAt = time.Now().Add(time.Duration(answer.ExpiresIn) * time.Second)
	return s, nil
}

// UserAgent is how the process pid calls itself, for the picture of a storm.
func UserAgent(pid int) string { return fmt.Sprintf("baseline/%d", pid) }
