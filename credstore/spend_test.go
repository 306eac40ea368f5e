package credstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

// failOn fails every step with that operation whose path ends so.
func failOn(op, suffix string) func(durable.Step) error {
	return func(s durable.Step) error {
		name := filepath.Base(s.Path)
		if i := strings.LastIndex(name, "."); strings.HasSuffix(name, ".tmp") { // without the nonce
			name = name[:strings.LastIndex(name[:i], ".")] + ".tmp"
		}
		if s.Op == op && strings.HasSuffix(filepath.Join(filepath.Dir(s.Path), name), suffix) {
			return unix.ENOSPC
		}
		return nil
	}
}

// failOnAfterFirst lets the first such step pass: the session is pinned before
// its first use.
func failOnAfterFirst(op, suffix string) func(durable.Step) error {
	fail, seen := failOn(op, suffix), false
	return func(s durable.Step) error {
		err := fail(s)
		if err != nil && !seen {
			seen = true
			return nil
		}
		return err
	}
}

// A refusal that could not be noted in the session file is noted in the guard.
func TestARefusalIsHeardOnceEvenIfItCannotBeNoted(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{answer: failing(credstore.Failure{Class: credstore.ClassRefused})}
	disk := steps{fail: failOnAfterFirst("rename", "/sessions/box.json")}
	mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), box, a), credstore.Request{}, credstore.ErrLoginRequired)
	mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrLoginRequired)
	mustHaveSent(t, a, "R0")
}

// What cannot be saved is not sent.
func TestTheCommitIsProvenBeforeTheSend(t *testing.T) {
	for name, fail := range map[string]func(durable.Step) error{
		"no temporary store file":   failOn("create", ".remote-credentials.json.tmp"),
		"no room for the store":     failOn("reserve", ".remote-credentials.json.tmp"),
		"no temporary session file": failOn("create", "/.box.json.tmp"),
		"no room for the session":   failOn("reserve", "/.box.json.tmp"),
		"no target lock":            failOn("create", "box.lock"),
		"no guard":                  failOn("flock", "box.lock.guard"),
		"no record":                 failOn("record", "box.lock.guard"),
		"no durable mark":           failOn("fsync", "box.lock.guard"),
		"no store lock":             failOn("create", "remote-credentials.json.lock"),
		"no other guard":            failOn("flock", "remote-credentials.json.lock.guard"),
		"no session directory":      failOn("mkdir", "/sessions"),
		"no lock directory":         failOn("mkdir", "/locks"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(30*time.Second))})
			before := bytesOf(t, storePath(dir))
			a := &authority{}
			disk := steps{fail: fail}
			var told warnings
			src := sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk(), Warn: told.warn}), box, a)
			mustGive(t, src, credstore.Request{}, "A0")
			if !strings.Contains(told.all(), "not writable") || !strings.Contains(told.all(), "no refresh was attempted") {
				t.Errorf("said: %q", told.all())
			}
			err := mustRefuse(t, src, credstore.Request{Refresh: true}, credstore.ErrNotWritable)
			if err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Errorf("the cause is not in the tree: %v", err)
			}
			mustHaveSent(t, a)
			if bytesOf(t, storePath(dir)) != before {
				t.Error("the store has changed")
			}
			if got := temps(namesIn(t, dir)); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
			disk.setFail(nil)
			mustGive(t, src, credstore.Request{Refresh: true}, "A-new-1")
		})
	}
}

