package doctorcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/credstore"
	"github.com/spendonce/spendonce/internal/config"
	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/lockfile"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const stale = time.Minute

// healthy is a directory of ours with room and locks.
func healthy(path string) credstore.Directory {
	return credstore.Directory{
		Path: path, Exists: true, Facts: durable.Facts{ID: durable.ID{Dev: 1}, Type: fs.ModeDir, Mode: 0o700, UID: 1000},
		Volume: durable.Volume{Kind: "ext4", Free: 1 << 30, Files: -1}, Needs: 20 << 10,
	}
}

// well is a scene in which nothing is wrong: one target, signed in.
func well() scene {
	return scene{
		report: credstore.Report{
			Time: noon, StaleAfter: stale, Path: "/s/creds", Exists: true, File: durable.Facts{Mode: 0o600, Links: 1}, Records: 1,
			State: healthy("/s"), Beside: healthy("/s"), Sessions: healthy("/s/sessions"), Locks: healthy("/s/locks"),
			Lock: lockfile.Inspection{Path: "/s/creds.lock"},
			Targets: []credstore.TargetReport{{
				Entry:  credstore.Entry{Target: "box", Usable: true, Kind: credstore.KindOIDC, HasToken: true, Refreshable: true, ExpiresAt: noon.Add(time.Hour)},
				Stored: true, Live: true, MaxForced: 5, ForcedWindow: time.Minute, Lock: lockfile.Inspection{Path: "/s/locks/box.lock"},
			}},
		},
		config: &config.Config{Path: "/c/config.toml"},
		around: surroundings{uid: 1000, gid: 1000, home: true, executable: "/bin/spendonce", version: "1.0"},
	}
}

func sealedBy(kind string) credstore.Seal {
	return credstore.Seal{Kind: kind, Key: strings.Repeat("0", 32)}
}

// said are the findings that are more than "ok", one a line.
func said(s scene) string {
	var lines []string
	for _, c := range judge(s) {
		if c.Level != fine {
			lines = append(lines, string(c.Level)+" "+c.ID+" "+c.sentence())
		}
	}
	return strings.Join(lines, "\n")
}

func TestADoctorFindsNothingWhereNothingIsWrong(t *testing.T) {
	if got := said(well()); got != "" {
		t.Error(got)
	}
	nothing := well()
	nothing.report = credstore.Report{Time: noon, StaleAfter: stale, State: credstore.Directory{Path: "/s"}, Path: "/s/creds"}
	if got := said(nothing); got != "" {
		t.Error(got)
	}
}

