package helper_test

import (
	"encoding/json"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spendonce/spendonce/internal/helper"
	"github.com/spendonce/spendonce/internal/secret"
)

// Whatever git, or somebody in its place, writes: what is taken has a host
// that a URL parser sees the same way, and the answer says what it should and
// not a line more.
func FuzzGit(f *testing.F) {
	f.Add("protocol=https\nhost=git.example.com\n\n", "at")
	f.Add("capability[]=authtype\ncapability[]=state\nprotocol=https\nhost=a:1\nusername=b\nwwwauth[]=Basic realm=\"x\"\n", "a'b")
	f.Add("protocol=https\nhost=a@b\nstate[]=spendonce.target=x\n", "")
	f.Add("authtype=Bearer\ncredential=x\npassword=y\n", "\n")
	f.Fuzz(func(t *testing.T, in, tok string) {
		r, err := helper.ReadGit(strings.NewReader(in))
		if err != nil {
			return
		}
		if raw, err := r.URL(); err == nil {
			u, err := url.Parse(raw)
			if err == nil && (u.Host != r.Host || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "") {
				t.Errorf("the host %q is another one in %q", r.Host, raw)
			}
		}
		var out strings.Builder
		if err := r.Answer(&out, helper.Credential{Token: secret.New(tok), ExpiresAt: time.Unix(1, 0)}, "", "work"); err != nil {
			if out.Len() > 0 {
				t.Errorf("failed, and wrote %q", out.String())
			}
			return
		}
		seen := map[string]string{}
		for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
			key, value, ok := strings.Cut(line, "=")
			if !ok || strings.ContainsAny(line, "\x00\r") {
				t.Fatalf("the line %q", line)
			}
			if _, twice := seen[key]; twice && key != "capability[]" {
				t.Fatalf("%q stands twice in %q", key, out.String())
			}
			seen[key] = value
		}
		if got := seen["password"] + seen["credential"]; got != tok {
			t.Errorf("the answer carries %q, not %q", got, tok)
		}
		if !r.AuthType && (seen["authtype"] != "" || seen["capability[]"] == "authtype") {
			t.Error("answered with what git did not announce")
		}
	})
}

// What we read is what encoding/json reads, and less.
func FuzzExecInfo(f *testing.F) {
	f.Add(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://a"},"interactive":true}}`)
	f.Add(`{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","KIND":"x"}`)
	f.Fuzz(func(t *testing.T, in string) {
		got, err := helper.ParseExecInfo(in)
		if err != nil {
			return
		}
		var want struct {
			APIVersion string `json:"apiVersion"`
		}
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatalf("took %q, which is no JSON: %v", in, err)
		}
		if got.Version != helper.ExecV1 && got.Version != helper.ExecV1beta1 {
			t.Errorf("took the version %q", got.Version)
		}
	})
}

func FuzzDockerServer(f *testing.F) {
	f.Add("registry.example.com\n")
	f.Add("https://user@registry.example.com/v1/")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := helper.ReadDockerServer(strings.NewReader(in))
		if err != nil {
			return
		}
		if got == "" || strings.ContainsAny(got, " \t\r\n\x00") || !strings.Contains(in, got) {
			t.Errorf("read %q as %q", in, got)
		}
		var out strings.Builder
		if err := helper.WriteDocker(&out, got, "oauth2", token); err != nil {
			t.Fatal(err)
		}
		var back struct{ ServerURL, Username, Secret string }
		if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back.ServerURL != got || back.Secret != "at_canary" {
			t.Errorf("%q came back as %q, %v", got, back.ServerURL, err)
		}
	})
}

// A shell that runs what env prints has the token, the whole token, and ran
// nothing else.
func FuzzShell(f *testing.F) {
	for _, s := range []string{"at", "a'b", `a\`, "$(id)", "`id`", "a;id", "''", `"`, "!x", "a\nid"} {
		f.Add(s)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, tok string) {
		var script strings.Builder
		if err := helper.WriteEnvironment(&script, helper.FormatShell, "T", helper.Credential{Token: secret.New(tok)}); err != nil {
			return
		}
		out, err := exec.Command(sh, "-c", script.String()+`printf %s "$T"`).CombinedOutput()
		if err != nil || string(out) != tok {
			t.Errorf("%q came out as %q, %v", tok, out, err)
		}
	})
}