// mark writes what a process left that ended after it.
func mark(t *testing.T, dir, refresh string, state lockfile.MarkState) {
	t.Helper()
	d, err := durable.Disk{}.MakeDir(filepath.Join(dir, "locks"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	lock, err := lockfile.Acquire(t.Context(), lockfile.Config{}, lockfile.Request{Dir: d, Name: box + ".lock"})
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.SetMark(lockfile.Mark{State: state, Fingerprint: secret.New(refresh).Fingerprint(), At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

func guardOf(t *testing.T, dir string) string {
	t.Helper()
	return bytesOf(t, filepath.Join(dir, "locks", box+".lock.guard"))
}

func TestTheMarkSaysHowFarASendCame(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	token, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
		if g := guardOf(t, dir); !strings.Contains(g, "mark=sent    token="+secret.New("R0").Fingerprint()) {
			t.Errorf("during the send the guard says %q", g)
		}
	})
	if token != "A-new-1" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
	if g := guardOf(t, dir); !strings.Contains(g, "mark=none") {
		t.Errorf("after the commit the guard says %q", g)
	}
	for name, tt := range map[string]struct {
		failure credstore.Failure
		want    string
	}{
		"refused":       {credstore.Failure{Class: credstore.ClassRefused}, "mark=refused"},
		"not sent":      {credstore.Failure{Class: credstore.ClassTemporary, Broken: true, Unprocessed: true}, "mark=none"},
		"wrong request": {credstore.Failure{Class: credstore.ClassRequest}, "mark=none"},
		"broken":        {credstore.Failure{Class: credstore.ClassTemporary, Broken: true}, "mark=sent"},
		"a bad gateway": {credstore.Failure{Class: credstore.ClassTemporary, Status: 502}, "mark=sent"},
	} {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{answer: failing(tt.failure)}
		if _, err := get(sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if g := guardOf(t, dir); !strings.Contains(g, tt.want) {
			t.Errorf("%s: the guard says %q", name, g)
		}
	}
}

func TestARefusalAfterALostAnswerIsAnUnknownOutcome(t *testing.T) {
	refused := credstore.Failure{Class: credstore.ClassRefused, Code: "invalid_grant"}
	for name, tt := range map[string]struct {
		marked  string
		first   *credstore.Failure
		second  credstore.Failure
		unknown bool
		sends   int
	}{
		"no mark":                                    {second: refused, sends: 1},
		"the mark of a dead sender":                  {marked: "R0", second: refused, unknown: true, sends: 1},
		"the mark of another token":                  {marked: "R-old", second: refused, sends: 1},
		"a broken connection":                        {first: &credstore.Failure{Class: credstore.ClassTemporary, Broken: true}, second: refused, unknown: true, sends: 2},
		"one that was never made":                    {first: &credstore.Failure{Class: credstore.ClassTemporary, Broken: true, Unprocessed: true}, second: refused, sends: 2},
		"the mark of a dead sender and one not made": {marked: "R0", first: &credstore.Failure{Class: credstore.ClassTemporary, Broken: true, Unprocessed: true}, second: refused, unknown: true, sends: 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			if tt.marked != "" {
				mark(t, dir, tt.marked, lockfile.MarkSent)
			}
			a := &authority{answer: func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
				if n == 1 && tt.first != nil {
					return credstore.Tokens{}, tt.first
				}
				return credstore.Tokens{}, &tt.second
			}}
			// Whoever asks later gets the same answer, and nobody sends.
			for range 2 {
				err := mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrLoginRequired)
				if errors.Is(err, credstore.ErrOutcomeUnknown) != tt.unknown {
					t.Errorf("%v", err)
				}
			}
			if n := len(a.sent()); n != tt.sends {
				t.Errorf("%d were sent, want %d", n, tt.sends)
			}
			if storeOf(t, dir)[box]["refreshToken"] != "R0" {
				t.Error("the record is not kept")
			}
		})
	}
}

// The doubt outlives the process: a second send that never left it does not
// clear the mark of the first.
func TestADoubtIsKeptUntilItIsResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{answer: func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
			f := []*credstore.Failure{
				{Class: credstore.ClassTemporary, Broken: true},
				{Class: credstore.ClassTemporary, Broken: true, Unprocessed: true},
				{Class: credstore.ClassRefused},
			}[n-1]
			return credstore.Tokens{}, f
		}}
		mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrTemporary)
		time.Sleep(5 * time.Second)
		mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrOutcomeUnknown)
		mustHaveSent(t, a, "R0", "R0", "R0")
	})
}

func TestASpentTokenIsNotSentAgain(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	mark(t, dir, "R0", lockfile.MarkSpent)
	a := &authority{}
	s := open(t, credstore.Config{Dir: dir})
	for range 2 {
		err := mustRefuse(t, sourceOf(t, s, box, a), credstore.Request{}, credstore.ErrLoginRequired)
		if err != nil && !strings.Contains(err.Error(), "could not be saved") {
			t.Errorf("%v", err)
		}
	}
	mustHaveSent(t, a)
	// A login ends that.
	if err := onlyError(s.Login(t.Context(), box, signedIn("R1", "A1"))); err != nil {
		t.Fatal(err)
	}
	mustGive(t, sourceOf(t, s, box, a), credstore.Request{Refresh: true}, "A-new-1")
	mustHaveSent(t, a, "R1")
}