func TestEachFaultIsFoundAndNamesTheNextStep(t *testing.T) {
	target := func(change func(*credstore.TargetReport)) func(*scene) {
		return func(s *scene) { change(&s.report.Targets[0]) }
	}
	dead := func(change func(*credstore.TargetReport)) func(*scene) {
		return target(func(t *credstore.TargetReport) { t.Live = false; change(t) })
	}
	dirs := func(change func(*credstore.Directory)) func(*scene) {
		return func(s *scene) { change(&s.report.State); s.report.Beside = s.report.State }
	}
	loginRequired := errors.Join(credstore.ErrLoginRequired)
	outcome := func(class credstore.Class) *credstore.Outcome {
		return &credstore.Outcome{Time: noon.Add(-time.Minute), Class: class, Status: 503, Text: "status 503"}
	}
	for _, c := range []struct {
		name   string
		change func(*scene)
		want   string // the first line starts with it
		next   string // and ends with it
	}{
		{"another's directory", dirs(func(d *credstore.Directory) { d.Facts.UID, d.Err = 5, durable.ErrUnsafe }), "error state.directory /s belongs to user 5, not to user 1000", "--state-dir"},
		{"a directory others may write to", dirs(func(d *credstore.Directory) { d.Facts.Mode, d.Err = 0o777, durable.ErrUnsafe }), "error state.directory /s has mode 0777", "chmod go-w /s"},
		{"a directory that cannot be opened", dirs(func(d *credstore.Directory) { d.Err = errors.New("no such luck") }), "error state.directory no such luck", "--state-dir"},
		{"a directory others may read", dirs(func(d *credstore.Directory) { d.Facts.Mode = 0o755 }), "note state.directory /s has mode 0755", "chmod 700 /s"},
		{"a directory that cannot be written", dirs(func(d *credstore.Directory) { d.WriteErr = errors.New("read-only") }), "error state.writable read-only", "none is refreshed"},
		{"the network", dirs(func(d *credstore.Directory) { d.Volume.Kind, d.Volume.Network = "nfs", true }), "warning state.filesystem /s is on nfs, where no kernel lock can be relied on: only the older rules", "see --state-dir"},
		{"no kernel locks", dirs(func(d *credstore.Directory) { d.LocksErr = durable.ErrNoKernelLocks }), "warning state.kernel-locks /s is on ext4, which has no kernel locks: only the older rules", "see --state-dir"},
		{"a full disk", dirs(func(d *credstore.Directory) { d.Volume.Free = 30 << 10 }), "error state.space the file system of /s has 30720 bytes left, and a refresh wants 40960", "none is refreshed"},
		{"no more files", dirs(func(d *credstore.Directory) { d.Volume.Files = 0 }), "error state.space the file system of /s can hold no more files", "none is refreshed"},
		{"a read-only disk", dirs(func(d *credstore.Directory) { d.Volume.ReadOnly = true }), "error state.space the file system of /s is mounted read-only", "--state-dir"},
		{"a parent of others", func(s *scene) { s.around.ancestors = []ancestor{{"/", 0, 0, 0o755}, {"/x", 7, 7, 0o755}} }, "warning state.ancestors /x, above the store, belongs to user 7", "rename what is in it"},
		{"a loose file", func(s *scene) { s.report.Loose = []string{"/s/audit.log"} }, "warning state.mode others may read or write /s/audit.log", "chmod 600 /s/audit.log"},
		{"an old temporary file", func(s *scene) {
			s.report.Temps = []credstore.Temp{{Path: "/s/.a.tmp", Since: noon.Add(-3 * time.Minute)}, {Path: "/s/.b.tmp", Since: noon.Add(-time.Hour)}, {Path: "/s/.c.tmp", Since: noon.Add(-2 * time.Minute)}}
		}, "note state.temporary crashed writers left 2 temporary files, the oldest of 2026-11-30T11:00:00Z (1h0m0s ago)", "removes them"},
		{"a temporary file of nobody", func(s *scene) {
			s.report.Temps = []credstore.Temp{{Path: "/s/.a.tmp", Target: "gone", Since: noon.Add(-time.Hour)}}
		}, "note state.temporary crashed writers left 1 temporary file of targets that are not stored", "removes them"},

		{"a damaged store", func(s *scene) {
			s.report.StoreErr = errors.New("creds is damaged at byte 3: what; it was left untouched: look at it, or move it aside")
		}, "error store.file creds is damaged at byte 3: what; it was left untouched", "move it aside"},
		{"a store that cannot be read", func(s *scene) { s.report.StoreErr = errors.New("opening creds: permission denied") }, "error store.file opening creds: permission denied -> look at it", "sign in again"},
		{"a loose store", func(s *scene) { s.report.File.Mode = 0o640 }, "warning store.mode /s/creds has mode 0640", "sign in again"},
		{"hard links", func(s *scene) { s.report.File.Links = 3 }, "warning store.hard-links /s/creds has 3 names", "symbolic links"},
		{"a link", func(s *scene) { s.report.Link = "/d/creds" }, "note store.link /s/creds leads to /d/creds", "locks the whole store"},
		{"a dangling link", func(s *scene) { s.report.Link, s.report.Exists = "/d/creds", false }, "note store.file /s/creds leads to /d/creds, which does not exist yet", "makes it"},
		{"a key that cannot be had", func(s *scene) { s.report.StoreErr = fmt.Errorf("creds is sealed: %w", credstore.ErrKey) }, "error store.key creds is sealed", "only if the key is lost"},
		{"a store that should be encrypted", func(s *scene) { s.report.NewSeal = "age" }, "warning store.key the configuration names a key of the kind age and the store is in plain", "spendonce store encrypt"},
		{"a key of another kind", func(s *scene) { s.report.Seal, s.report.NewSeal = sealedBy("age"), "keyring" }, "note store.key the store is encrypted with a key of the kind age and the configuration names keyring", "spendonce store rekey"},
		{"a change of form cut short", func(s *scene) {
			s.report.Seal, s.report.Targets[0].SessionExists = sealedBy("age"), true
		}, "warning store.key 1 session file kept otherwise than the store", "spendonce store encrypt"},
		{"an encryption cut short", func(s *scene) {
			s.report.Targets[0].SessionExists, s.report.Targets[0].SessionSeal = true, sealedBy("keyring")
		}, "warning store.key 1 session file kept otherwise than the store", "spendonce store decrypt"},
		{"an identity others may read", func(s *scene) { s.around.identity = identity{"/h/id", 0o640, false} }, "warning store.identity /h/id has mode 0640", "'spendonce store rekey'"},
		{"an identity beside the store", func(s *scene) { s.around.identity = identity{"/s/id", 0o600, true} }, "warning store.identity /s/id lies beside the store", "in the configuration"},
		{"a git work tree", func(s *scene) { s.around.workTree = "/d" }, "warning store.work-tree the store lies in the git work tree /d", "git ignores it"},
		{"foreign records", func(s *scene) {
			s.report.Targets = append(s.report.Targets, credstore.TargetReport{Entry: credstore.Entry{Target: "not ours!", Kind: credstore.KindStatic}, Stored: true})
		}, "note store.records 1 record of another program: not ours!", "never used"},

		{"a bad configuration", func(s *scene) { s.config, s.configErr = nil, errors.New("config.toml:2: unknown key") }, "error config.file config.toml:2: unknown key", "nothing is written"},
		{"a short constant", func(s *scene) { s.config.Lock.StaleAfter = config.Duration(time.Second) }, "note config.stale-after stale_after is 1s", "for tests"},
		{"a short constant beside others", func(s *scene) {
			s.config.Lock.StaleAfter = config.Duration(time.Second)
			s.config.Targets = map[string]config.Target{"box": {Dialect: "hypaware"}}
		}, "error config.stale-after stale_after is 1s, and box shares the store", "\"target\""},

		{"no home", func(s *scene) { s.around.home = false }, "note environment.home", "set HOME"},
		{"no place", func(s *scene) { s.openErr = errors.New("no place: set HOME"); s.report = credstore.Report{} }, "error state.directory no place -> set HOME", ""},
		{"another program first", func(s *scene) { s.around.earlier = "/opt/spendonce" }, "warning environment.path this is /bin/spendonce, version 1.0, and another program comes first on PATH: /opt/spendonce", "first on PATH"},
		{"another program later", func(s *scene) { s.around.later = []string{"/opt/spendonce"} }, "note environment.path further programs", "do not use"},
		{"a proxy", func(s *scene) { s.around.proxies = []string{"HTTPS_PROXY"} }, "note environment.proxy servers are reached through a proxy: HTTPS_PROXY", "meant"},
		{"other roots", func(s *scene) { s.around.trust = []string{"SSL_CERT_FILE"} }, "note environment.certificates", "meant"},

		{"a damaged session file", target(func(t *credstore.TargetReport) {
			t.Err, t.SessionPath = errors.New("work.json is damaged: move it aside (mv a b) and sign in again"), "/s/sessions/box.json"
		}), "error target.session work.json is damaged", "sign in again"},
		{"a session file of another user", target(func(t *credstore.TargetReport) { t.Err, t.SessionPath = durable.ErrUnsafe, "/s/sessions/box.json" }), "error target.session unsafe owner or mode", "sign in again"},
		{"a loose session file", target(func(t *credstore.TargetReport) { t.SessionExists, t.SessionMode, t.SessionPath = true, 0o604, "/x" }), "warning target.session-mode /x has mode 0604", "(the next write does it too)"},
		{"a session without a record", target(func(t *credstore.TargetReport) {
			t.Stored, t.SessionExists, t.Kind, t.SessionPath = false, true, "", "/x"
		}), "note target.session /x is there and nothing is stored", "(rm /x)"},
		{"a newer session file", target(func(t *credstore.TargetReport) { t.SessionUnknown = []string{"a", "pin.b"} }), "note target.session-members another version of this program wrote members that this one does not know: a, pin.b", "kept"},
		{"a pending login", target(func(t *credstore.TargetReport) { t.Pending = true }), "note target.pending", "stored"},
		{"login required, token valid", target(func(t *credstore.TargetReport) { t.RefreshErr = loginRequired }), "warning target.login login required; the stored token is served until 2026-11-30T13:00:00Z", ""},
		{"login required", dead(func(t *credstore.TargetReport) { t.RefreshErr = loginRequired }), "error target.login login required", ""},
		{"no refresh token", target(func(t *credstore.TargetReport) { t.Refreshable, t.RefreshErr = false, loginRequired }), "note target.login there is no refresh token: the session ends 2026-11-30T13:00:00Z (in 1h0m0s)", "spendonce login box"},
		{"another server configured", dead(func(t *credstore.TargetReport) { t.SettingsErr = errors.New("made with a: restore it") }), "error target.settings made with a", "restore it"},
		{"expiry unknown", target(func(t *credstore.TargetReport) { t.ExpiresAt = time.Time{} }), "note target.expiry", "--refresh"},
		{"a temporary failure", dead(func(t *credstore.TargetReport) {
			t.LastOutcome, t.OutcomeStands = outcome(credstore.ClassTemporary), true
		}), "warning target.exchange the last refresh, 2026-11-30T11:59:00Z (1m0s ago), failed (status 503)", "the server"},
		{"a temporary failure, token valid", target(func(t *credstore.TargetReport) {
			t.LastOutcome, t.OutcomeStands = outcome(credstore.ClassTemporary), true
		}), "note target.exchange", "the server"},
		{"a dead client", dead(func(t *credstore.TargetReport) {
			t.LastOutcome, t.OutcomeStands = outcome(credstore.ClassClientDead), true
		}), "error target.exchange at the last refresh, 2026-11-30T11:59:00Z (1m0s ago), the server no longer knew this client", "spendonce login box"},
		{"a wrong request", dead(func(t *credstore.TargetReport) {
			t.LastOutcome, t.OutcomeStands = outcome(credstore.ClassRequest), true
		}), "error target.exchange at the last refresh", "settings"},
		{"a clock behind", target(func(t *credstore.TargetReport) {
			t.LastOutcome = outcome(credstore.ClassSuccess)
			t.LastOutcome.ServerDate = t.LastOutcome.Time.Add(31 * time.Second)
		}), "warning target.clock at the last refresh, 2026-11-30T11:59:00Z (1m0s ago), this machine's clock was 31s behind the server's", "by that much"},
		{"a clock ahead", target(func(t *credstore.TargetReport) {
			t.LastOutcome = outcome(credstore.ClassSuccess)
			t.LastOutcome.ServerDate = t.LastOutcome.Time.Add(-4 * time.Hour)
		}), "warning target.clock at the last refresh, 2026-11-30T11:59:00Z (1m0s ago), this machine's clock was 4h0m0s ahead of", "by that much"},
		{"a back-off", target(func(t *credstore.TargetReport) { t.NotBefore = noon.Add(7 * time.Second) }), "note target.back-off after a failure nobody refreshes before 2026-11-30T12:00:07Z (in 7s)", "wait"},
		{"rejections", target(func(t *credstore.TargetReport) { t.Forced = 5 }), "error target.rejections", "resource are right"},
		{"a mark", target(func(t *credstore.TargetReport) {
			t.Mark = lockfile.Mark{State: lockfile.MarkSent, At: noon.Add(-time.Hour)}
		}), "note target.mark a refresh was begun 2026-11-30T11:00:00Z (1h0m0s ago)", "signed in anew"},
		{"only configured", func(s *scene) {
			s.report.Targets[0] = credstore.TargetReport{Entry: credstore.Entry{Target: "box"}}
			s.config.Targets = map[string]config.Target{"box": {}}
		}, "note target.login configured and not signed in", "spendonce login box"},
		{"a name that is none", func(s *scene) {
			s.report.Targets[0] = credstore.TargetReport{Entry: credstore.Entry{Target: "b x"}}
			s.config.Targets = map[string]config.Target{"b x": {}}
		}, "warning target.name", "digit"},
		{"an override", target(func(t *credstore.TargetReport) { t.Override = true }), "note target.override SPENDONCE_TOKEN_BOX is set", "what is stored"},
		{"a bad override", target(func(t *credstore.TargetReport) { t.Override, t.OverrideErr = true, errors.New("it is empty: unset it") }), "error target.override it is empty", "unset it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := well()
			c.change(&s)
			got := said(s) + "\n"
			first, _, _ := strings.Cut(got, "\n")
			if !strings.HasPrefix(got, c.want) || !strings.HasSuffix(first, c.next) {
				t.Errorf("said\n%swanted %q ... %q", got, c.want, c.next)
			}
			for _, f := range judge(s) {
				if (f.Next == "") != (f.Level == fine) && f.Text != "login required" && !strings.HasPrefix(f.Text, "login required;") {
					t.Errorf("%s: level %s and next step %q", f.ID, f.Level, f.Next)
				}
			}
		})
	}
}

