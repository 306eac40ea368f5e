package sourceprogram

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	// lockStale is the decision's one constant: twice what a request may
	// take, so that no working holder is that old.
	lockStale = 60 * time.Second
	lockPoll  = 25 * time.Millisecond
)

var errLocked = errors.New("the lock was not obtained")

// lock is a lock file that this process made.
type lock struct{ path, nonce string }

// acquire makes the lock file. Whoever made it has the lock, and nobody else;
// having removed an old one gives no right to it.
func acquire(ctx context.Context, path string, stale time.Duration) (*lock, error) {
	l := &lock{path, newNonce()}
	backstop := time.Now().Add(2 * stale)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(l.nonce)
			if err := errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
			return l, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := breakIfStale(path, stale); err != nil {
			return nil, err
		}
		if time.Now().After(backstop) {
			return nil, fmt.Errorf("%w within %s", errLocked, 2*stale)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// breakIfStale removes a lock file that is too old, whoever made it. Between
// the look and the removal the file may become another one; the decision
// knows that and accepts it.
func breakIfStale(path string, stale time.Duration) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || time.Since(st.ModTime()) <= stale {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// release removes the file unless it is, by its nonce, somebody else's by
// now.
func (l *lock) release() error {
	b, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || string(b) != l.nonce {
		return err
	}
	return os.Remove(l.path)
}

// newNonce is a random UUID (RFC 9562, version 4).
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
