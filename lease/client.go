//go:build linux

package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/wire"
	"github.com/spendonce/spendonce/peercred"
)

var (
	// ErrNoBroker says that nobody listens at the socket. Nothing was sent.
	ErrNoBroker = errors.New("no broker is running")
	// ErrUnsafeServer says that the socket, or a directory that leads to it,
	// could be another user's. Nothing was sent.
	ErrUnsafeServer = errors.New("the broker's socket is not safe")
	// ErrOutcomeUnknown says that the request was sent and no answer came. A
	// token that was to be consumed must be taken as spent: it may have been,
	// and asking again would tell a replay from an accident no better.
	ErrOutcomeUnknown = errors.New("the broker gave no answer, so the outcome is unknown")
)

// Client asks a broker. The zero value asks the one at [DefaultSocket]. It
// holds no connection: every call makes one, and may be made from any
// goroutine.
//
// Errors are a [Refusal], one of the sentinels beside it, or the end of the
// context.
type Client struct {
	// Socket is the path the broker listens at; empty: [DefaultSocket].
	Socket string
	// Timeout bounds a call whose context has no deadline, retries included
	// [10 s].
	Timeout time.Duration
	// Retries is how often a call is made again after a refusal that says
	// that nothing happened (see [Refusal.Retry]) [3]: at most 3 times;
	// negative: never.
	Retries int

	judged atomic.Pointer[string] // the socket whose directory was found good
}

// RegisterAnchor makes this process the anchor of a session and returns it.
// The same generation again returns the same session; a higher one keeps the
// id and revokes every token of before; a lower one is [ErrGenerationStale].
// The session ends when this process exits.
func (c *Client) RegisterAnchor(ctx context.Context, generation uint64) (Session, error) {
	a, err := c.call(ctx, wire.Request{Action: wire.RegisterAnchor, Generation: generation})
	if err != nil {
		return Session{}, err
	}
	return Session{ID: a.SessionID, Generation: a.Generation}, nil
}

// Authenticate proves that this process is the session's anchor or descends
// from it, and that the session has this generation. It changes nothing.
func (c *Client) Authenticate(ctx context.Context, s Session) error {
	_, err := c.call(ctx, wire.Request{Action: wire.Authenticate, SessionID: s.ID, Generation: s.Generation})
	return err
}

// Mint returns a new token that one process of the session can consume once,
// while the session has this generation. When it returns, the token is on the
// broker's disk.
func (c *Client) Mint(ctx context.Context, s Session, b Binding) (Secret, error) {
	a, err := c.call(ctx, wire.Request{Action: wire.MintToken, SessionID: s.ID, Generation: s.Generation, Binding: wire.Binding(b)})
	return a.Token, err
}

// Consume spends a token and returns what it was minted for. Of all calls for
// one token, in all processes and over all crashes, at most one returns nil;
// every other is [ErrTokenReplay], or [ErrOutcomeUnknown] where the answer was
// lost.
func (c *Client) Consume(ctx context.Context, s Session, token Secret) (Binding, error) {
	a, err := c.call(ctx, wire.Request{Action: wire.ConsumeToken, SessionID: s.ID, Generation: s.Generation, Token: token})
	return Binding(a.Binding), err
}

