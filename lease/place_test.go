//go:build linux

package lease_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/lease"
)

func TestTheFirstPlaceThatAppliesIsTheSocket(t *testing.T) {
	run := fmt.Sprintf("/run/user/%d", os.Geteuid())
	atHome := "/h/.local/state/spendonce/broker.sock"
	if f, err := os.Lstat(run); err == nil && f.IsDir() {
		atHome = run + "/spendonce/broker.sock"
	}
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"said", map[string]string{"SPENDONCE_SOCKET": "/a/b", "XDG_RUNTIME_DIR": "/r"}, "/a/b"},
		{"the session's", map[string]string{"XDG_RUNTIME_DIR": "/r"}, "/r/spendonce/broker.sock"},
		{"a relative one is none", map[string]string{"XDG_RUNTIME_DIR": "r"}, atHome},
		{"the home's", nil, atHome},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("HOME", "/h")
			for _, name := range []string{"SPENDONCE_SOCKET", "XDG_RUNTIME_DIR", "SPENDONCE_STATE_DIR", "XDG_STATE_HOME"} {
				t.Setenv(name, c.env[name])
			}
			if got, err := lease.DefaultSocket(); got != c.want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestAPathThatCannotBeASocketsIsRefusedByTheClient(t *testing.T) {
	long := "/" + strings.Repeat("x", lease.MaxSocketPath)
	for name, path := range map[string]string{"relative": "b.sock", "abstract": "@b", "too long": long} {
		if err := (&lease.Client{Socket: path}).Authenticate(t.Context(), aSession); !errors.Is(err, lease.ErrSocketPath) {
			t.Errorf("%s: %v", name, err)
		}
		t.Setenv("SPENDONCE_SOCKET", path)
		if _, err := lease.DefaultSocket(); !errors.Is(err, lease.ErrSocketPath) {
			t.Errorf("%s in the environment: %v", name, err)
		}
	}
	if err := lease.CheckSocketPath(long[:lease.MaxSocketPath]); err != nil {
		t.Errorf("a path of %d bytes: %v", lease.MaxSocketPath, err)
	}
}

func TestTheSessionIsReadFromTheEnvironment(t *testing.T) {
	file := func(content string, mode os.FileMode) string {
		path := filepath.Join(filepath.Dir(place(t)), "generation")
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		chmod(t, path, mode)
		return path
	}
	const most = "9007199254740991"
	for _, c := range []struct {
		name             string
		id, number, file string
		want             uint64
		wrong            bool
	}{
		{name: "both", id: anID, number: "7", want: 7},
		{name: "none", id: anID, number: "0"},
		{name: "the highest", id: anID, number: most, want: lease.MaxInteger},
		{name: "the file wins", id: anID, number: "7", file: file("8\n", 0o600), want: 8},
		{name: "a file without a newline", id: anID, file: file("8", 0o600), want: 8},
		{name: "no session", number: "7", wrong: true},
		{name: "no generation", id: anID, wrong: true},
		{name: "over the highest", id: anID, number: "9007199254740992", wrong: true},
		{name: "a sign", id: anID, number: "+7", wrong: true},
		{name: "a leading zero", id: anID, number: "07", wrong: true},
		{name: "a space", id: anID, number: " 7", wrong: true},
		{name: "a newline", id: anID, number: "7\n", wrong: true},
		{name: "no number", id: anID, number: "x", wrong: true},
		{name: "a missing file", id: anID, number: "7", file: "/nonexistent/generation", wrong: true},
		{name: "an empty file", id: anID, number: "7", file: file("", 0o600), wrong: true},
		{name: "two lines", id: anID, number: "7", file: file("8\n9\n", 0o600), wrong: true},
		{name: "a file that others may write to", id: anID, number: "7", file: file("8\n", 0o620), wrong: true},
		{name: "a large file", id: anID, number: "7", file: file(strings.Repeat("8", 100), 0o600), wrong: true},
		{name: "a device", id: anID, number: "7", file: "/dev/zero", wrong: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(lease.SessionVariable, c.id)
			t.Setenv(lease.GenerationVariable, c.number)
			t.Setenv(lease.GenerationFileVariable, c.file)
			s, err := lease.FromEnvironment()
			if c.wrong {
				if !errors.Is(err, lease.ErrNoSession) || strings.Contains(err.Error(), anID) {
					t.Errorf("%v, want ErrNoSession", err)
				}
				return
			}
			if err != nil || s.Generation != c.want || !s.ID.Equal(lease.NewSecret(c.id)) {
				t.Errorf("generation %d, %v, want %d", s.Generation, err, c.want)
			}
		})
	}
}

func TestTheGenerationIsReadAnewEachTime(t *testing.T) {
	path := filepath.Join(filepath.Dir(place(t)), "generation")
	t.Setenv(lease.SessionVariable, anID)
	t.Setenv(lease.GenerationFileVariable, path)
	for _, generation := range []uint64{1, 2} {
		if err := os.WriteFile(path, fmt.Appendln(nil, generation), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := lease.FromEnvironment(); err != nil || s.Generation != generation {
			t.Errorf("generation %d, %v, want %d", s.Generation, err, generation)
		}
	}
}

func TestNoPrintingShowsASession(t *testing.T) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(verb, aSession); strings.Contains(text, anID[:20]) || strings.Contains(text, fmt.Sprintf("%x", anID[:10])) {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}