func TestALocksFateIsTold(t *testing.T) {
	runs := lockfile.Process{PID: 4711, Name: "spendonce"}
	stopped := lockfile.Process{PID: 4711, Name: "spendonce", Stopped: true}
	old, young, future := noon.Add(-time.Hour), noon.Add(-10*time.Second), noon.Add(4*time.Hour)
	for _, c := range []struct {
		name string
		i    lockfile.Inspection
		want string
		next string
	}{
		{"free", lockfile.Inspection{Guard: true, GuardMode: 0o600}, "", ""},
		{"in use", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: young, Guard: true, Held: true, Holder: runs}, "", ""},
		{"just taken", lockfile.Inspection{Guard: true, Held: true, Holder: runs}, "", ""},
		{"in use for long", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: old, Guard: true, Held: true, Holder: runs}, "warning the lock is held since 2026-11-30T11:00:00Z (1h0m0s ago) by process 4711 (spendonce), longer than any refresh should last", "hangs"},
		{"stopped", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: young, Guard: true, Held: true, Holder: stopped}, "error the lock is held since 2026-11-30T11:59:50Z (10s ago) by process 4711 (spendonce), which is stopped", "continue it (kill -CONT 4711) or kill it"},
		{"stopped without a file", lockfile.Inspection{Guard: true, Held: true, Holder: stopped}, "error the lock is held by process 4711 (spendonce), which is stopped", "kill it"},
		{"waited behind", lockfile.Inspection{Origin: lockfile.Unmarked, Since: young, Guard: true, Held: true, Holder: runs}, "note process 4711 (spendonce) waits behind a lock file of 2026-11-30T11:59:50Z", "old enough"},
		{"left behind", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: old, Guard: true}, "note the file of the lock, made 2026-11-30T11:00:00Z (1h0m0s ago), was left behind by a process that is dead", "the next refresh breaks it at once"},
		{"left behind, or another container's", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: old, Guard: true, Unsure: true}, "note the lock was taken 2026-11-30T11:00:00Z (1h0m0s ago) and no process that can be seen from here holds it; one in another container may", "at once"},
		{"guard deleted", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: old}, "warning the lock is marked as held since", "at once"},
		{"older rules, young", lockfile.Inspection{Origin: lockfile.Unmarked, Since: young}, "note the file of the lock (of a program that knows only the older rules) was made", "broken at 12:00:50Z"},
		{"older rules, old", lockfile.Inspection{Origin: lockfile.Unmarked, Since: old}, "note the file of the lock (of a program that knows only the older rules), made", "watched it for 2s"},
		{"another boot", lockfile.Inspection{Origin: lockfile.OtherBoot, Since: old}, "note the file of the lock (from before the last boot, or another machine)", "for 2s"},
		{"empty", lockfile.Inspection{Origin: lockfile.EmptyFile, Since: old}, "note the file of the lock (empty)", "for 2s"},
		{"not readable", lockfile.Inspection{Origin: lockfile.Unreadable, Since: old}, "note the file of the lock (not readable)", "for 2s"},
		{"future", lockfile.Inspection{Origin: lockfile.Unmarked, Since: future}, "warning the file of the lock (of a program that knows only the older rules) says that it was made 2026-11-30T16:00:00Z (in 4h0m0s); its time lies 4h0m0s in the future, so a clock was set back", "watched it for 1m0s"},
		{"future, left behind", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: future, Guard: true}, "warning the file of the lock, made 2026-11-30T16:00:00Z (in 4h0m0s), was left behind by a process that is dead; its time lies", "at once"},
		{"future, in use", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: future, Guard: true, Held: true, Holder: runs}, "warning the lock is in use since 2026-11-30T16:00:00Z (in 4h0m0s) by process 4711 (spendonce); its time lies", "set the clock"},
		{"no lock file", lockfile.Inspection{FileErr: durable.ErrNotRegular}, "error the lock cannot be obtained (not a regular file)", "move it aside"},
		{"holder unknown", lockfile.Inspection{Origin: lockfile.UnderGuard, Since: old, Guard: true, Held: true}, "warning the lock is held since 2026-11-30T11:00:00Z (1h0m0s ago) by a process that cannot be named", "hangs"},
		{"loose guard", lockfile.Inspection{Guard: true, GuardMode: 0o644}, "warning /l.guard has mode 0644", "repairs it"},
		{"garbled guard", lockfile.Inspection{Guard: true, Garbled: true}, "note /l.guard does not hold what we write", "next use"},
		{"guard of others", lockfile.Inspection{Guard: true, GuardErr: durable.ErrUnsafe}, "error the guard of the lock cannot be used", "process of ours runs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []check
			c.i.Path = "/l"
			judgeLock(findings{all: &all}, "target.lock", c.i, credstore.Report{Time: noon, StaleAfter: stale}, "the lock", "refresh")
			all = slices.DeleteFunc(all, func(c check) bool { return c.Level == fine })
			got := ""
			if len(all) > 0 {
				got = string(all[0].Level) + " " + all[0].sentence()
			}
			if len(all) > 1 || !strings.HasPrefix(got, c.want) || !strings.HasSuffix(got, c.next) || (c.want == "") != (got == "") {
				t.Errorf("said %q of %d findings, wanted %q ... %q", got, len(all), c.want, c.next)
			}
		})
	}
}

