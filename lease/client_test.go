//go:build linux

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/wire"
	"github.com/spendonce/spendonce/lease"
)

// calls are the four, by what they ask for.
var calls = map[string]func(context.Context, *lease.Client) error{
	"register_anchor": func(ctx context.Context, c *lease.Client) error {
		s, err := c.RegisterAnchor(ctx, 3)
		return expect(err, s.ID.Equal(aSession.ID) && s.Generation == 3, s)
	},
	"authenticate": func(ctx context.Context, c *lease.Client) error { return c.Authenticate(ctx, aSession) },
	"mint_token": func(ctx context.Context, c *lease.Client) error {
		token, err := c.Mint(ctx, aSession, aBinding)
		return expect(err, token.Equal(lease.NewSecret(aToken)), token)
	},
	"consume_token": func(ctx context.Context, c *lease.Client) error {
		b, err := c.Consume(ctx, aSession, lease.NewSecret(aToken))
		return expect(err, b == aBinding, b)
	},
}

func expect(err error, right bool, got any) error {
	if err == nil && !right {
		return fmt.Errorf("the call returned %+v", got)
	}
	return err
}

var granted = map[string]string{
	"register_anchor": okSession, "authenticate": okSession, "mint_token": okToken, "consume_token": okBinding,
}

func TestACallSendsOneFrameAndReturnsWhatWasGranted(t *testing.T) {
	for name, want := range map[string]string{
		"register_anchor": `{"action":"register_anchor","runtime_generation":3}`,
		"authenticate":    `{"action":"authenticate","session_id":"` + anID + `","runtime_generation":3}`,
		"mint_token": `{"action":"mint_token","session_id":"` + anID + `","runtime_generation":3,` +
			`"binding":{"compaction_epoch":1,"request_epoch":2,"h_source":"s","h_payload":"p","schema_version":4}}`,
		"consume_token": `{"action":"consume_token","session_id":"` + anID + `","runtime_generation":3,"token":"` + aToken + `"}`,
	} {
		f := answer(t, granted[name])
		if err := calls[name](t.Context(), f.client()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.asked(); len(got) != 1 || got[0] != want+"\n" {
			t.Errorf("%s: the broker was sent %q", name, got)
		}
	}
}

var refusals = []lease.Refusal{
	lease.ErrBusy, lease.ErrPeerRefused, lease.ErrFrameTooLarge, lease.ErrFrameMultiple, lease.ErrFrameUnterminated,
	lease.ErrDeadlineExceeded, lease.ErrFrameMalformed, lease.ErrSessionIDForbidden, lease.ErrActionUnknown,
	lease.ErrRequestInvalid, lease.ErrSessionUnknown, lease.ErrNotDescendant, lease.ErrAncestryChanged,
	lease.ErrGenerationStale, lease.ErrGenerationUnknown, lease.ErrTokenMalformed, lease.ErrTokenReplay,
	lease.ErrTokenCapacity, lease.ErrSessionCapacity, lease.ErrStateTooLarge, lease.ErrStateUnavailable,
}

// Each code of the wire has its error.
var codes = []wire.Code{
	wire.CodeBusy, wire.CodePeerRefused, wire.CodeFrameTooLarge, wire.CodeFrameMultiple, wire.CodeFrameUnterminated,
	wire.CodeDeadlineExceeded, wire.CodeFrameMalformed, wire.CodeSessionIDForbidden, wire.CodeActionUnknown,
	wire.CodeRequestInvalid, wire.CodeSessionUnknown, wire.CodeNotDescendant, wire.CodeAncestryChanged,
	wire.CodeGenerationStale, wire.CodeGenerationUnknown, wire.CodeTokenMalformed, wire.CodeTokenReplay,
	wire.CodeTokenCapacity, wire.CodeSessionCapacity, wire.CodeStateTooLarge, wire.CodeStateUnavailable,
}

func TestEveryCodeIsAnErrorThatSaysItInASentence(t *testing.T) {
	if len(refusals) != len(codes) {
		t.Fatalf("%d errors for %d codes", len(refusals), len(codes))
	}
	for i, refusal := range refusals {
		if string(refusal) != string(codes[i]) {
			t.Errorf("%s and %s", refusal, codes[i])
		}
		text, code, ok := strings.Cut(refusal.Error(), " (")
		if !ok || code != string(refusal)+")" && !strings.HasSuffix(code, "("+string(refusal)+")") || strings.Contains(text, string(refusal)) {
			t.Errorf("%s says %q", codes[i], refusal.Error())
		}
	}
	if text := lease.Refusal("NEW_CODE").Error(); !strings.Contains(text, "NEW_CODE") {
		t.Errorf("an unknown code says %q", text)
	}
}

func TestARefusalIsReturnedAndOnlyWhatMayPassIsAskedAgain(t *testing.T) {
	for _, refusal := range append(refusals, "NEW_CODE") {
		again := refusal == lease.ErrBusy || refusal == lease.ErrAncestryChanged
		if refusal.Retry() != again {
			t.Errorf("%s: Retry is %t", string(refusal), !again)
		}
		for name, call := range calls {
			if again && name != "consume_token" {
				continue // the waiting is in another test
			}
			f := answer(t, refused(string(refusal)))
			err := call(t.Context(), f.client())
			if !errors.Is(err, refusal) || errors.Is(err, lease.ErrOutcomeUnknown) {
				t.Errorf("%s refused with %s: %v", name, string(refusal), err)
			}
			want := 1
			if again {
				want = 4
			}
			if n := len(f.asked()); n != want {
				t.Errorf("%s refused with %s was sent %d times", name, string(refusal), n)
			}
		}
	}
}

// Up to three times more.
func TestAWalkThatWasDisturbedIsAskedForAgain(t *testing.T) {
	changed := refused("ANCESTRY_CHANGED")
	for times := range 5 {
		f := answer(t, append(slices.Repeat([]string{changed}, times), okBinding)...)
		err := calls["consume_token"](t.Context(), f.client())
		if (err == nil) != (times <= 3) || err != nil && !errors.Is(err, lease.ErrAncestryChanged) {
			t.Errorf("after %d times: %v", times, err)
		}
		if n := len(f.asked()); n != min(times, 3)+1 {
			t.Errorf("after %d times it was sent %d times", times, n)
		}
	}
	for retries, want := range map[int]int{-1: 1, 1: 2, 9: 4} {
		f := answer(t, changed)
		c := f.client()
		c.Retries = retries
		if err := c.Authenticate(t.Context(), aSession); !errors.Is(err, lease.ErrAncestryChanged) || len(f.asked()) != want {
			t.Errorf("with %d retries: %v, sent %d times", retries, err, len(f.asked()))
		}
	}
}

func TestAQueueThatIsFullIsBusy(t *testing.T) {
	path := place(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := lease.Dial(path)
		if errors.Is(err, lease.ErrBusy) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if err := (&lease.Client{Socket: path, Retries: 1}).Authenticate(t.Context(), aSession); !errors.Is(err, lease.ErrBusy) {
		t.Error(err)
	}
}

func TestWhereNobodyListensThereIsNoBroker(t *testing.T) {
	stale := place(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for name, path := range map[string]string{
		"a stale socket": stale, "nothing": place(t), "no directory": filepath.Join(place(t), "d", "b.sock"),
	} {
		for what, call := range calls {
			if err := call(t.Context(), &lease.Client{Socket: path}); !errors.Is(err, lease.ErrNoBroker) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// Nothing is sent to a socket that another user could have put there.
func TestASocketInADirectoryThatOthersCanWriteToIsNotUsed(t *testing.T) {
	for name, spoil := range map[string]func(f *fake, dir string) string{
		"its group may write": func(f *fake, dir string) string { chmod(t, dir, 0o770); return f.socket },
		"others may write":    func(f *fake, dir string) string { chmod(t, dir, 0o703); return f.socket },
		"with a sticky bit":   func(f *fake, dir string) string { chmod(t, dir, 0o777|os.ModeSticky); return f.socket },
		"a link to it": func(f *fake, dir string) string {
			link := filepath.Join(filepath.Dir(place(t)), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(link, filepath.Base(f.socket))
		},
	} {
		f := answer(t, okSession)
		path := spoil(f, filepath.Dir(f.socket))
		if err := (&lease.Client{Socket: path}).Authenticate(t.Context(), aSession); !errors.Is(err, lease.ErrUnsafeServer) {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.asked(); len(got) != 0 {
			t.Errorf("%s: the broker was sent %q", name, got)
		}
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestAClientMayBeUsedByManyGoroutines(t *testing.T) {
	f := answer(t, okToken)
	c := f.client()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := c.Mint(t.Context(), aSession, aBinding); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(f.asked()); n != 20 {
		t.Errorf("it was sent %d times", n)
	}
}

// A broker that is busy until the time is over had whole requests only.
func TestNoConnectionIsMadeForWhichThereIsNoTime(t *testing.T) {
	f := answer(t, refused("BUSY"))
	c := f.client()
	c.Timeout = 25 * time.Millisecond // over within the second pause
	if _, err := c.Consume(t.Context(), aSession, lease.NewSecret(aToken)); err == nil {
		t.Error("the token is consumed")
	}
	for i, frame := range f.asked() {
		if frame == "" {
			t.Errorf("connection %d brought nothing", i+1)
		}
	}
}
