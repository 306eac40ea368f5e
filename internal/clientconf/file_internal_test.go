package clientconf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
	"github.com/spendonce/spendonce/internal/durable/durabletest"
)

func put(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "(no file)"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func double(doc []byte, _ bool) ([]byte, error) { return bytes.Repeat(doc, 2), nil }

func TestAnEditKeepsTheModeAndTheLinksThatLeadToTheFile(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o644, 0o640, 0o664, 0o400} {
		dir := t.TempDir()
		file := filepath.Join(dir, "dotfiles", "config.json")
		if err := os.Mkdir(filepath.Dir(file), 0o775); err != nil {
			t.Fatal(err)
		}
		put(t, file, "x", mode)
		for link, to := range map[string]string{"one.json": "two.json", "two.json": filepath.Join("dotfiles", "config.json")} {
			if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		if err := edit(durable.Disk{}, filepath.Join(dir, "one.json"), double); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(file)
		if err != nil || info.Mode() != mode || contentOf(t, file) != "xx" {
			t.Errorf("%v, %v, %q; want mode %v", info, err, contentOf(t, file), mode)
		}
		if to, err := os.Readlink(filepath.Join(dir, "one.json")); to != "two.json" {
			t.Errorf("the link leads to %q, %v", to, err)
		}
	}
}

func TestAnEditThatChangesNothingDoesNotTouchTheDisk(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "f"), "x", 0o600)
	disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
		if s.Op != "open" && s.Op != "read" {
			t.Errorf("%s %s", s.Op, s.Path)
		}
		return do()
	}}
	if err := edit(disk, filepath.Join(dir, "f"), func(doc []byte, _ bool) ([]byte, error) { return doc, nil }); err != nil {
		t.Error(err)
	}
	if err := edit(disk, filepath.Join(dir, "none"), func([]byte, bool) ([]byte, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
}

func TestAnEditRefusesWhatIsNotAFileOfOurs(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(path string) error
		kind error
	}{
		"a directory":        {func(path string) error { return os.Mkdir(path, 0o700) }, durable.ErrNotRegular},
		"a device":           {func(path string) error { return os.Symlink("/dev/null", path) }, nil},
		"a link to nowhere":  {func(path string) error { return os.Symlink("nowhere", path) }, nil},
		"a link in a circle": {func(path string) error { return os.Symlink(filepath.Base(path), path) }, nil},
		"too much": {func(path string) error {
			f, err := os.Create(path)
			if err == nil {
				err = errors.Join(f.Truncate(maxDocument+1), f.Close())
			}
			return err
		}, durable.ErrTooLarge},
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := tt.make(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		err := edit(durable.Disk{}, path, func([]byte, bool) ([]byte, error) { return []byte("new"), nil })
		after, _ := os.Lstat(path)
		if err == nil || tt.kind != nil && !errors.Is(err, tt.kind) {
			t.Errorf("%s: %v, want %v", name, err, tt.kind)
		}
		if before.Mode() != after.Mode() || !before.ModTime().Equal(after.ModTime()) {
			t.Errorf("%s: %v became %v", name, before, after)
		}
	}
	if os.Geteuid() == 0 {
		path := filepath.Join(t.TempDir(), "f")
		put(t, path, "theirs", 0o666)
		if err := os.Chown(path, 1, 1); err != nil {
			t.Fatal(err)
		}
		if err := edit(durable.Disk{}, path, double); !errors.Is(err, durable.ErrUnsafe) || contentOf(t, path) != "theirs" {
			t.Errorf("another user's file: %v, %q", err, contentOf(t, path))
		}
	}
}

// A directory that takes no new file: as root, who may write anywhere, the
// disk says so itself.
func TestInADirectoryThatTakesNoFileTheOldOneStays(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "f"), "x", 0o600)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o700) }()
	disk := durable.Disk{}
	if os.Geteuid() == 0 {
		disk.Hook = func(s durable.Step, do func() error) error {
			if s.Op == "create" {
				return fs.ErrPermission
			}
			return do()
		}
	}
	err := edit(disk, filepath.Join(dir, "f"), double)
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir) || contentOf(t, filepath.Join(dir, "f")) != "x" {
		t.Errorf("%v, %q", err, contentOf(t, filepath.Join(dir, "f")))
	}
}