func TestAncestorsAreUnsafeWhereOthersMayRename(t *testing.T) {
	for _, c := range []struct {
		a      ancestor
		unsafe bool
	}{
		{ancestor{"/", 0, 0, 0o755}, false},
		{ancestor{"/tmp", 0, 0, 0o777 | fs.ModeSticky}, false},
		{ancestor{"/home/me", 1000, 1000, 0o700}, false},
		{ancestor{"private group", 1000, 1000, 0o775}, false},
		{ancestor{"shared group", 1000, 50, 0o775}, true},
		{ancestor{"of root's group", 0, 0, 0o775}, true},
		{ancestor{"everybody", 1000, 1000, 0o777}, true},
		{ancestor{"another's", 1001, 1001, 0o755}, true},
		{ancestor{"outside the user namespace", 65534, 65534, 0o755}, false},
	} {
		if why := c.a.unsafe(1000, 1000); (why != "") != c.unsafe {
			t.Errorf("%s: %q", c.a.path, why)
		}
	}
}

func TestAncestorsAreLookedAtByBothNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "real", "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, a := range ancestorsOf(filepath.Join(dir, "link", "below"), filepath.Join(dir, "missing", "state")) {
		paths = append(paths, a.path)
	}
	for _, want := range []string{"/", dir, filepath.Join(dir, "link"), filepath.Join(dir, "real")} {
		if !slices.Contains(paths, want) {
			t.Errorf("%s is not among %q", want, paths)
		}
	}
	if slices.Contains(paths, filepath.Join(dir, "real", "below")) {
		t.Errorf("the directory itself is among %q", paths)
	}
}

