//go:build linux

package main_test

import (
	bytesof "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spendonce/spendonce/internal/sourceprogram"
	"github.com/spendonce/spendonce/spendoncetest"
)

// These tests share one store between this program and one that knows only
// the older rules; see internal/sourceprogram. Its lock files carry no mark
// and grow stale after a minute, and so do ours in its eyes: where a minute
// has to pass, the file is back-dated instead.

// newSharedHome is a user whose target speaks the other program's dialect, so
// that the whole store is locked for a refresh.
func newSharedHome(t *testing.T, cfg spendoncetest.TokenServerConfig) *home {
	t.Helper()
	h := newHome(t, cfg)
	h.write("config/spendonce/config.toml", fmt.Sprintf("[targets.work]\nurl = %q\ndialect = \"hypaware\"\n", h.server.URL()))
	return h
}

const storeLock = "remote-credentials.json.lock"

func (h *home) state(name string) string { return filepath.Join(h.dir, "state", name) }

// raceEndsAtOnce keeps a race-built process from waiting a second at its end.
const raceEndsAtOnce = "GORACE=atexit_sleep_ms=0"

// sourceArgs is the command line of the other program.
func (h *home) sourceArgs(args ...string) []string {
	h.t.Helper()
	path, err := exec.LookPath("sourceprogram") // this test binary, under that name
	must(h.t, err)
	return append([]string{path, "-store", h.state("remote-credentials.json"), "-origin", h.server.URL()}, args...)
}

// source is one run of the other program, not yet started.
func (h *home) source(args ...string) *process {
	h.t.Helper()
	line := h.sourceArgs(args...)
	p := &process{Cmd: exec.Command(line[0], line[1:]...), h: h}
	p.Env = append(os.Environ(), raceEndsAtOnce)
	p.Stdout, p.Stderr = &p.out, &p.err
	return p
}

