package requestcmd

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/cli/credcmd"
	"github.com/spendonce/spendonce/internal/cli/streams"
)

func TestAPipeThatNobodyWritesToDoesNotKeepAnInterruptWaiting(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(streams.ErrInterrupted)
	if _, err := (&app{&credcmd.App{Streams: &streams.Streams{}}}).ReadSecret(interrupted, "--token-file", pipe); !errors.Is(err, streams.ErrInterrupted) {
		t.Errorf("a secret: %v", err)
	}
	req, err := http.NewRequestWithContext(interrupted, http.MethodPost, "http://127.0.0.1:9/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&app{&credcmd.App{Streams: &streams.Streams{}}}).setBody(req, "@"+pipe); !errors.Is(err, streams.ErrInterrupted) {
		t.Errorf("a body: %v", err)
	}
	// Lets what still opens it go.
	if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
		t.Cleanup(func() { _ = f.Close() })
	}
}