// Somebody else writes while we do: what they wrote is not lost.
func TestAChangeBySomebodyElseMeanwhileIsKept(t *testing.T) {
	for name, theirs := range map[string]func(path string, n int) error{
		"in place":   func(path string, n int) error { return os.WriteFile(path, fmt.Appendf(nil, "theirs %d ", n), 0o600) },
		"by rename":  func(path string, n int) error { return replaceFile(path, fmt.Sprintf("theirs %d ", n)) },
		"by removal": func(path string, _ int) error { return os.Remove(path) },
	} {
		for _, always := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "f")
			put(t, path, "ours ", 0o600)
			n := 0
			disk := durable.Disk{Hook: func(s durable.Step, do func() error) error {
				err := do()
				if s.Op == "fsync" && (always || n == 0) {
					n++
					_ = os.WriteFile(path, nil, 0o600) // there is one to remove
					if err := theirs(path, n); err != nil {
						t.Error(err)
					}
				}
				return err
			}}
			err := edit(disk, path, func(doc []byte, existed bool) ([]byte, error) {
				return fmt.Appendf(nil, "%s+%v", doc, existed), nil
			})
			got := contentOf(t, path)
			switch {
			case always && name == "by removal":
				// Gone, made, gone again: each time there was another file.
				if !errors.Is(err, ErrBusy) && got != "+false" {
					t.Errorf("%s, each time: %v, %q", name, err, got)
				}
			case always:
				if !errors.Is(err, ErrBusy) || got != fmt.Sprintf("theirs %d ", tries) {
					t.Errorf("%s, each time: %v, %q", name, err, got)
				}
			case err != nil || got != "theirs 1 +true" && (name != "by removal" || got != "+false"):
				t.Errorf("%s, once: %v, %q", name, err, got)
			}
			if names, _ := os.ReadDir(filepath.Dir(path)); len(names) > 1 {
				t.Errorf("%s: %v stay behind", name, names)
			}
		}
	}
}

func replaceFile(path, content string) error {
	if err := os.WriteFile(path+"~", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}

// ground is a home with docker's settings, and a setup in it.
func ground(t *testing.T, disk durable.Disk, content string) (*Setup, string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DOCKER_CONFIG", "")
	file := filepath.Join(home, ".docker", "config.json")
	if content != "(no file)" {
		if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, file, content, 0o600)
	}
	services := []Service{{Target: "reg", Origins: []string{"https://reg.example.com"}}}
	return &Setup{Disk: disk, StateDir: filepath.Join(home, "state"), Program: []string{"/usr/bin/spendonce"}, All: services}, file
}

func (s *Setup) setUp(t *testing.T) error {
	t.Helper()
	p, err := s.Plan(t.Context(), Docker, s.All, true)
	if err != nil {
		return err
	}
	return s.Apply(t.Context(), p, func(Step) {})
}

func (s *Setup) takeBack(t *testing.T) error {
	t.Helper()
	p, err := s.PlanRemoval(t.Context(), Docker, nil)
	if err != nil {
		return err
	}
	return s.Apply(t.Context(), p, func(Step) {})
}

// Killed or failed at any step: the file is the old one or the new one, and
// both setting it up again and taking it back work.
func TestAFaultAtAnyStepLeavesTheOldOrTheNewSettingsAndAWayBack(t *testing.T) {
	olds := []string{"(no file)", "{\n\t\"auths\": {} // mine\n}\n", "", `{"credHelpers": {"reg.example.com": "pass"}}`}
	if testing.Short() {
		olds = olds[:2]
	}
	for _, old := range olds {
		for _, back := range []bool{false, true} {
			var plain *Setup
			var file, changed string
			steps := durabletest.Sweep(t, func(disk durable.Disk) error {
				plain, file = ground(t, durable.Disk{}, old)
				s := *plain
				s.Disk = disk
				if !back {
					return s.setUp(t)
				}
				if err := plain.setUp(t); err != nil {
					t.Fatal(err)
				}
				changed = contentOf(t, file)
				return s.takeBack(t)
			}, func(f *durabletest.Fault, err error) {
				got := contentOf(t, file)
				isNew := strings.Contains(got, `"reg.example.com": "spendonce"`) && strings.HasSuffix(strings.TrimSpace(got), "}")
				if got != old && !isNew || back && isNew && got != changed {
					t.Errorf("%s left %q", f, got)
				}
				if err == nil && isNew == back {
					t.Errorf("%s was not told, and left %q", f, got)
				}
				if err := plain.setUp(t); err != nil || !strings.Contains(contentOf(t, file), `"spendonce"`) {
					t.Errorf("set up after %s: %v, %q", f, err, contentOf(t, file))
				}
				if err := plain.takeBack(t); err != nil || contentOf(t, file) != old {
					t.Errorf("taken back after %s: %v, %q, want %q", f, err, contentOf(t, file), old)
				}
			})
			if steps < 15 {
				t.Errorf("only %d steps were swept", steps)
			}
		}
	}
}

