//go:build linux

package lease_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/spendonce/spendonce/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a broker that answers what it is told to.
type fake struct {
	t      *testing.T
	socket string

	mu       sync.Mutex
	requests []string
}

// answer starts a broker that gives these answers, one for each request, and
// then the last again and again. An answer is sent as it is.
func answer(t *testing.T, answers ...string) *fake {
	t.Helper()
	return start(t, func(c *net.UnixConn, n int) {
		_, _ = io.WriteString(c, answers[min(n, len(answers)-1)])
	})
}

// start starts a broker that reads each request and does then what reply does.
func start(t *testing.T, reply func(c *net.UnixConn, n int)) *fake {
	t.Helper()
	f := &fake{t: t, socket: place(t)}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.socket})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	t.Cleanup(served.Wait)
	t.Cleanup(func() { l.Close() })
	served.Go(func() {
		for n := 0; ; n++ {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				b, err := io.ReadAll(c) // to the end that the client must send
				if err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				f.mu.Lock()
				f.requests = append(f.requests, string(b))
				f.mu.Unlock()
				reply(c, n)
			})
		}
	})
	return f
}

// place is a path for a socket in a directory of ours.
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lease") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "b.sock")
}

func (f *fake) client() *lease.Client { return &lease.Client{Socket: f.socket} }

func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func refused(code string) string { return fmt.Sprintf(`{"ok":false,"code":%q}`+"\n", code) }

var (
	anID     = strings.Repeat("A", 43)
	aToken   = strings.Repeat("B", 42) + "A"
	aSession = lease.Session{ID: lease.NewSecret(anID), Generation: 3}
	aBinding = lease.Binding{CompactionEpoch: 1, RequestEpoch: 2, HSource: "s", HPayload: "p", SchemaVersion: 4}
)

const (
	okSession = `{"ok":true,"session_id":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","runtime_generation":3}` + "\n"
	okToken   = `{"ok":true,"token":"BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA"}` + "\n"
	okBinding = `{"ok":true,"binding":{"compaction_epoch":1,"request_epoch":2,"h_source":"s","h_payload":"p","schema_version":4}}` + "\n"
)