// At most two sends in one hold, the second only where it can help.
func TestTheSecondSendIsTheLast(t *testing.T) {
	broken := credstore.Failure{Class: credstore.ClassTemporary, Broken: true}
	target := credstore.Failure{Class: credstore.ClassRequest, Status: 400, Code: "invalid_target"}
	for name, tt := range map[string]struct {
		answers   []*credstore.Failure // nil: success
		resources []string
		want      error
	}{
		"success":                      {[]*credstore.Failure{nil}, []string{"r"}, nil},
		"broken, then success":         {[]*credstore.Failure{&broken, nil}, []string{"r", "r"}, nil},
		"broken twice":                 {[]*credstore.Failure{&broken, &broken}, []string{"r", "r"}, credstore.ErrTemporary},
		"the target, then success":     {[]*credstore.Failure{&target, nil}, []string{"r", ""}, nil},
		"the target twice":             {[]*credstore.Failure{&target, &target}, []string{"r", ""}, credstore.ErrRequest},
		"the target, then broken":      {[]*credstore.Failure{&target, &broken}, []string{"r", ""}, credstore.ErrTemporary},
		"broken, then the target":      {[]*credstore.Failure{&broken, &target}, []string{"r", "r"}, credstore.ErrRequest},
		"a server error":               {[]*credstore.Failure{{Class: credstore.ClassTemporary, Status: 500}}, []string{"r"}, credstore.ErrTemporary},
		"slow down":                    {[]*credstore.Failure{{Class: credstore.ClassTemporary, Status: 429}}, []string{"r"}, credstore.ErrTemporary},
		"a refusal":                    {[]*credstore.Failure{{Class: credstore.ClassRefused}}, []string{"r"}, credstore.ErrLoginRequired},
		"another wrong request":        {[]*credstore.Failure{{Class: credstore.ClassRequest, Code: "invalid_scope"}}, []string{"r"}, credstore.ErrRequest},
		"the target as a server error": {[]*credstore.Failure{{Class: credstore.ClassTemporary, Code: "invalid_target"}}, []string{"r"}, credstore.ErrTemporary},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			a := &authority{}
			a.answer = func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
				if n > len(tt.answers) {
					return credstore.Tokens{}, errors.New("one too many")
				}
				if f := tt.answers[n-1]; f != nil {
					return credstore.Tokens{}, f
				}
				return a.rotated(n), nil
			}
			src := sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{
				Target: box, Exchange: a.exchange, Settings: func() (credstore.Settings, error) {
					set, _ := pinned()
					set.Pin.Resource = "r"
					return set, nil
				},
			})
			if _, err := get(src, credstore.Request{}); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			var resources []string
			for _, g := range a.grants() {
				resources = append(resources, g.Resource)
				if g.RefreshToken.Reveal() != "R0" {
					t.Error("another token was sent")
				}
			}
			if !slices.Equal(resources, tt.resources) {
				t.Errorf("sent with the resources %q, want %q", resources, tt.resources)
			}
		})
	}
}

// The second send has the time that the first has left, and none after it.
func TestAfterTheBoundNothingIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{answer: func(ctx context.Context, _ int, _ credstore.Grant) (credstore.Tokens, error) {
			end, ok := ctx.Deadline()
			if left := time.Until(end); !ok || left > 30*time.Second {
				t.Errorf("the bound is %s away", left)
			}
			<-ctx.Done()
			return credstore.Tokens{}, &credstore.Failure{Class: credstore.ClassTemporary, Broken: true}
		}}
		start := time.Now()
		mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrTemporary)
		if took := time.Since(start); took > 31*time.Second {
			t.Errorf("it took %s", took)
		}
		mustHaveSent(t, a, "R0")
	})
}

// An answer that came after the bound is an answer.
func TestAnAnswerThatComesLateIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{}
		a.answer = func(ctx context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
			<-ctx.Done()
			time.Sleep(time.Hour) // the lid was closed
			return a.rotated(n), nil
		}
		src := sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a)
		got, err := src.Get(context.Background(), credstore.Request{})
		if got.AccessToken.Reveal() != "A-new-1" || err != nil {
			t.Errorf("%v", err)
		}
		if storeOf(t, dir)[box]["refreshToken"] != "R-new-1" {
			t.Error("it was not committed")
		}
	})
}