func (h *home) startSource(args ...string) *process {
	h.t.Helper()
	p := h.source(args...)
	must(h.t, p.Start())
	h.t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// startGated returns once the other program has the lock; it goes on when the
// writer is closed.
func (h *home) startGated(args ...string) (*process, io.Closer) {
	h.t.Helper()
	p := h.source(append([]string{"-gate"}, args...)...)
	in, err := p.StdinPipe()
	must(h.t, err)
	must(h.t, p.Start())
	h.t.Cleanup(func() { _ = p.Process.Kill() })
	h.awaitTalk(p, "locked\n")
	return p, in
}

// endWith waits and fails unless the process ends with that code; it returns
// what was printed.
func (p *process) endWith(code int) string {
	p.h.t.Helper()
	got, out := p.end()
	if got != code {
		p.h.t.Fatalf("%s %s ended with %d, not %d: %s", filepath.Base(p.Path), strings.Join(p.Args[1:], " "), got, code, p.err.String())
	}
	return out
}

// age makes a lock file older than the constant that both programs know.
func (h *home) age(name string) {
	h.t.Helper()
	h.ageFile(h.state(name))
}

func (h *home) ageFile(path string) {
	h.t.Helper()
	at := time.Now().Add(-61 * time.Second)
	must(h.t, os.Chtimes(path, at, at))
}

func (h *home) content(name string) string {
	h.t.Helper()
	b, err := os.ReadFile(h.state(name))
	must(h.t, err)
	return string(b)
}

// records is the parsed store.
func (h *home) records() map[string]map[string]any {
	h.t.Helper()
	var records map[string]map[string]any
	if err := json.Unmarshal(h.store(), &records); err != nil {
		h.t.Fatalf("the store is damaged: %v", err)
	}
	return records
}

func (h *home) stored(member string) string {
	h.t.Helper()
	s, _ := h.records()["work"][member].(string)
	return s
}

// addRecords puts records of other targets beside the session.
func (h *home) addRecords(more map[string]any) {
	h.t.Helper()
	all := map[string]any{}
	for name, r := range h.records() {
		all[name] = r
	}
	for name, r := range more {
		all[name] = r
	}
	b, err := json.Marshal(all)
	must(h.t, err)
	h.write("state/remote-credentials.json", string(b))
}

// mustBeTidy fails if a lock or a temporary file was left.
func (h *home) mustBeTidy() {
	h.t.Helper()
	must(h.t, filepath.WalkDir(filepath.Join(h.dir, "state"), func(path string, _ os.DirEntry, err error) error {
		if ext := filepath.Ext(path); ext == ".lock" || ext == ".tmp" {
			h.t.Errorf("%s was left", filepath.Base(path))
		}
		return err
	}))
}

func (h *home) mustCount(exchanges, doubleSpends, graceReplays int) {
	h.t.Helper()
	c := h.server.Counters()
	if c.Exchanges != exchanges || c.DoubleSpends != doubleSpends || c.GraceReplays != graceReplays {
		h.t.Errorf("%d exchanges, %d double spends, %d replays within the grace; want %d, %d, %d",
			c.Exchanges, c.DoubleSpends, c.GraceReplays, exchanges, doubleSpends, graceReplays)
	}
}

// watchLooks returns a function that waits until the file has been opened n
// times more: that is how a process shows that it waits for this file.
func (h *home) watchLooks(name string) (await func(n int)) {
	h.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(h.t, err)
	f := os.NewFile(uintptr(fd), "inotify")
	h.t.Cleanup(func() { f.Close() })
	// Alternating events are not merged, as equal ones would be.
	_, err = unix.InotifyAddWatch(fd, h.state(name), unix.IN_OPEN|unix.IN_CLOSE_NOWRITE)
	must(h.t, err)
	return func(n int) {
		h.t.Helper()
		must(h.t, f.SetReadDeadline(time.Now().Add(30*time.Second)))
		b := make([]byte, 64*unix.SizeofInotifyEvent)
		for n > 0 {
			got, err := f.Read(b)
			if err != nil {
				h.t.Fatalf("waiting for a process that looks at %s: %v", name, err)
			}
			for e := b[:got]; len(e) >= unix.SizeofInotifyEvent; e = e[unix.SizeofInotifyEvent:] {
				switch mask := bytesof.NativeEndian.Uint32(e[4:]); {
				case mask&unix.IN_OPEN != 0:
					n--
				case mask&unix.IN_IGNORED != 0:
					h.t.Fatalf("%s was removed while it was to be waited for", name)
				}
			}
		}
	}
}

func (h *home) awaitCounters(what string, ok func(spendoncetest.Counters) bool) {
	h.t.Helper()
	h.eventually(what, func() bool { return ok(h.server.Counters()) })
}

// In every other round the first exchange is surely ours: the other program
// starts faster. The answer takes long enough for it to come while we wait.
func TestStormOfBothProgramsMakesOneExchange(t *testing.T) {
	const each = 12
	h := newSharedHome(t, spendoncetest.TokenServerConfig{Latency: 250 * time.Millisecond})
	count, byOurs := rounds(t, 6, 100), 0
	for round := range count {
		h.renew()
		ours, goOurs := h.waiting(each, h.bin, "token", "work")
		theirs, goTheirs := h.waiting(each, h.sourceArgs("token", "work")...)
		goOurs()
		if round%2 == 1 {
			h.awaitCounters("a request has come", func(c spendoncetest.Counters) bool { return c.TokenPosts > round })
		}
		goTheirs()
		tokens := map[string]int{}
		for i, p := range append(ours, theirs...) {
			code, token := p.end()
			if code != 0 || !h.server.Live(token) {
				t.Errorf("process %d ended with %d, live token %v: %s", i, code, h.server.Live(token), p.err.String())
			}
			tokens[token]++
		}
		if len(tokens) != 1 {
			t.Errorf("%d different tokens were printed", len(tokens))
		}
		if _, err := os.Stat(h.state("sessions/work.json")); err == nil {
			byOurs++ // only this program keeps one
		}
	}
	t.Logf("%d rounds of %d + %d processes; this program made the exchange in %d", count, each, each, byOurs)
	c := h.server.Counters()
	if c.TokenPosts != count || c.FamiliesRevoked != 0 {
		t.Errorf("%d rounds made %d posts and lost %d sessions", count, c.TokenPosts, c.FamiliesRevoked)
	}
	h.mustCount(count, 0, 0)
	h.mustBeTidy()
}

// waiting starts n processes that run the command once the function is
// called.
func (h *home) waiting(n int, line ...string) (all []*process, goOn func()) {
	h.t.Helper()
	r, w, err := os.Pipe()
	must(h.t, err)
	for range n {
		p := h.command()
		p.Env = append(p.Env, raceEndsAtOnce)
		p.Path = "/bin/sh"
		p.Args = append([]string{"sh", "-c", `read -r _; exec "$0" "$@" </dev/null`}, line...)
		p.Stdin = r
		must(h.t, p.Start())
		all = append(all, p)
	}
	must(h.t, r.Close())
	return all, func() { must(h.t, w.Close()) }
}

// The test that the older rules name: a write finds the lock of a holder that
// crashed. While it is young nobody breaks it, and the age alone lets us.
func TestALockThatTheOtherProgramAbandonedIsBrokenByAge(t *testing.T) {
	h := newSharedHome(t, spendoncetest.TokenServerConfig{})
	h.write("rejected", "static-token-of-ours")
	crashed, _ := h.startGated("lock")
	crashed.Process.Kill()
	crashed.endWith(-int(unix.SIGKILL))
	left := h.content(storeLock)

	await := h.watchLooks(storeLock)
	writer := h.start("login", "other", "--token-file", filepath.Join(h.dir, "rejected"))
	await(10)
	if h.content(storeLock) != left {
		t.Fatal("a young lock file was replaced")
	}
	h.age(storeLock)
	writer.endWith(0)
	if h.records()["other"]["token"] != "static-token-of-ours" || h.stored("refreshToken") != h.session.RefreshToken.Reveal() {
		t.Error("the write did not succeed, or lost another record")
	}
	h.mustBeTidy()
}

func TestTheOtherProgramBreaksOurAbandonedLockByAge(t *testing.T) {
	h := newSharedHome(t, spendoncetest.TokenServerConfig{})
	h.write("rejected", "static-token-of-theirs")
	must(t, h.server.Hold(spendoncetest.Before))
	crashed := h.start("token", "work")
	h.held(spendoncetest.Before, 1)
	crashed.Process.Kill()
	crashed.endWith(-int(unix.SIGKILL))
	h.age(storeLock)
	h.startSource("static", "other", filepath.Join(h.dir, "rejected")).endWith(0)
	if h.records()["other"]["token"] != "static-token-of-theirs" || h.stored("refreshToken") != h.session.RefreshToken.Reveal() {
		t.Error("the write did not succeed, or lost another record")
	}
	if _, err := os.Stat(h.state(storeLock)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file: %v", err)
	}
}

// A crash in the request costs a minute where the other program crashed or
// has to follow, nothing where both are ours; and the session only where the
// token was spent and the server takes no second look.
func TestACrashInTheRequestCostsWhatTheRulesSay(t *testing.T) {
	const grace = 30 * time.Second
	for _, crash := range []string{"ours", "theirs"} {
		for _, follow := range []string{"ours", "theirs"} {
			for _, c := range []struct {
				name                  string
				point                 spendoncetest.Point
				grace                 time.Duration
				code                  int
				doubleSpends, replays int
			}{
				{"before it was processed", spendoncetest.Before, 0, 0, 0, 0},
				{"after it, with a grace", spendoncetest.After, grace, 0, 0, 1},
				{"after it, without", spendoncetest.After, 0, sourceprogram.ExitLogin, 1, 0},
			} {
				t.Run(fmt.Sprintf("%s crashes %s and %s follows", crash, c.name, follow), func(t *testing.T) {
					h := newSharedHome(t, spendoncetest.TokenServerConfig{ReuseGrace: c.grace})
					must(t, h.server.Hold(c.point))
					start := func(who string) *process {
						if who == "ours" {
							return h.start("token", "work")
						}
						return h.startSource("token", "work")
					}
					first := start(crash)
					h.held(c.point, 1)
					first.Process.Kill()
					first.endWith(-int(unix.SIGKILL))
					h.awaitCounters("the server has noticed", func(n spendoncetest.Counters) bool { return n.Abandoned+n.AnswersLost == 1 })
					must(t, h.server.Release(c.point))

					switch {
					case crash == "ours" && follow == "ours": // the kernel knows that nobody has the lock
					case follow == "ours":
						await, left := h.watchLooks(storeLock), h.content(storeLock)
						second := start(follow)
						await(10)
						if h.content(storeLock) != left || h.server.Counters().TokenPosts != 1 {
							t.Error("a young lock file of the other program was broken")
						}
						h.age(storeLock)
						h.mustFollow(second, c.code)
					default:
						h.age(storeLock)
					}
					h.mustFollow(start(follow), c.code)
					h.mustCount(1, c.doubleSpends, c.replays)
				})
			}
		}
	}
}

// mustFollow checks how the process after a crash ends, and that its session
// is kept whatever the server says.
func (h *home) mustFollow(p *process, code int) {
	h.t.Helper()
	token := p.endWith(code)
	if code == 0 && (!h.server.Live(token) || h.stored("accessJwt") != token) {
		h.t.Error("the token is not live or not stored")
	}
	if h.stored("refreshToken") == "" {
		h.t.Error("the record is gone")
	}
	if _, err := os.Stat(h.state(storeLock)); !errors.Is(err, os.ErrNotExist) {
		h.t.Errorf("the lock file: %v", err)
	}
}

// A slow request outlives the age at which the other program breaks locks.
func TestAHolderWhoseLockWasTakenOverCommitsOnlyOverTheTokenItSent(t *testing.T) {
	const grace = 30 * time.Second
	for _, c := range []struct {
		name         string
		grace        time.Duration
		successor    []string
		code         int  // of the successor
		replaced     bool // our result must not be stored
		doubleSpends int
		replays      int
	}{
		{"who only looked", 0, []string{"lock"}, 0, false, 0, 0},
		{"who wrote another record", 0, []string{"static", "other", "rejected"}, 0, false, 0, 0},
		{"who spent the same token within the grace", grace, []string{"token", "work"}, 0, false, 0, 1},
		// What the older rules accept: the successor is refused and the server
		// ends the session. Nothing that is stored gets lost even then.
		{"who spent the same token", 0, []string{"token", "work"}, sourceprogram.ExitLogin, false, 1, 0},
		{"who removed the record", 0, []string{"remove", "work"}, 0, true, 0, 0},
		{"who stored something else", 0, []string{"static", "work", "rejected"}, 0, true, 0, 0},
	} {
		t.Run("by one "+c.name, func(t *testing.T) {
			h := newSharedHome(t, spendoncetest.TokenServerConfig{ReuseGrace: c.grace})
			h.write("rejected", "static-token-of-theirs")
			for i, arg := range c.successor {
				if arg == "rejected" {
					c.successor[i] = filepath.Join(h.dir, arg)
				}
			}
			must(t, h.server.Hold(spendoncetest.After))
			holder := h.start("token", "work")
			h.held(spendoncetest.After, 1)
			h.age(storeLock)
			successor, goOn := h.startGated(c.successor...)
			theirs, await := h.content(storeLock), h.watchLooks(storeLock)
			must(t, h.server.Release(spendoncetest.After))
			await(10) // the holder has its answer and finds its lock taken
			if h.content(storeLock) != theirs || h.stored("refreshToken") != h.session.RefreshToken.Reveal() {
				t.Error("the holder did not wait for its successor")
			}
			must(t, goOn.Close())
			successor.endWith(c.code)
			token := holder.endWith(0)
			if lost := c.doubleSpends > 0; h.server.Live(token) == lost {
				t.Errorf("our token is live: %v", !lost)
			}
			if stored := h.stored("accessJwt") == token; stored == c.replaced {
				t.Errorf("our result is stored: %v", stored)
			}
			h.mustCount(1, c.doubleSpends, c.replays)
			h.mustBeTidy()
			switch c.successor[0] {
			case "remove":
				if _, there := h.records()["work"]; there {
					t.Error("the removed record has come back")
				}
			case "static":
				if h.records()[c.successor[1]]["token"] != "static-token-of-theirs" {
					t.Error("what the successor wrote is gone")
				}
			}
			if c.replaced || c.doubleSpends > 0 {
				return
			}
			// Everybody adopts the result.
			for _, p := range []*process{h.startSource("token", "work"), h.start("token", "work")} {
				if p.endWith(0) != token {
					t.Error("another token is handed out")
				}
			}
			h.mustCount(1, c.doubleSpends, c.replays)
		})
	}
}

// Somebody else's result needs no commit of ours, so we end while a stranger
// has the lock.
func TestAHolderWhoseLockWasTakenOverReleasesOnlyItsOwn(t *testing.T) {
	h := newSharedHome(t, spendoncetest.TokenServerConfig{})
	h.write("rejected", "static-token-of-theirs")
	must(t, h.server.Hold(spendoncetest.After))
	holder := h.start("token", "work")
	h.held(spendoncetest.After, 1)
	h.age(storeLock)
	h.startSource("static", "work", filepath.Join(h.dir, "rejected")).endWith(0)
	stranger, goOn := h.startGated("lock")
	theirs := h.content(storeLock)
	must(t, h.server.Release(spendoncetest.After))
	if token := holder.endWith(0); !h.server.Live(token) {
		t.Error("the holder printed no live token")
	}
	if h.content(storeLock) != theirs {
		t.Error("the stranger's lock file is gone")
	}
	must(t, goOn.Close())
	stranger.endWith(0)
	if h.records()["work"]["token"] != "static-token-of-theirs" {
		t.Error("what was stored meanwhile is gone")
	}
	h.mustBeTidy()
}

// A refusal speaks of the token that was sent, and of none that came after.
func TestAHolderThatIsRefusedTakesItsSuccessorsToken(t *testing.T) {
	h := newSharedHome(t, spendoncetest.TokenServerConfig{})
	must(t, h.server.Script(spendoncetest.Answer{Error: "invalid_grant", Hold: spendoncetest.Before}))
	holder := h.start("token", "work")
	h.held(spendoncetest.Before, 1)
	h.age(storeLock)
	successor, goOn := h.startGated("token", "work")
	await := h.watchLooks(storeLock)
	must(t, h.server.Release(spendoncetest.Before))
	await(10) // the holder has its refusal and waits to record it
	must(t, goOn.Close())
	token := successor.endWith(0)
	if holder.endWith(0) != token || !h.server.Live(token) || h.stored("accessJwt") != token {
		t.Error("they do not agree on one live token")
	}
	h.mustCount(1, 0, 0)
	h.mustBeTidy()
}

// The other way round: we take over from a holder of theirs that is slow.
func TestTheOtherProgramsSlowHolderLosesNothingToUs(t *testing.T) {
	h := newSharedHome(t, spendoncetest.TokenServerConfig{ReuseGrace: 30 * time.Second})
	must(t, h.server.Hold(spendoncetest.After))
	holder := h.startSource("token", "work")
	h.held(spendoncetest.After, 1)
	h.age(storeLock)
	successor := h.start("token", "work")
	h.held(spendoncetest.After, 2)
	if !strings.Contains(h.content(storeLock), "\nguarded ") {
		t.Error("the lock file is not ours")
	}
	must(t, h.server.Release(spendoncetest.After))
	token := successor.endWith(0)
	if holder.endWith(0) != token || !h.server.Live(token) || h.stored("accessJwt") != token {
		t.Error("they do not agree on one live token")
	}
	h.mustCount(1, 0, 1)
	h.mustBeTidy()
}

func TestAWriteBesideARefreshLosesNothing(t *testing.T) {
	for _, c := range []struct {
		name           string
		refresh, write func(*home) *process
	}{
		{
			"of ours beside theirs",
			func(h *home) *process { return h.startSource("token", "work") },
			func(h *home) *process {
				return h.start("login", "other", "--token-file", filepath.Join(h.dir, "rejected"))
			},
		},
		{
			"of theirs beside ours",
			func(h *home) *process { return h.start("token", "work") },
			func(h *home) *process { return h.startSource("static", "other", filepath.Join(h.dir, "rejected")) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newSharedHome(t, spendoncetest.TokenServerConfig{})
			h.write("rejected", "static-token")
			must(t, h.server.Hold(spendoncetest.After))
			refresh := c.refresh(h)
			h.held(spendoncetest.After, 1)
			write := c.write(h)
			if strings.HasSuffix(c.name, "theirs") {
				h.watchLooks(storeLock)(10)
			}
			must(t, h.server.Release(spendoncetest.After))
			token := refresh.endWith(0)
			write.endWith(0)
			if h.records()["other"]["token"] != "static-token" {
				t.Error("the write is lost")
			}
			if !h.server.Live(token) || h.stored("accessJwt") != token || !h.server.Spendable(h.stored("refreshToken")) {
				t.Error("the rotation is lost")
			}
			h.mustCount(1, 0, 0)
			h.mustBeTidy()
		})
	}
}

func TestWhatAProgramDoesNotKnowSurvivesIt(t *testing.T) {
	foreign := map[string]any{
		"future":        map[string]any{"kind": "passkey", "id": 7.0, "nested": map[string]any{"a": []any{true, nil, "<&>"}}},
		"a name / ours": map[string]any{"kind": "static", "token": "token-under-a-foreign-name"},
		"ci":            map[string]any{"kind": "static", "token": "static-token-of-ci", "note": "added later"},
		"second":        map[string]any{"kind": "oidc", "refreshToken": "rt-of-second", "accessJwt": "at-of-second", "expiresAt": "2020-01-01T00:00:00.000Z", "region": "eu"},
	}
	for _, who := range []string{"ours", "theirs"} {
		t.Run(who, func(t *testing.T) {
			h := newSharedHome(t, spendoncetest.TokenServerConfig{})
			work := map[string]any{}
			for name, v := range h.records()["work"] {
				work[name] = v
			}
			work["region"] = map[string]any{"zone": 1.0}
			h.addRecords(map[string]any{"work": work})
			h.addRecords(foreign)
			h.write("rejected", "static-token")
			if who == "ours" {
				h.start("token", "work").endWith(0)
				h.start("login", "other", "--token-file", filepath.Join(h.dir, "rejected")).endWith(0)
				h.start("logout", "other").endWith(0)
			} else {
				h.startSource("token", "work").endWith(0)
				h.startSource("static", "other", filepath.Join(h.dir, "rejected")).endWith(0)
				h.startSource("remove", "other").endWith(0)
			}
			got := h.records()
			for name, want := range foreign {
				if !reflect.DeepEqual(got[name], want) {
					t.Errorf("%q is now %v", name, got[name])
				}
			}
			// They rebuild the record that they refresh; we do not.
			if _, kept := got["work"]["region"]; kept != (who == "ours") {
				t.Errorf("a member that nobody knows of the refreshed record was kept: %v", kept)
			}
			if len(got) != len(foreign)+1 {
				t.Errorf("%d records", len(got))
			}
		})
	}
}

func TestEachProgramReadsWhatTheOtherWrote(t *testing.T) {
	iso := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	programs := map[string]func(h *home) *process{
		"ours":   func(h *home) *process { return h.start("token", "work") },
		"theirs": func(h *home) *process { return h.startSource("token", "work") },
	}
	for writer, write := range programs {
		for _, cfg := range []spendoncetest.TokenServerConfig{
			{}, {Org: "acme"}, {RFC3339Expiry: true}, {RFC3339Expiry: true, Org: "acme"},
		} {
			t.Run(fmt.Sprintf("%s wrote, org %q, RFC 3339 %v", writer, cfg.Org, cfg.RFC3339Expiry), func(t *testing.T) {
				h := newSharedHome(t, cfg)
				token := write(h).endWith(0)
				want := []string{"accessJwt", "expiresAt", "kind", "refreshToken"}
				if cfg.Org != "" {
					want = []string{"accessJwt", "expiresAt", "kind", "org", "refreshToken"}
				}
				var members []string
				for name := range h.records()["work"] {
					members = append(members, name)
				}
				if slices.Sort(members); !slices.Equal(members, want) {
					t.Errorf("the record has %q, want %q", members, want)
				}
				if at := h.stored("expiresAt"); !iso.MatchString(at) {
					t.Errorf("expiresAt is %q", at)
				} else if left := untilTime(t, at); left < 59*time.Minute || left > time.Hour {
					t.Errorf("the token is said to live for %s", left)
				}
				before := h.store()
				for reader, read := range programs {
					if read(h).endWith(0) != token {
						t.Errorf("%s reads another token", reader)
					}
				}
				h.mustCount(1, 0, 0)
				if string(h.store()) != string(before) {
					t.Error("reading has changed the store")
				}
				// The next exchange is the reader's, from the record as it is.
				for reader, read := range programs {
					if reader == writer {
						continue
					}
					record := h.records()["work"]
					record["expiresAt"] = "2020-01-01T00:00:00.000Z"
					h.addRecords(map[string]any{"work": record})
					if next := read(h).endWith(0); next == token || !h.server.Live(next) {
						t.Errorf("%s cannot go on from it", reader)
					}
				}
				h.mustCount(2, 0, 0)
				if h.stored("org") != cfg.Org {
					t.Errorf("org is now %q", h.stored("org"))
				}
			})
		}
	}
}

func untilTime(t *testing.T, at string) time.Duration {
	t.Helper()
	v, err := time.Parse(time.RFC3339, at)
	must(t, err)
	return time.Until(v)
}