// call sends a request, again where that is safe.
func (c *Client) call(ctx context.Context, q wire.Request) (wire.Answer, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		timeout := c.Timeout
		if timeout <= 0 {
			timeout = 10 * time.Second
		}
		deadline = time.Now().Add(timeout)
	}
	if err := ended(ctx, deadline); err != nil {
		return wire.Answer{}, err
	}
	path := c.Socket
	if path == "" {
		var err error
		if path, err = DefaultSocket(); err != nil {
			return wire.Answer{}, err
		}
	} else if err := CheckSocketPath(path); err != nil {
		return wire.Answer{}, err
	}
	if judged := c.judged.Load(); judged == nil || *judged != path {
		if err := checkPlace(path); err != nil {
			return wire.Answer{}, err
		}
		c.judged.Store(&path)
	}
	retries := c.Retries
	if retries == 0 || retries > 3 {
		retries = 3
	}
	for try := 0; ; try++ {
		a, err := exchange(ctx, deadline, path, q)
		var refusal Refusal
		if err == nil || try >= retries || !errors.As(err, &refusal) || !refusal.Retry() {
			return a, err
		}
		// 10, 20, 40 ms and as much again by chance: a crowd that was turned
		// away together must not come back together.
		pause := time.Duration(10<<try) * time.Millisecond
		pause += rand.N(pause) //nolint:gosec // spreads load, keeps no secret
		if time.Until(deadline) <= pause {
			return a, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return a, err
		}
	}
}

// exchange makes one connection, sends one request and reads one answer.
func exchange(ctx context.Context, deadline time.Time, path string, q wire.Request) (wire.Answer, error) {
	conn, err := connect(path)
	if err != nil {
		return wire.Answer{}, err
	}
	defer conn.Close()
	return ask(ctx, deadline, conn, q)
}

func ask(ctx context.Context, deadline time.Time, conn *net.UnixConn, q wire.Request) (wire.Answer, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return wire.Answer{}, fmt.Errorf("connecting to the broker: %w", err)
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	}

	// A refusal may come before the request was read: then writing fails, and
	// the answer is there all the same.
	_, sendErr := conn.Write(q.Append(make([]byte, 0, 512)))
	sent := sendErr == nil // what is not whole has no effect
	if sent {
		sendErr = conn.CloseWrite()
	}
	answer, err := wire.ReadAnswer(conn, q.Action)
	switch {
	case err == nil && answer.Code != "":
		return wire.Answer{}, Refusal(answer.Code)
	case err == nil:
		return answer, nil
	}
	err = errors.Join(err, sendErr, ended(ctx, deadline))
	if !sent || q.Action == wire.Authenticate || q.Action == wire.RegisterAnchor { // asking again is harmless
		return wire.Answer{}, fmt.Errorf("no answer from the broker: %w", err)
	}
	return wire.Answer{}, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// ended says why a call must go no further, if it must not.
func ended(ctx context.Context, deadline time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !time.Now().Before(deadline) { // the context's own timer may be late
		return context.DeadlineExceeded
	}
	return nil
}

// Dial connects to a socket of the broker's that is ours and that nobody
// could have put in the place of another. The errors are [ErrNoBroker],
// [ErrUnsafeServer] and [ErrBusy].
func Dial(path string) (*net.UnixConn, error) {
	if err := checkPlace(path); err != nil {
		return nil, err
	}
	return connect(path)
}

func connect(path string) (*net.UnixConn, error) {
	// No wait to be cut short: a full queue is an error at once.
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil, ErrBusy
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, noBroker(path, err)
	case err != nil:
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	server, err := peercred.DialedServer(conn)
	if err == nil && int(server.UID) != os.Geteuid() {
		err = fmt.Errorf("%w: user %d listens at %s", ErrUnsafeServer, server.UID, path)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkPlace judges the socket and the directory it is in. Once they are good,
// only we can make them worse; and who could redirect us by a directory above
// still needs a server that runs as our user, which the kernel tells of every
// connection.
func checkPlace(socket string) error {
	var f durable.Facts
	err := durable.CheckDir(filepath.Dir(socket), 0o022)
	if err == nil {
		f, err = durable.LookAt(socket)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noBroker(socket, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnsafeServer, err)
	case int(f.UID) != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to user %d", ErrUnsafeServer, socket, f.UID)
	}
	return nil
}

func noBroker(path string, err error) error {
	return fmt.Errorf("%w at %s: 'spendonce lease serve --detach' starts one, and so does 'spendonce lease run' (%w)", ErrNoBroker, path, err)
}