// A caller that goes away does not take its exchange with it.
func TestAnExchangeOutlivesItsCaller(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	ended := make(chan struct{})
	answer, arrived, proceed := held(func(ctx context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) {
		defer close(ended)
		if ctx.Err() != nil {
			t.Error("the exchange was cancelled")
		}
		return a.rotated(n), nil
	})
	a.answer = answer
	s := open(t, credstore.Config{Dir: dir})
	src := sourceOf(t, s, box, a)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { _, err := src.Get(ctx, credstore.Request{}); result <- err }()
	<-arrived
	interrupted := make(chan struct{})
	if s.Interrupt(func() { close(interrupted) }) {
		t.Error("Interrupt says that it cancelled")
	}
	select {
	case <-interrupted:
		t.Error("the exchange was interrupted")
	default:
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	// Close waits for it, for as long as it is let.
	short, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close did not wait: %v", err)
	}
	close(proceed)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Close returned before the end of the exchange")
	}
	if r := storeOf(t, dir)[box]; r["refreshToken"] != "R-new-1" {
		t.Error("the exchange was not committed")
	}
	<-interrupted // what was asked for meanwhile
	called := false
	if !s.Interrupt(func() { called = true }) || !called {
		t.Error("nothing is under way, and Interrupt does not cancel")
	}
	mustGive(t, src, credstore.Request{}, "A-new-1") // what needs no exchange is still given
	mustRefuse(t, src, credstore.Request{Refresh: true}, credstore.ErrTemporary)
	mustHaveSent(t, a, "R0")
}

// A mere waiter ends at once.
func TestAWaiterEndsWithItsContext(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	cause := errors.New("signal 15")
	token, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
		staged := make(chan struct{})
		s := open(t, credstore.Config{Dir: dir, Stage: func(text string) {
			if strings.Contains(text, "another process") {
				close(staged)
			}
		}})
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() { _, err := sourceOf(t, s, box, a).Get(ctx, credstore.Request{}); result <- err }()
		<-staged
		if !s.Interrupt(func() { cancel(cause) }) {
			t.Error("a waiter is not to be cancelled")
		}
		if err := <-result; !errors.Is(err, cause) {
			t.Errorf("the waiter got %v", err)
		}
	})
	if token != "A-new-1" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
}

// The last look before the send: a record that has changed is not sent, a
// lock that was broken is taken once more.
func TestTheLastLookBeforeTheSend(t *testing.T) {
	// The guard's mark is made durable right before it.
	before := func(times int, do func() bool) func(durable.Step) error {
		n := 0
		return func(s durable.Step) error {
			if s.Op == "fsync" && strings.HasSuffix(s.Path, "box.lock.guard") && n < times && do() {
				n++
			}
			return nil
		}
	}
	change := func(t *testing.T, dir string, records map[string]record) func() bool {
		return func() bool { putStore(t, dir, records); return true }
	}
	t.Run("another token", func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{}
		disk := steps{fail: before(1, change(t, dir, map[string]record{box: oidc("R2", "A2", in(time.Hour))}))}
		mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), box, a), credstore.Request{}, "A2")
		mustHaveSent(t, a)
	})
	t.Run("no record", func(t *testing.T) {
		dir := stateDir(t)
		putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
		a := &authority{}
		disk := steps{fail: before(1, change(t, dir, map[string]record{}))}
		mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), box, a), credstore.Request{}, credstore.ErrNoCredential)
		mustHaveSent(t, a)
		if g := guardOf(t, dir); !strings.Contains(g, "mark=none") {
			t.Errorf("the guard says %q", g)
		}
	})
	for times, want := range map[int]string{1: "A-new-1", 2: ""} {
		t.Run(fmt.Sprintf("a lock broken %d times", times), func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			a := &authority{}
			disk := steps{fail: before(times, func() bool { return os.Remove(filepath.Join(dir, "locks", "box.lock")) == nil })}
			src := sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), box, a)
			if want == "" {
				mustRefuse(t, src, credstore.Request{}, credstore.ErrLocked)
				mustHaveSent(t, a)
				return
			}
			mustGive(t, src, credstore.Request{}, want)
			mustHaveSent(t, a, "R0")
		})
	}
}

