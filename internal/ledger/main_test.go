//go:build linux

package ledger_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/ledger"
	"github.com/spendonce/spendonce/internal/secret"
)

// A test that needs another process runs this binary again, as one of these.
var roles = map[string]func(args []string) error{
	"hold":  hold,
	"open":  openOnce,
	"storm": storm,
	"spend": spend,
}

const roleVariable = "LEDGER_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	thisBoot  = "01234567-89ab-cdef-0123-456789abcdef"
	otherBoot = "fedcba98-7654-3210-fedc-ba9876543210"
)

// never is no deadline.
var never time.Time

func openDir(t testing.TB, disk durable.Disk, path string) *durable.Dir {
	t.Helper()
	dir, err := disk.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	return dir
}

// open opens the ledger at path and closes it with the test.
func open(t testing.TB, path string, cfg ledger.Config) *ledger.Ledger {
	t.Helper()
	return openOn(t, durable.Disk{}, path, cfg)
}

func openOn(t testing.TB, disk durable.Disk, path string, cfg ledger.Config) *ledger.Ledger {
	t.Helper()
	if cfg.BootID == "" {
		cfg.BootID = thisBoot
	}
	l, err := ledger.Open(openDir(t, disk, path), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// reopened closes a ledger and opens what it left, on a disk that works.
func reopened(t testing.TB, l *ledger.Ledger, path string, cfg ledger.Config) *ledger.Ledger {
	t.Helper()
	stop(t, l)
	return open(t, path, cfg)
}

// stop closes a ledger, which must say so if it leaves its file in doubt.
func stop(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	err := l.Close()
	if doubt := l.Stats().InDoubt; doubt != errors.Is(err, ledger.ErrUnavailable) || !doubt && err != nil {
		t.Errorf("closing: %v, in doubt: %t", err, doubt)
	}
}

func anchor(n int) ledger.Anchor { return ledger.Anchor{PID: 100 + n, StartTime: uint64(5000 + n)} }

func bound(n int) ledger.Binding {
	return ledger.Binding{
		CompactionEpoch: uint64(n), RequestEpoch: uint64(2 * n), HSource: fmt.Sprintf("sha256:%d", n), HPayload: `"\<`, SchemaVersion: 1,
	}
}

func register(t testing.TB, l *ledger.Ledger, n int, generation uint64) ledger.Session {
	t.Helper()
	s, err := l.Register(never, anchor(n), 1000, 1001, generation)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mint(t testing.TB, l *ledger.Ledger, s ledger.Session, n int) secret.Secret {
	t.Helper()
	token, err := l.Mint(never, s.ID, s.Generation, bound(n))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// consumed is what Consume answers.
func consumed(l *ledger.Ledger, s ledger.Session, token secret.Secret) error {
	_, err := l.Consume(never, s.ID, s.Generation, token)
	return err
}

func wantError(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func stateFile(path string) string { return filepath.Join(path, ledger.StateFile) }

func contentOf(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func namesIn(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// tempsIn returns the temporary files that stand beside the state.
func tempsIn(t testing.TB, path string) []string {
	t.Helper()
	return slices.DeleteFunc(namesIn(t, path), func(n string) bool { return !strings.HasSuffix(n, ".tmp") })
}

// chosen is a count: full with SPENDONCE_SOAK=1, else a share of it, and
// short with -short.
func chosen(full, share, short int) int {
	switch {
	case os.Getenv("SPENDONCE_SOAK") == "1":
		return full
	case testing.Short():
		return short
	default:
		return share
	}
}

// dead is a set of anchors that have exited, as a Config.Alive.
type dead map[ledger.Anchor]bool

func (d dead) alive(s ledger.Session) bool { return !d[s.Anchor] }

func randomSource() io.Reader { return rand.Reader }

// memory is a directory on a file system in memory, for tests that commit very
// often: what they prove does not need a disk. Where there is none, it is one
// on the disk.
func memory(t testing.TB) string {
	t.Helper()
	const shared = "/dev/shm"
	if unix.Access(shared, unix.W_OK) != nil {
		return t.TempDir()
	}
	path, err := os.MkdirTemp(shared, "ledger-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}
