//go:build linux

package lease

import (
	"context"
	"net"
	"time"

	"github.com/spendonce/spendonce/internal/wire"
)

// Ask mints a token on a connection.
func Ask(ctx context.Context, conn *net.UnixConn, s Session, b Binding) (Secret, error) {
	a, err := ask(ctx, time.Now().Add(time.Minute), conn,
		wire.Request{Action: wire.MintToken, SessionID: s.ID, Generation: s.Generation, Binding: wire.Binding(b)})
	return a.Token, err
}
