//go:build linux

package broker

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/spendonce/spendonce/lease"
	"github.com/spendonce/spendonce/peercred"
)

// The end of an anchor may be dealt with late, because the disk was full. By
// then another process may have its pid, started in the same tick of the clock,
// and a session of its own.
func TestALateEndOfAnAnchorLeavesItsSuccessorAlone(t *testing.T) {
	dir := t.TempDir()
	server, err := Open(Config{Socket: filepath.Join(dir, "s", "b.sock"), StateDir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	client := &lease.Client{Socket: filepath.Join(dir, "s", "b.sock")}
	session, err := client.RegisterAnchor(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range server.ledger.Sessions() {
		predecessor := &peercred.Anchor{}
		if err := server.prune(s.Anchor, predecessor); err != nil {
			t.Error(err)
		}
	}
	if err := client.Authenticate(t.Context(), session); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