// Somebody who knows only the older rules took the store lock away: the
// commit takes it again and loses nothing.
func TestACommitSurvivesABrokenStoreLock(t *testing.T) {
	for _, scope := range []credstore.Scope{credstore.ScopeTarget, credstore.ScopeStore} {
		t.Run(string(scope), func(t *testing.T) {
			if scope == credstore.ScopeStore {
				onlyInPlain(t, "a store that is shared is not sealed")
			}
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			a := &authority{}
			broken := 0
			disk := steps{}
			disk.setFail(func(s durable.Step) error {
				// The temporary file is synced right before the last look.
				if s.Op == "fsync" && strings.Contains(s.Path, ".remote-credentials.json.") && broken < 3 {
					broken++
					if err := os.Remove(filepath.Join(dir, "remote-credentials.json.lock")); err != nil {
						t.Error(err)
					}
					records := storeOf(t, dir)
					records[fmt.Sprintf("between-%d", broken)] = record{"kind": "static", "token": "S"}
					putStore(t, dir, records)
				}
				return nil
			})
			src := sourceWith(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), credstore.SourceConfig{
				Target: box, Exchange: a.exchange, Settings: func() (credstore.Settings, error) {
					set, _ := pinned()
					set.Scope = scope
					return set, nil
				},
			})
			mustGive(t, src, credstore.Request{}, "A-new-1")
			r := storeOf(t, dir)
			if r[box]["refreshToken"] != "R-new-1" || len(r) != 4 {
				t.Errorf("%d records stand in the store, %d breaks", len(r), broken)
			}
			mustHaveSent(t, a, "R0")
		})
	}
}

// The store changes between the last reading and the rename: the commit
// starts again from what stands there.
func TestACommitSeesAWriteThatCameBetween(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	n := 0
	disk := steps{}
	disk.setFail(func(s durable.Step) error {
		if s.Op == "fsync" && strings.Contains(s.Path, ".remote-credentials.json.") {
			if n++; n == 1 {
				putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour)), other: {"kind": "static", "token": "S"}})
			}
		}
		return nil
	})
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), box, a), credstore.Request{}, "A-new-1")
	if r := storeOf(t, dir); r[other]["token"] != "S" || r[box]["refreshToken"] != "R-new-1" {
		t.Error("a write was lost")
	}
}

// The temporary file that was proven is gone: a new one takes its place.
func TestACommitSurvivesTheLossOfItsTemporaryFile(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	token, err := whileRefreshing(t, dir, a, credstore.Request{}, func() {
		names := temps(namesIn(t, dir))
		if len(names) != 2 {
			t.Errorf("proven with %q", names)
		}
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	})
	if token != "A-new-1" || err != nil || storeOf(t, dir)[box]["refreshToken"] != "R-new-1" {
		t.Errorf("got %q, %v", token, err)
	}
	if sessionOf(t, dir, box)["lastOutcome"] == nil {
		t.Error("the session file was not written")
	}
}

// The result cannot be saved after all: the token is given, nobody sends the
// old one again.
func TestWhatCouldNotBeSavedIsGivenAndNeverSentAgain(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	before := bytesOf(t, storePath(dir))
	a := &authority{}
	var disk steps
	failed := 0
	disk.setFail(func(s durable.Step) error {
		if s.Op == "rename" && s.Path == storePath(dir) {
			failed++
			return unix.EIO
		}
		return nil
	})
	src := sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), box, a)
	token, err := get(src, credstore.Request{})
	if token != "A-new-1" || !errors.Is(err, credstore.ErrNotSaved) || !errors.Is(err, unix.EIO) {
		t.Errorf("got %q, %v", token, err)
	}
	if failed != 2 {
		t.Errorf("%d attempts were made", failed)
	}
	if bytesOf(t, storePath(dir)) != before {
		t.Error("the store has changed")
	}
	if g := guardOf(t, dir); !strings.Contains(g, "mark=spent   token="+secret.New("R0").Fingerprint()) {
		t.Errorf("the guard says %q", g)
	}
	disk.setFail(nil)
	for range 2 {
		mustRefuse(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, a), credstore.Request{}, credstore.ErrLoginRequired)
	}
	mustHaveSent(t, a, "R0")
	if got := temps(namesIn(t, dir)); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// A fault that passes costs the second attempt, not the session.
func TestACommitIsTriedTwice(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	var disk steps
	failed := 0
	disk.setFail(func(s durable.Step) error {
		if s.Op == "fsync" && strings.Contains(s.Path, ".remote-credentials.json.") && failed == 0 {
			failed++
			return unix.EIO
		}
		return nil
	})
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk()}), box, a), credstore.Request{}, "A-new-1")
	if storeOf(t, dir)[box]["refreshToken"] != "R-new-1" || failed != 1 {
		t.Error("not saved")
	}
}

// A session file that cannot be written costs a warning, not the session.
func TestASessionFileThatCannotBeWrittenDoesNotCostTheTokens(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	a := &authority{}
	disk := steps{fail: failOnAfterFirst("rename", "/sessions/box.json")}
	var told warnings
	src := sourceOf(t, open(t, credstore.Config{Dir: dir, Disk: disk.disk(), Warn: told.warn}), box, a)
	mustGive(t, src, credstore.Request{}, "A-new-1")
	if !strings.Contains(told.all(), "session file") || storeOf(t, dir)[box]["refreshToken"] != "R-new-1" {
		t.Errorf("said: %q", told.all())
	}
}

