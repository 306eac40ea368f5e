//go:build !linux

package localproxy

import (
	"errors"
	"fmt"
	"net"
)

var (
	// ErrTaken: another server has the socket.
	ErrTaken = errors.New("place taken")
	// ErrUnsafe: the socket's place cannot be trusted, and was left as it is.
	ErrUnsafe = errors.New("unsafe place")
)

func listenUnix(string, func(string)) (net.Listener, func(), error) {
	return nil, nil, fmt.Errorf("%w: a Unix socket is guarded by what the Linux kernel says of who connects: on this system listen on 127.0.0.1:0", ErrAddress)
}
