package clientconf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/internal/durable"
)

// gitHome is a home for the real git, with settings of somebody's, and a
// setup whose program stands at an awkward place and notes how it is called.
func gitHome(t *testing.T, program string) (s *Setup, config, log string) {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "XDG_CONFIG_HOME": "", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": "",
	} {
		t.Setenv(name, value)
	}
	config = filepath.Join(home, "git config")
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	log = filepath.Join(home, "log")
	t.Setenv("HELPER_LOG", log)
	path := filepath.Join(home, program)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, path, "#!/bin/sh\ncat >/dev/null\necho \"$*\" >>\"$HELPER_LOG\"\nprintf 'username=u\\npassword=from-us\\n'\n", 0o700)
	services := []Service{{Target: "forge", URL: "http://127.0.0.1:9/team", Origins: []string{"http://127.0.0.1:9"}}}
	return &Setup{Disk: durable.Disk{}, StateDir: filepath.Join(home, "state"), Program: []string{path, "--state-dir", home}, All: services}, config, log
}

func (s *Setup) gitSetUp(t *testing.T) *Plan {
	t.Helper()
	p, err := s.Plan(t.Context(), Git, s.All, false)
	if err == nil {
		err = s.Apply(t.Context(), p, func(Step) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *Setup) gitTakeBack(t *testing.T, targets ...string) *Plan {
	t.Helper()
	p, err := s.PlanRemoval(t.Context(), Git, targets)
	if err == nil {
		err = s.Apply(t.Context(), p, func(Step) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gitCredential(t *testing.T, verb, input string) string {
	t.Helper()
	cmd := exec.Command("git", "credential", verb)
	cmd.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return string(out)
}

// The real git finds the program wherever it stands, asks no other helper, and
// tells none.
func TestGitAsksUsAndNobodyElse(t *testing.T) {
	for _, program := range []string{"spendonce", "a b/spend once", "it's/\"quoted\"/$HOME `x`/sp;&|<>*?[#~=%\\", "ä/ünïcode"} {
		s, config, log := gitHome(t, program)
		stored := filepath.Join(filepath.Dir(log), "stored")
		before := "# mine\n[user]\n\tname = me ; comment\n[credential]\n\thelper = store --file " + stored + "\n"
		put(t, config, before, 0o600)
		put(t, stored, "", 0o600)
		s.gitSetUp(t)
		const ask = "protocol=http\nhost=127.0.0.1:9\npath=team/repo.git\n\n"
		got := gitCredential(t, "fill", ask)
		if !strings.Contains(got, "password=from-us\n") {
			t.Errorf("%s: %q", program, got)
		}
		gitCredential(t, "approve", got)
		if leaked := contentOf(t, stored); leaked != "" {
			t.Errorf("%s: another helper was told %q", program, leaked)
		}
		home := filepath.Dir(log)
		if want := "--state-dir " + home + " credential git get\n--state-dir " + home + " credential git store\n"; contentOf(t, log) != want {
			t.Errorf("%s: called with\n%swant\n%s", program, contentOf(t, log), want)
		}
		if p := s.gitSetUp(t); len(p.Steps) != 0 || len(p.Already) != 1 || len(p.Notes) != 0 {
			t.Errorf("a second time: %+v", p)
		}
		s.gitTakeBack(t)
		if got := contentOf(t, config); got != before {
			t.Errorf("%s: taken back:\n%swant\n%s", program, got, before)
		}
	}
}

func TestGitsFileIsRemovedIfItWasMadeForUs(t *testing.T) {
	s, config, _ := gitHome(t, "spendonce")
	s.All = append(s.All, Service{Target: "more", Origins: []string{"https://git.example.com"}})
	s.gitSetUp(t)
	s.gitTakeBack(t, "forge")
	if got := contentOf(t, config); strings.Contains(got, "127.0.0.1") || !strings.Contains(got, "git.example.com") {
		t.Errorf("one of two taken back: %s", got)
	}
	s.gitTakeBack(t, "more")
	if got := contentOf(t, config); got != "(no file)" {
		t.Errorf("left %q", got)
	}
}

func TestGitTellsThePathOnlyWhereTwoTargetsShareAnOrigin(t *testing.T) {
	s, config, _ := gitHome(t, "spendonce")
	s.gitSetUp(t)
	if got := contentOf(t, config); strings.Contains(got, "useHttpPath") {
		t.Errorf("one target: %s", got)
	}
	s.All = append(s.All, Service{Target: "other", URL: "http://127.0.0.1:9/other", Origins: []string{"http://127.0.0.1:9"}})
	p := s.gitSetUp(t)
	if got := contentOf(t, config); !strings.Contains(got, "useHttpPath = true") || len(p.Steps) != 1 {
		t.Errorf("two targets: %+v, %s", p, got)
	}
	// What both need stays for the one that is left.
	if p := s.gitTakeBack(t, "forge"); len(p.Steps) != 0 || !strings.Contains(contentOf(t, config), "credential git") {
		t.Errorf("%+v, %s", p, contentOf(t, config))
	}
	s.gitTakeBack(t, "other")
	if got := contentOf(t, config); got != "(no file)" {
		t.Errorf("left %q", got)
	}
}

// Git asks what is configured after ours too, and tells it each token.
func TestAHelperThatGitWouldTellIsWarnedOf(t *testing.T) {
	s, config, _ := gitHome(t, "spendonce")
	s.gitSetUp(t)
	put(t, config, contentOf(t, config)+"[credential]\n\thelper = \"!f() { echo password=hunter2; }; f\"\n", 0o600)
	p := s.gitSetUp(t)
	if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "after ours") || strings.Contains(p.Notes[0], "hunter2") {
		t.Errorf("%q", p.Notes)
	}
}

// Killed between two commands: the empty value stands there alone.
func TestAnInterruptedSetupOfGitIsTakenUpAgain(t *testing.T) {
	for _, back := range []bool{false, true} {
		s, config, _ := gitHome(t, "spendonce")
		s.gitSetUp(t)
		whole := contentOf(t, config)
		put(t, config, "[credential \"http://127.0.0.1:9/\"]\n\thelper = \n", 0o600)
		if back {
			s.gitTakeBack(t)
			whole = "(no file)"
		} else {
			s.gitSetUp(t)
		}
		if got := contentOf(t, config); got != whole {
			t.Errorf("%q, want %q", got, whole)
		}
	}
}

func TestGitSettingsOfSomebodyElseAreRefused(t *testing.T) {
	s, config, _ := gitHome(t, "spendonce")
	before := "[credential \"http://127.0.0.1:9/\"]\n\thelper = !echo password=hunter2\n"
	put(t, config, before, 0o600)
	_, err := s.Plan(t.Context(), Git, s.All, false)
	if err == nil || !strings.Contains(err.Error(), "--get-all") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	// What was ours and is not any more is left alone, and forgotten.
	put(t, config, "", 0o600)
	s.gitSetUp(t)
	put(t, config, before, 0o600)
	if p := s.gitTakeBack(t); len(p.Steps) != 0 || len(p.Notes) != 1 || contentOf(t, config) != before {
		t.Errorf("%+v, %s", p, contentOf(t, config))
	}
	if p := s.gitTakeBack(t); len(p.Steps)+len(p.Notes)+len(p.Already) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestAProjectOfGitIsSetUpByItself(t *testing.T) {
	s, config, _ := gitHome(t, "spendonce")
	s.Project = t.TempDir()
	if _, err := s.Plan(t.Context(), Git, s.All, false); err == nil || !strings.Contains(err.Error(), "no git repository") {
		t.Errorf("%v", err)
	}
	if out, err := exec.Command("git", "init", "-q", s.Project).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	local := filepath.Join(s.Project, ".git", "config")
	before := contentOf(t, local)
	s.gitSetUp(t)
	if !strings.Contains(contentOf(t, local), "credential git") || contentOf(t, config) != "(no file)" {
		t.Errorf("%s", contentOf(t, local))
	}
	s.gitTakeBack(t)
	if got := contentOf(t, local); got != before {
		t.Errorf("taken back:\n%s\nwant\n%s", got, before)
	}
}

func TestAMissingToolIsSaid(t *testing.T) {
	s, _, _ := gitHome(t, "spendonce")
	t.Setenv("PATH", t.TempDir())
	for _, c := range []Client{Git, Kubectl} {
		if _, err := s.Plan(t.Context(), c, s.All, false); err == nil || !strings.Contains(err.Error(), string(c)+": not found on PATH") {
			t.Errorf("%s: %v", c, err)
		}
	}
}

func TestAProgramWhosePathCannotBeWrittenIsRefused(t *testing.T) {
	s, _, _ := gitHome(t, "spendonce")
	for _, program := range []string{"spendonce", "/a\nb", "/a\x7f", "/\xff"} {
		s.Program = []string{program}
		if _, err := s.Plan(t.Context(), Docker, s.All, false); err == nil {
			t.Errorf("%q is taken", program)
		}
	}
}
