package canary_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spendonce/spendonce/spendoncetest/canary"
)

func find(t *testing.T, v canary.Value, in canary.Places) []canary.Finding {
	t.Helper()
	found := canary.Search(t, []canary.Value{canary.New("another"), v}, in)
	for _, f := range found {
		if f.Value != v.Name || strings.Contains(fmt.Sprintf("%v %+v", f, f), v.Secret.Reveal()) {
			t.Fatal("a finding names the wrong value or shows the secret")
		}
	}
	return found
}

func TestEveryWritingOfASecretIsFound(t *testing.T) {
	for _, v := range []canary.Value{canary.New("token"), canary.Of("password", "a/b+c=d <e>&\"f\" 0123456789")} {
		plain := v.Secret.Reveal()
		writings := map[string]string{
			"plain":   plain,
			"hex":     hex.EncodeToString([]byte(plain)),
			"HEX":     fmt.Sprintf("%X", plain),
			"query":   url.QueryEscape(plain),
			"path":    url.PathEscape(plain),
			"quoted":  fmt.Sprintf("%q", plain),
			"JSON":    inJSON(plain),
			"cut off": plain[:len(plain)*4/5],
		}
		if v.Name == "password" {
			delete(writings, "cut off") // too short for that
		}
		for n := range 4 {
			before, after := strings.Repeat("u", n), strings.Repeat("z", 3-n)
			writings[fmt.Sprintf("Basic %d", n)] = base64.StdEncoding.EncodeToString([]byte(before + plain + after))
			writings[fmt.Sprintf("raw URL %d", n)] = base64.RawURLEncoding.EncodeToString([]byte(before + plain + after))
		}
		for name, text := range writings {
			out := map[string][]byte{"stderr": []byte("a line\nerror: " + text + ".\n")}
			if found := find(t, v, canary.Places{Outputs: out}); len(found) != 1 || found[0].Where != "stderr" || found[0].At < 14 {
				t.Errorf("%s, %s: %v", v.Name, name, found)
			}
		}
		clean := map[string][]byte{"stdout": []byte("cnry_ [redacted] " + base64.StdEncoding.EncodeToString([]byte("cnry_")))}
		if found := find(t, v, canary.Places{Outputs: clean}); len(found) != 0 {
			t.Errorf("%s: found in clean output: %v", v.Name, found)
		}
	}
}

func inJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestFilesAreSearchedButThoseAllowed(t *testing.T) {
	v := canary.New("rt")
	text := []byte(`{"refreshToken":"` + v.Secret.Reveal() + `"}`)
	dir := t.TempDir()
	write := func(name string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	store, log, temp := write("store.json"), write("a/b/audit.log"), write(".store.json.x.tmp")
	link := filepath.Join(dir, "a", "link")
	if err := os.Symlink(v.Secret.Reveal(), link); err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(dir, "a", v.Secret.Reveal())
	if err := os.Mkdir(named, 0o700); err != nil {
		t.Fatal(err)
	}
	where := func(in canary.Places) string {
		var all []string
		for _, f := range find(t, v, in) {
			all = append(all, f.Where)
		}
		return strings.Join(all, "\n")
	}
	got := where(canary.Places{Dirs: []string{dir}, Allow: []string{store, "*.tmp"}})
	if strings.Contains(got, "store.json") || !strings.Contains(got, log) || !strings.Contains(got, "the link "+link) ||
		!strings.Contains(got, "the name "+filepath.Join(dir, "a", "[redacted]")) || strings.Count(got, "\n") != 2 {
		t.Errorf("found in:\n%s", got)
	}
	if got := where(canary.Places{Files: []string{temp, log}, Allow: []string{dir + "/a/b/*"}}); got != temp {
		t.Errorf("found in:\n%s", got)
	}
	if _, err := canary.Find([]canary.Value{v}, canary.Places{Files: []string{filepath.Join(dir, "nothing-"+v.Secret.Reveal())}}); err == nil || strings.Contains(err.Error(), v.Secret.Reveal()) {
		t.Error("a missing file is no error, or the error shows the secret")
	}
}

func TestArgumentsOfProcessesAreSearched(t *testing.T) {
	v := canary.New("argument")
	cmd := exec.Command("sh", "-c", `read x`, v.Secret.Reveal())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := find(t, v, canary.Places{Cmdlines: true})
	in.Close()
	_ = cmd.Wait()
	if len(found) != 1 || found[0].Where != fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid) {
		t.Errorf("found: %v", found)
	}
	if found := find(t, v, canary.Places{Cmdlines: true}); len(found) != 0 {
		t.Errorf("found after its end: %v", found)
	}
}

func TestASearchThatSeesNothingIsAnError(t *testing.T) {
	v := canary.New("v")
	out := map[string][]byte{"x": nil}
	for _, tt := range []struct {
		values []canary.Value
		in     canary.Places
	}{
		{nil, canary.Places{Outputs: out}},
		{[]canary.Value{v}, canary.Places{}},
		{[]canary.Value{canary.Of("short", "abc")}, canary.Places{Outputs: out}},
		{[]canary.Value{{Name: "empty"}}, canary.Places{Outputs: out}},
		{[]canary.Value{v}, canary.Places{Dirs: []string{"/nonexistent"}}},
		{[]canary.Value{v}, canary.Places{Outputs: out, Allow: []string{"["}}},
	} {
		if _, err := canary.Find(tt.values, tt.in); err == nil {
			t.Errorf("%v %v: no error", tt.values, tt.in)
		}
	}
}

func TestAbsentFailsTheTest(t *testing.T) {
	v := canary.New("v")
	rec := &recorder{TB: t}
	canary.Absent(rec, []canary.Value{v}, canary.Places{Outputs: map[string][]byte{"stdout": []byte(v.Secret.Reveal())}})
	if rec.failures != 1 {
		t.Fatalf("%d failures", rec.failures)
	}
}

type recorder struct {
	testing.TB
	failures int
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failures++ }
