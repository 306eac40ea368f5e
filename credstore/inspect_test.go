package credstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/secret"
	"github.com/spendonce/spendonce/lockfile"
)

// inspected is what a store that is opened anew sees of one target.
func inspected(t *testing.T, dir, target string) credstore.TargetReport {
	t.Helper()
	r := open(t, credstore.Config{Dir: dir}).Inspect(func(string) (credstore.Settings, error) { return pinned() })
	i := slices.IndexFunc(r.Targets, func(x credstore.TargetReport) bool { return x.Target == target })
	if i < 0 {
		t.Fatalf("no target %s in %+v", target, r.Targets)
	}
	return r.Targets[i]
}

func TestInspectMakesNothing(t *testing.T) {
	dir := stateDir(t)
	r := open(t, credstore.Config{Dir: dir, OtherNames: func() []string { return []string{box} }}).Inspect(nil)
	if r.State.Exists || r.Exists || r.StoreErr != nil || r.Path != storePath(dir) || len(r.Targets) != 1 || r.Targets[0].Stored || r.Targets[0].Target != box {
		t.Errorf("%+v", r)
	}
	if names := namesIn(t, dir); len(names) != 0 {
		t.Errorf("it made %q", names)
	}
}

// Besides opening and reading it asks whether directories can be locked, and
// never tries a lock of ours.
func TestInspectOnlyLooks(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R1", "A1", in(-time.Hour)), other: oidc("R2", "A2", in(time.Hour))})
	mustGive(t, sourceOf(t, open(t, credstore.Config{Dir: dir}), box, &authority{}), credstore.Request{}, "A-new-1")
	disk := &steps{}
	r := open(t, credstore.Config{Dir: dir, Disk: disk.disk()}).Inspect(func(string) (credstore.Settings, error) { return pinned() })
	if r.StoreErr != nil || r.Records != 2 || len(r.Targets) != 2 {
		t.Errorf("%+v", r)
	}
	for _, c := range disk.changes() {
		path, asks := strings.CutPrefix(c, "flock ")
		if info, err := os.Stat(path); !asks || err != nil || !info.IsDir() {
			t.Errorf("it does %q", c)
		}
	}
}

// What is said before a refresh is what the refresh would have said.
func TestInspectSaysWhatARefreshWouldSay(t *testing.T) {
	expired := map[string]record{box: oidc("R1", "A1", in(-time.Hour))}
	fingerprint := secret.New("R1").Fingerprint()
	elsewhere := func() (credstore.Settings, error) {
		return credstore.Settings{Pin: credstore.Pin{TokenEndpoint: "https://evil.example/token"}}, nil
	}
	atPin := session{"pin": session{"tokenEndpoint": "https://as.example/token"}}
	for _, c := range []struct {
		name     string
		store    map[string]record
		session  session
		mark     lockfile.MarkState
		settings func() (credstore.Settings, error)
		want     error
	}{
		{name: "refused", session: session{"refreshToken": fingerprint, "loginRequired": "refused"}, want: credstore.ErrLoginRequired},
		{name: "outcome unknown", session: session{"refreshToken": fingerprint, "loginRequired": "unknown"}, want: credstore.ErrOutcomeUnknown},
		{name: "refused, by the mark", mark: lockfile.MarkRefused, want: credstore.ErrLoginRequired},
		{name: "spent", mark: lockfile.MarkSpent, want: credstore.ErrLoginRequired},
		{name: "no refresh token", store: map[string]record{box: oidc("", "A1", in(-time.Hour))}, want: credstore.ErrLoginRequired},
		{name: "back-off", session: session{
			"refreshToken": fingerprint, "notBefore": stamp(in(time.Minute)),
			"lastOutcome": session{"id": "X", "class": "temporary", "text": "status 503", "refreshToken": fingerprint, "time": stamp(in(0))},
		}, want: credstore.ErrTemporary},
		{name: "server not known after a login cut short", session: session{"pending": session{"loginId": "L", "refreshToken": "00", "replaces": "11", "pin": session{}}}, want: credstore.ErrLoginRequired},
		{name: "damaged session file", session: session{"version": 7}, want: credstore.ErrDamaged},
		{name: "another server configured", session: atPin, settings: elsewhere, want: credstore.ErrLoginRequired},
		{name: "no server known", settings: func() (credstore.Settings, error) { return credstore.Settings{}, nil }, want: credstore.ErrConfig},
		{name: "nothing wrong", session: atPin},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := stateDir(t)
			if c.store == nil {
				c.store = expired
			}
			if c.settings == nil {
				c.settings = pinned
			}
			putStore(t, dir, c.store)
			if c.session != nil {
				putSession(t, dir, box, c.session)
			}
			if c.mark != lockfile.MarkNone {
				setMark(t, dir, lockfile.Mark{State: c.mark, Fingerprint: fingerprint, At: time.Now()})
			}
			r := open(t, credstore.Config{Dir: dir}).Inspect(func(string) (credstore.Settings, error) { return c.settings() })
			got := r.Targets[0].RefreshErr
			if got == nil {
				got = r.Targets[0].SettingsErr
			}
			a := &authority{}
			_, want := get(sourceWith(t, open(t, credstore.Config{Dir: dir}), credstore.SourceConfig{Target: box, Settings: c.settings, Exchange: a.exchange}), credstore.Request{})
			if c.want == nil {
				if got != nil || want != nil || len(a.sent()) != 1 {
					t.Errorf("it says %v, and the refresh %v", got, want)
				}
				return
			}
			if !errors.Is(got, c.want) || want == nil || got.Error() != want.Error() || len(a.sent()) != 0 {
				t.Errorf("it says\n%v\nand the refresh\n%v", got, want)
			}
		})
	}
}

