//go:build linux

package lease_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/lease"
)

// A lost answer: only what changes nothing, or nothing more, may be asked
// again, and the caller decides.
func TestALostAnswerOfAMintOrAConsumptionIsAnUnknownOutcome(t *testing.T) {
	for how, reply := range map[string]func(c *net.UnixConn, name string){
		"nothing":         func(*net.UnixConn, string) {},
		"half an answer":  func(c *net.UnixConn, name string) { _, _ = io.WriteString(c, granted[name][:20]) },
		"no newline":      func(c *net.UnixConn, name string) { _, _ = io.WriteString(c, strings.TrimSpace(granted[name])) },
		"rubbish":         func(c *net.UnixConn, _ string) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n") },
		"two answers":     func(c *net.UnixConn, name string) { _, _ = io.WriteString(c, granted[name]+granted[name]) },
		"no code":         func(c *net.UnixConn, _ string) { _, _ = io.WriteString(c, `{"ok":false}`+"\n") },
		"nothing granted": func(c *net.UnixConn, _ string) { _, _ = io.WriteString(c, `{"ok":true}`+"\n") },
		"another's answer": func(c *net.UnixConn, name string) {
			other := map[string]string{"register_anchor": okToken, "authenticate": okBinding, "mint_token": okSession, "consume_token": okToken}
			_, _ = io.WriteString(c, other[name])
		},
	} {
		for name, call := range calls {
			f := start(t, func(c *net.UnixConn, _ int) { reply(c, name) })
			err := call(t.Context(), f.client())
			var refusal lease.Refusal
			if err == nil || errors.As(err, &refusal) || errors.Is(err, lease.ErrNoBroker) {
				t.Errorf("%s, %s: %v", name, how, err)
			}
			unknown := name == "mint_token" || name == "consume_token"
			if errors.Is(err, lease.ErrOutcomeUnknown) != unknown {
				t.Errorf("%s, %s: %v", name, how, err)
			}
			if n := len(f.asked()); n != 1 {
				t.Errorf("%s, %s: it was sent %d times", name, how, n)
			}
			if text := err.Error(); strings.Contains(text, anID) || strings.Contains(text, aToken) {
				t.Errorf("%s, %s: the error shows a secret: %v", name, how, err)
			}
		}
	}
}

// silent is a broker that reads and never answers; asked says that it has read.
func silent(t *testing.T) (f *fake, asked chan struct{}) {
	asked = make(chan struct{}, 1)
	end := make(chan struct{})
	f = start(t, func(*net.UnixConn, int) {
		asked <- struct{}{}
		<-end
	})
	t.Cleanup(func() { close(end) })
	return f, asked
}

func TestACallEndsWithItsContext(t *testing.T) {
	why := errors.New("the user left")
	for name, call := range calls {
		f, asked := silent(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-asked; cancel(why) }()
		err := call(ctx, f.client())
		if !errors.Is(err, why) || errors.Is(err, lease.ErrOutcomeUnknown) != (name == "mint_token" || name == "consume_token") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACallEndsWithItsTimeLimit(t *testing.T) {
	f, _ := silent(t)
	c := f.client()
	c.Timeout = 20 * time.Millisecond
	if err := c.Authenticate(t.Context(), aSession); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its own: %v", err)
	}
	f, _ = silent(t)
	c = f.client()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Mint(ctx, aSession, aBinding); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lease.ErrOutcomeUnknown) {
		t.Errorf("the context's: %v", err)
	}
}

func TestACallWhoseContextHasEndedSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls {
		f := answer(t, granted[name])
		if err := call(ctx, f.client()); !errors.Is(err, context.Canceled) || errors.Is(err, lease.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.asked(); len(got) != 0 {
			t.Errorf("%s: the broker was sent %q", name, got)
		}
	}
}

// The broker refuses, and closes with the request unread, before any of it is
// written (EPIPE) or after (ECONNRESET).
func TestARefusalThatCameBeforeTheRequestWasReadCounts(t *testing.T) {
	for _, first := range []bool{true, false} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: place(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		turnAway := func() {
			c, err := l.AcceptUnix()
			if err == nil {
				_, err = io.WriteString(c, refused("BUSY"))
				c.Close()
			}
			if err != nil {
				t.Error(err)
			}
		}
		if first {
			turnAway()
		} else {
			// Something unread makes the close a reset.
			if _, err := io.WriteString(conn, " "); err != nil {
				t.Fatal(err)
			}
			turnAway()
		}
		if _, err := lease.Ask(t.Context(), conn, aSession, aBinding); !errors.Is(err, lease.ErrBusy) {
			t.Errorf("refused first: %t: %v", first, err)
		}
	}
}
