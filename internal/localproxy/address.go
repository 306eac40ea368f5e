package localproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// ErrAddress is wrapped by every refusal of [ParseAddress].
var ErrAddress = errors.New("no address to listen on")

// Address is where a proxy listens: Socket, or else TCP.
type Address struct {
	Socket string // absolute path of a Unix socket
	TCP    netip.AddrPort
}

// ParseAddress reads unix:PATH, or a loopback address with a port such as
// 127.0.0.1:8080 and [::1]:0. Port 0 lets the system choose. No names: what
// localhost is, a resolver would say.
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		switch {
		case path == "" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0):
			return Address{}, fmt.Errorf("%w: unix: wants the path of a socket behind it", ErrAddress)
		case strings.HasPrefix(path, "@"):
			return Address{}, fmt.Errorf("%w: an abstract socket has no owner and no mode: give a path", ErrAddress)
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return Address{}, fmt.Errorf("%w: %w", ErrAddress, err)
		}
		return Address{Socket: abs}, nil
	}
	at, err := netip.ParseAddrPort(text)
	switch {
	case err != nil:
		return Address{}, fmt.Errorf("%w: %.80q is neither unix:PATH nor a loopback address with a port, such as 127.0.0.1:0", ErrAddress, text)
	case !at.Addr().IsLoopback() || at.Addr().Is4In6() || at.Addr().Zone() != "":
		return Address{}, fmt.Errorf("%w: %s is not a loopback address: whoever reached it would have the account", ErrAddress, at.Addr())
	}
	return Address{TCP: at}, nil
}
