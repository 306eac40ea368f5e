//go:build linux

package broker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/spendonce/spendonce/broker"
	"github.com/spendonce/spendonce/lease"
)

// These show where time goes ('-cpuprofile'); the figures that are held
// against bounds come from make bench.

func BenchmarkAuthenticate(b *testing.B) {
	client, s := served(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := client.Authenticate(context.Background(), s); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkMintAndConsume(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			client, s := served(b)
			b.SetParallelism(clients) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					token, err := client.Mint(context.Background(), s, lease.Binding{HSource: "a", HPayload: "b", SchemaVersion: 1})
					if err == nil {
						_, err = client.Consume(context.Background(), s, token)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// served runs a broker in this process and makes the process an anchor.
func served(b *testing.B) (*lease.Client, lease.Session) {
	b.Helper()
	dir := b.TempDir()
	server, err := broker.Open(broker.Config{Socket: filepath.Join(dir, "s", "b.sock"), StateDir: filepath.Join(dir, "state"), Warn: func(s string) { b.Error(s) }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	client := &lease.Client{Socket: filepath.Join(dir, "s", "b.sock")}
	s, err := client.RegisterAnchor(context.Background(), 0)
	if err != nil {
		b.Fatal(err)
	}
	return client, s
}