func TestSentencesAreCutBeforeTheirNextStep(t *testing.T) {
	for sentence, want := range map[string][2]string{
		"a: b": {"a", "b"}, "at 12:30:00: it broke: mend it": {"at 12:30:00: it broke", "mend it"}, "no step": {"no step", ""},
	} {
		if text, next := split(sentence); text != want[0] || next != want[1] {
			t.Errorf("%q: %q, %q", sentence, text, next)
		}
	}
}

func TestTheSumSaysWhetherAnythingIsWrong(t *testing.T) {
	for want, s := range map[string]summary{
		"0 targets, nothing wrong":                   {},
		"1 target, nothing wrong, 1 note":            {1, 0, 0, 1},
		"3 targets, 2 errors, 1 warning":             {3, 2, 1, 0},
		"3 targets, 1 warning, 2 notes":              {3, 0, 1, 2},
		"12 targets, 1 error, 12 warnings, 12 notes": {12, 1, 12, 12},
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Programs read the ids; those that are not written down are no promise.
func TestEveryIDIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/file-formats.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("judge*.go")
	if err != nil || len(files) < 4 {
		t.Fatalf("%q, %v", files, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(b), `"`) {
			place, what, ok := strings.Cut(part, ".")
			if !ok || strings.ContainsAny(part, " /\n()") || what == "" || !slices.Contains([]string{"state", "store", "config", "environment", "broker", "etcd", "target"}, place) {
				continue
			}
			seen[part] = true
			if !strings.Contains(string(doc), "`"+part+"`") {
				t.Errorf("%s of %s is not in docs/file-formats.md", part, file)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("found only %d ids: are they read rightly?", len(seen))
	}
}
