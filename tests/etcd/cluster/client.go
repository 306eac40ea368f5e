//go:build linux

package cluster

import (
	"context"
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/spendonce/spendonce/tests/etcd/lan"
)

// Client is a client of all members that speaks from the host, as the login,
// until the test ends.
func (c *Cluster) Client(t testing.TB, from *lan.Host, as Login) *clientv3.Client {
	t.Helper()
	return c.clientOf(t, from, as, c.Endpoints()...)
}

func (c *Cluster) clientOf(t testing.TB, from *lan.Host, as Login, endpoints ...string) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{
		Endpoints: endpoints, Username: as.Name, Password: as.Password,
		DialTimeout: Patience,
		Logger:      zap.NewNop(), // tests look at what they were answered
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return from.Dial(ctx, "tcp", addr) }),
			// A member that was started again is to be noticed soon.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
				MinConnectTimeout: 2 * time.Second,
			}),
		},
	}
	if c.Authority != nil {
		var err error
		if config.TLS, err = c.TLS.Config(); err != nil {
			t.Fatal(err)
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatalf("connecting to etcd: %v", err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Client speaks to this member alone, from its own host and as root, whatever
// befalls the network.
func (m *Member) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	if m.direct == nil {
		m.direct = m.cluster.clientOf(t, m.Host, m.cluster.Root, m.Endpoint())
	}
	return m.direct
}

// status is what the member thinks of the cluster.
func (m *Member) status(ctx context.Context, t testing.TB) (*clientv3.StatusResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return m.Client(t).Status(ctx, m.Endpoint())
}
