package bearer

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spendonce/spendonce/internal/egress"
)

const (
	dialTimeout     = 30 * time.Second
	tlsTimeout      = 15 * time.Second
	headerTimeout   = 5 * time.Minute
	continueTimeout = time.Second
	idleTimeout     = 90 * time.Second
	maxHeader       = 1 << 20
	// The target is one host: what net/http keeps for one (2) would have a
	// program with many requests at once connect anew for nearly each.
	idleConns = 64
	// A peer that vanished is found out by HTTP/2 pings, even under an event
	// stream that is silent for hours.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
)

// newBase is the transport of a [Config] without one.
func newBase(headers time.Duration) *http.Transport {
	switch {
	case headers == 0:
		headers = headerTimeout
	case headers < 0:
		headers = 0
	}
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return egress.Dial(ctx, d, network, address)
		},
		Proxy:                  egress.Proxy(nil),
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headers,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    idleConns,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:     true, // what the server sends is what the caller reads
	}
}

const (
	drainLimit = 64 << 10
	drainTime  = 2 * time.Second
)

// drain ends an answer that nobody will read. Read to its end its connection
// serves again; a body that is long or drips is not worth that.
func drain(resp *http.Response) {
	withDeadline(resp, func() { _, _ = io.CopyN(io.Discard, resp.Body, drainLimit) })
}

// withDeadline reads an answer for a short while at most, and closes it.
func withDeadline(resp *http.Response, read func()) {
	late := time.AfterFunc(drainTime, func() { _ = resp.Body.Close() })
	read()
	late.Stop()
	_ = resp.Body.Close()
}