// The commit must be sent under the lock, so a store lock that somebody keeps
// while the answer comes is waited for, with the token in hand.
func TestACommitWaitsForTheStoreLockOnceAndThenGivesUp(t *testing.T) {
	for name, patience := range map[string]bool{"released in time": true, "never released": false} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
			before := bytesOf(t, storePath(dir))
			a := &authority{}
			const staleAfter = 300 * time.Millisecond
			waits := make(chan struct{}, 10)
			answer, arrived, proceed := held(func(_ context.Context, n int, _ credstore.Grant) (credstore.Tokens, error) { return a.rotated(n), nil })
			a.answer = answer
			s := open(t, credstore.Config{Dir: dir, StaleAfter: staleAfter, Stage: func(text string) {
				if strings.HasPrefix(text, "saving") {
					waits <- struct{}{}
				}
			}})
			src := sourceOf(t, s, box, a)
			var token string
			var err error
			done := make(chan struct{})
			go func() { defer close(done); token, err = get(src, credstore.Request{}) }()
			<-arrived
			d, derr := durable.Disk{}.OpenDir(dir)
			if derr != nil {
				t.Fatal(derr)
			}
			defer d.Close()
			lock, lerr := lockfile.Acquire(t.Context(), lockfile.Config{}, lockfile.Request{Dir: d, Name: "remote-credentials.json.lock"})
			if lerr != nil {
				t.Fatal(lerr)
			}
			start := time.Now()
			close(proceed)
			<-waits
			if patience {
				// Longer than a caller without a token in hand would wait.
				timer := time.NewTimer(staleAfter * 3 / 2)
				<-timer.C
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
			<-done
			if patience {
				if token != "A-new-1" || err != nil || storeOf(t, dir)[box]["refreshToken"] != "R-new-1" {
					t.Errorf("got %q, %v", token, err)
				}
				return
			}
			if token != "A-new-1" || !errors.Is(err, credstore.ErrNotSaved) || bytesOf(t, storePath(dir)) != before {
				t.Errorf("got %q, %v", token, err)
			}
			if waited := time.Since(start); waited < 2*staleAfter || waited > 20*time.Second {
				t.Errorf("waited for %s", waited)
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
			mustRefuse(t, src, credstore.Request{}, credstore.ErrLoginRequired)
			mustHaveSent(t, a, "R0")
		})
	}
}

// Whoever wants to send and finds the store lock kept sends nothing.
func TestAStoreLockThatIsKeptStopsTheSend(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	d, err := durable.Disk{}.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	lock, err := lockfile.Acquire(t.Context(), lockfile.Config{}, lockfile.Request{Dir: d, Name: "remote-credentials.json.lock"})
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{}
	src := sourceOf(t, open(t, credstore.Config{Dir: dir, StaleAfter: 200 * time.Millisecond}), box, a)
	err = mustRefuse(t, src, credstore.Request{}, credstore.ErrLocked)
	var heldBy *lockfile.HeldError
	if !errors.As(err, &heldBy) || !heldBy.Guarded || heldBy.PID != os.Getpid() {
		t.Errorf("%v, %+v", err, heldBy)
	}
	mustHaveSent(t, a)
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	mustGive(t, src, credstore.Request{}, "A-new-1")
}

// What crashed writers left is swept, what others write at is not.
func TestOldTemporaryFilesAreSwept(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R0", "A0", in(-time.Hour))})
	const nonce = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	old := []string{".remote-credentials.json." + nonce + ".tmp", "sessions/.box.json." + nonce + ".tmp", "sessions/.signed-out.json." + nonce + ".tmp"}
	kept := []string{".remote-credentials.json.mine.tmp", ".other.json." + nonce + ".tmp", "sessions/.other.json.mine.tmp"}
	for _, name := range slices.Concat(old, kept) {
		putBytes(t, filepath.Join(dir, name), []byte("RT"))
		if err := os.Chtimes(filepath.Join(dir, name), time.Time{}, in(-3*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	young := ".remote-credentials.json." + strings.Repeat("A", 26) + ".tmp"
	putBytes(t, filepath.Join(dir, young), []byte("RT"))
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, &authority{}), credstore.Request{}, "A-new-1")
	got, want := temps(namesIn(t, dir)), append(slices.Clone(kept), young)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q", got, want)
	}
}