// After an interruption the next setup may be with another program's path:
// what was there before us is still what comes back.
func TestSettingUpAnewKeepsWhatWasThereBeforeUs(t *testing.T) {
	s, file := ground(t, durable.Disk{}, `{"k": "theirs"}`)
	r := record{Client: Claude, Targets: []string{"reg"}, File: file}
	for _, value := range []string{"v1", "v2", "v3"} {
		p := &Plan{}
		if err := s.planFile(p, nil, r, []string{"k"}, value, "\t"); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(t.Context(), p, func(Step) {}); err != nil {
			t.Fatal(err)
		}
	}
	// As if the last one was interrupted between journal and file.
	put(t, file, `{"k": "v2"}`, 0o600)
	p, err := s.PlanRemoval(t.Context(), Claude, nil)
	if err == nil {
		err = s.Apply(t.Context(), p, func(Step) {})
	}
	if err != nil || contentOf(t, file) != `{"k": "theirs"}` {
		t.Errorf("%v, %q", err, contentOf(t, file))
	}
}

func TestTwoSetupsAtOnceDoNotMix(t *testing.T) {
	s, file := ground(t, durable.Disk{}, "{}")
	_, unlock, err := openJournal(s.Disk, s.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.setUp(t); !errors.Is(err, ErrRunning) || contentOf(t, file) != "{}" {
		t.Errorf("%v, %q", err, contentOf(t, file))
	}
	unlock()
	if err := s.setUp(t); err != nil {
		t.Error(err)
	}
}

func TestAJournalThatCannotBeReadIsNotOverwritten(t *testing.T) {
	for _, content := range []string{"{", `{"version": 2}`, `{"version": 1, "version": 1}`} {
		s, file := ground(t, durable.Disk{}, "{}")
		if err := os.Mkdir(s.StateDir, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(s.StateDir, journalName), content, 0o600)
		err := s.setUp(t)
		if err == nil || !strings.Contains(err.Error(), journalName) || contentOf(t, file) != "{}" {
			t.Errorf("%q: %v, %q", content, err, contentOf(t, file))
		}
		if got := contentOf(t, filepath.Join(s.StateDir, journalName)); got != content {
			t.Errorf("%q became %q", content, got)
		}
	}
}

// The object that the first target's setting made goes with the last one.
func TestTargetsAreTakenBackOneByOneInAnyOrder(t *testing.T) {
	const before = "{\n\t\"auths\": {}\n}\n"
	for _, first := range []string{"reg", "more"} {
		s, file := ground(t, durable.Disk{}, before)
		s.All = append(s.All, Service{Target: "more", Origins: []string{"https://more.example.com"}})
		if err := s.setUp(t); err != nil {
			t.Fatal(err)
		}
		for _, targets := range [][]string{{first}, nil} {
			p, err := s.PlanRemoval(t.Context(), Docker, targets)
			if err == nil {
				err = s.Apply(t.Context(), p, func(Step) {})
			}
			if err != nil || len(p.Steps) != 1 {
				t.Errorf("%s first: %+v, %v", first, p, err)
			}
		}
		if got := contentOf(t, file); got != before {
			t.Errorf("%s first: %q", first, got)
		}
	}
}

func TestASettingThatDoesNotReadBackIsAnError(t *testing.T) {
	var file string
	s, file := ground(t, durable.Disk{Hook: func(step durable.Step, do func() error) error {
		err := do()
		if step.Op == "rename" && filepath.Base(step.Path) == "config.json" {
			put(t, file, "{}", 0o600) // a client that wrote what it had in memory
		}
		return err
	}}, "{}")
	if err := s.setUp(t); !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, want ErrAltered and %s", err, file)
	}
}