func setMark(t *testing.T, dir string, m lockfile.Mark) {
	t.Helper()
	locks, err := durable.Disk{}.MakeDir(filepath.Join(dir, "locks"))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lock, err := lockfile.Acquire(t.Context(), lockfile.Config{}, lockfile.Request{Dir: locks, Name: box + ".lock"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lock.SetMark(m), lock.Release()); err != nil {
		t.Fatal(err)
	}
}

func TestInspectTellsOfMarksThatSpeakOfTheStoredToken(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R1", "A1", in(-time.Hour))})
	setMark(t, dir, lockfile.Mark{State: lockfile.MarkSent, Fingerprint: secret.New("R0").Fingerprint(), At: time.Now()})
	if r := inspected(t, dir, box); r.Mark != (lockfile.Mark{}) || r.Lock.Mark.State != lockfile.MarkSent {
		t.Errorf("of another token: %+v", r.Mark)
	}
	setMark(t, dir, lockfile.Mark{State: lockfile.MarkSent, Fingerprint: secret.New("R1").Fingerprint(), At: time.Now()})
	if r := inspected(t, dir, box); r.Mark.State != lockfile.MarkSent {
		t.Errorf("of the stored token: %+v", r.Mark)
	}
}

func TestInspectTellsOfOverrides(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R1", "A1", in(-time.Hour)), "BOX": {"kind": "static", "token": "x"}, other: oidc("R2", "A2", in(-time.Hour))})
	t.Setenv("SPENDONCE_TOKEN_OTHER", "from-outside")
	t.Setenv("SPENDONCE_TOKEN_BOX", "from-outside")
	if r := inspected(t, dir, other); !r.Override || r.OverrideErr != nil {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{box, "BOX"} {
		if r := inspected(t, dir, name); !r.Override || !errors.Is(r.OverrideErr, credstore.ErrOverride) {
			t.Errorf("two targets with one variable: %+v", r)
		}
	}
}

func TestInspectTellsWhatTheFilesSay(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{
		box: oidc("R1", "A1", in(time.Hour)), other: oidc("", "A2", time.Time{}), "not ours!": {"kind": "static", "token": "x"}, "odd": {"kind": "new"},
	})
	now := time.Now()
	putSession(t, dir, box, session{
		"refreshToken": secret.New("R1").Fingerprint(), "later": 1, "pin": session{"tokenEndpoint": "https://as.example/token", "more": 1},
		"forced":      []string{stamp(now.Add(-time.Second)), stamp(now.Add(-time.Hour)), stamp(now.Add(-2 * time.Second))},
		"lastOutcome": session{"id": "X", "class": "temporary", "refreshToken": secret.New("R1").Fingerprint(), "time": stamp(now)},
	})
	putSession(t, dir, "gone", session{})
	r := inspected(t, dir, box)
	if !r.Stored || !r.Live || !r.Pinned || !r.SessionExists || r.SessionMode != 0o600 || r.Pending || r.Forced != 2 || r.MaxForced != 5 || !r.OutcomeStands ||
		!slices.Equal(r.SessionUnknown, []string{"later", "pin.more"}) {
		t.Errorf("%+v", r)
	}
	if r := inspected(t, dir, other); !r.Live || r.SessionExists || r.SettingsErr != nil {
		t.Errorf("without a refresh token: %+v", r)
	}
	if r := inspected(t, dir, "gone"); r.Stored || !r.SessionExists {
		t.Errorf("without a record: %+v", r)
	}
	if r := inspected(t, dir, "not ours!"); !r.Stored || r.Usable || r.SessionPath != "" {
		t.Errorf("of another program: %+v", r)
	}
}

func TestInspectTellsOfTheDirectories(t *testing.T) {
	dir := stateDir(t)
	putStore(t, dir, map[string]record{box: oidc("R1", "A1", in(time.Hour))})
	putBytes(t, filepath.Join(dir, "audit.log"), []byte("x"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(filepath.Join(dir, "audit.log"), 0o640))
	must(os.Link(storePath(dir), filepath.Join(filepath.Dir(dir), "second")))
	must(os.WriteFile(filepath.Join(dir, ".remote-credentials.json.AAAAAAAAAAAAAAAAAAAAAAAAAA.tmp"), nil, 0o600))
	must(os.MkdirAll(filepath.Join(dir, "sessions"), 0o700))
	must(os.WriteFile(filepath.Join(dir, "sessions", ".box.json.AAAAAAAAAAAAAAAAAAAAAAAAAA.tmp"), nil, 0o600))
	s := open(t, credstore.Config{Dir: dir})
	r := s.Inspect(nil)
	if !r.State.Exists || r.State.Err != nil || r.State.WriteErr != nil || r.State.LocksErr != nil || r.State.Facts.Mode != 0o700 || r.Beside != withNeeds(r.State, r.Beside.Needs) ||
		!r.Sessions.Exists || r.Locks.Exists || !slices.Equal(r.Loose, []string{filepath.Join(dir, "audit.log")}) || r.File.Links != 2 ||
		len(r.Temps) != 2 || r.Temps[0].Target != "" || r.Temps[1].Target != box || formKeys() == nil && (r.Beside.Needs != r.File.Size+16<<10 || r.Sessions.Needs != 4<<10) || r.Beside.Needs < r.File.Size+16<<10 || r.Sessions.Needs < 4<<10 {
		t.Errorf("%+v", r)
	}

	must(os.Chmod(dir, 0o770))
	if r := s.Inspect(nil); !errors.Is(r.State.Err, durable.ErrUnsafe) || r.State.Facts.Mode != 0o770 || !errors.Is(r.StoreErr, credstore.ErrUnsafe) {
		t.Errorf("others may write: %+v", r.State)
	}
	must(os.Chmod(dir, 0o700))

	target := filepath.Join(filepath.Dir(dir), "real", "creds.json")
	putBytes(t, target, []byte("{}"))
	must(os.Remove(storePath(dir)))
	must(os.Symlink("../real/creds.json", storePath(dir)))
	if r := s.Inspect(nil); r.Link != target || r.Beside.Path != filepath.Dir(target) || !r.Exists || r.Locks.Path != filepath.Join(filepath.Dir(target), "locks") {
		t.Errorf("a link: %+v", r)
	}
}

func withNeeds(d credstore.Directory, needs int64) credstore.Directory {
	d.Needs = needs
	return d
}
