package oauthflow

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/egress"
)

const (
	// drainCap is how long an answer that has begun may go on after the bound,
	// in time that this process was running: a server that drips cannot hold
	// us, and a second stop of the process does not lose the answer.
	drainCap   = 5 * time.Second // unless Requester.drain says otherwise
	drainSlice = 250 * time.Millisecond
)

// errBound is what a connection says after the bound.
var errBound = errors.New("the time allowed is over")

// watch follows the one connection of an exchange. It carries the rule that
// the bound is soft: after it, an answer that has begun to arrive is read.
type watch struct {
	drain time.Duration // how long an answer that has begun may go on after the bound

	mu       sync.Mutex
	conn     net.Conn // nil until dialled
	ended    bool     // the bound has passed
	ready    bool     // the connection stands; what is written now is the request
	sent     bool     // a byte of the request was, or is being, written
	answered bool     // a byte was read after that
}

// end makes the bound pass. The expired deadline wakes the reader, and the
// reader decides: only it can know, without a race, whether bytes were taken
// from the kernel or still lie there.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.conn != nil {
		_ = w.conn.SetDeadline(time.Unix(1, 0))
	}
}

func (w *watch) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

func (w *watch) markReady() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = true
}

func (w *watch) wasSent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// dial connects within ctx and watches the connection from then on.
func (w *watch) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := egress.Dial(ctx, &net.Dialer{}, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		_ = conn.Close()
		return nil, errBound
	}
	w.conn = conn
	return &watchedConn{Conn: conn, watch: w}, nil
}

type watchedConn struct {
	net.Conn
	watch *watch

	// Only the one reader of the connection uses these.
	draining bool
	budget   time.Duration
}

func (c *watchedConn) Write(p []byte) (int, error) {
	w := c.watch
	w.mu.Lock()
	before := w.sent
	if w.ended && !before {
		w.mu.Unlock()
		return 0, errBound // not begun in time: better not sent at all
	}
	// Before the write, for the answer may be read before it returns.
	w.sent = before || w.ready
	w.mu.Unlock()
	n, err := c.Conn.Write(p)
	if n == 0 && !before {
		w.mu.Lock()
		w.sent = false
		w.mu.Unlock()
	}
	return n, err
}

func (c *watchedConn) Read(p []byte) (int, error) {
	for {
		if c.draining && c.budget <= 0 {
			return 0, errBound
		}
		start := time.Now()
		if c.draining {
			_ = c.Conn.SetReadDeadline(start.Add(drainSlice))
		}
		n, err := c.Conn.Read(p)
		if c.draining {
			// A stop of the process counts as one slice, however long it was.
			c.budget -= min(time.Since(start), drainSlice)
		}
		if n > 0 {
			c.watch.mu.Lock()
			c.watch.answered = c.watch.answered || c.watch.sent
			c.watch.mu.Unlock()
			return n, err
		}
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || !c.watch.hasEnded() {
			return n, err
		}
		if !c.draining {
			if !c.begun() {
				return 0, errBound
			}
			c.draining, c.budget = true, c.watch.drain
		}
	}
}

// begun reports whether an answer has begun to arrive: read before, or still
// in the kernel's buffer. Before the request was sent there is no answer.
func (c *watchedConn) begun() bool {
	c.watch.mu.Lock()
	sent, answered := c.watch.sent, c.watch.answered
	c.watch.mu.Unlock()
	return answered || sent && readable(c.Conn)
}

// readable asks the kernel. The end of the stream and an error count: reading
// them gives a better reason than the bound.
func readable(conn net.Conn) (ready bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, 0)
			if !errors.Is(err, unix.EINTR) {
				ready = err == nil && n > 0
				return
			}
		}
	})
	return ready
}
